package sqlite

import (
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write schema.sql again")

// The file for new databases makes what the migrations make: the same schema, the same rows, and the
// same list of applied migrations.
func TestSchemaFile(t *testing.T) {
	dir := t.TempDir()
	migrated, created := filepath.Join(dir, "migrated.db"), filepath.Join(dir, "created.db")
	want, err := newest()
	if err != nil {
		t.Fatal(err)
	}
	at(t, migrated, want)
	text := dump(t, migrated)
	if *update {
		head := "-- Written by \"go test ./internal/store/sqlite -run TestSchemaFile -update\"; do not edit.\n\n"
		if err := os.WriteFile("schema.sql", []byte(head+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := migrate(t.Context(), created, Options{BusyTimeout: 1}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, dump(t, created)); diff != "" {
		t.Errorf("a new database differs from a migrated one; if a migration was added, run this test with -update\n%s",
			diff)
	}
	if diff := cmp.Diff(appliedIn(t, migrated), appliedIn(t, created)); diff != "" {
		t.Errorf("applied migrations\n%s", diff)
	}
}

// dump returns the statements that make a database's schema and rows, without the list of applied
// migrations.
func dump(t *testing.T, path string) string {
	t.Helper()
	db := opened(t, path)
	var text strings.Builder
	for _, row := range pairs(t, db, "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid") {
		name, statement := row[0], row[1]
		if name == "sqlite_sequence" { // made by SQLite
			continue
		}
		fmt.Fprintf(&text, "%s;\n\n", statement)
		if !strings.HasPrefix(statement, "CREATE TABLE") || name == "goose_db_version" {
			continue
		}
		columns := pairs(t, db, "SELECT name, 'quote('||name||')' FROM pragma_table_info('"+name+"')")
		var names, quoted []string
		for _, c := range columns {
			names, quoted = append(names, c[0]), append(quoted, c[1])
		}
		values := "SELECT '', " + strings.Join(quoted, "||', '||") + " FROM " + name
		for _, v := range pairs(t, db, values) {
			fmt.Fprintf(&text, "INSERT INTO %s (%s) VALUES (%s);\n\n", name, strings.Join(names, ", "), v[1])
		}
	}
	return strings.TrimSuffix(text.String(), "\n")
}

func appliedIn(t *testing.T, path string) [][2]string {
	t.Helper()
	return pairs(t, opened(t, path), "SELECT version_id, is_applied FROM goose_db_version ORDER BY id")
}

func opened(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// pairs returns the rows of a query with two columns.
func pairs(t *testing.T, db *sql.DB, query string) (all [][2]string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var r [2]string
		if err := rows.Scan(&r[0], &r[1]); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// A start that fails while it makes the schema leaves an empty database, which the next start fills.
func TestCreateIsOneTransaction(t *testing.T) {
	db := opened(t, filepath.Join(t.TempDir(), "belay.db"))
	whole := schema
	t.Cleanup(func() { schema = whole })
	schema = whole + "\nCREATE TABLE meta (id INTEGER);"
	if err := create(t.Context(), db); err == nil {
		t.Fatal("a schema that makes a table twice was accepted")
	}
	if left := pairs(t, db, "SELECT name, type FROM sqlite_schema"); len(left) > 0 {
		t.Errorf("the failed start left %v", left)
	}
	schema = whole
	if err := create(t.Context(), db); err != nil {
		t.Error(err)
	}
}

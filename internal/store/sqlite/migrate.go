package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/belaydev/belay"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schema makes the schema that the migrations make, in an empty database. Each migration that alters
// a table parses the whole schema again, which takes five times as long. The file is written by
// "go test ./internal/store/sqlite -run TestSchemaFile -update".
//
//go:embed schema.sql
var schema string

// migrate brings the database to the newest schema. The caller ensures that only one process at a
// time calls it.
func migrate(ctx context.Context, path string, o Options) (err error) {
	c, err := sqlite.NewConnector(o.dsn(path, false))
	if err != nil {
		return err
	}
	db := sql.OpenDB(c)
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	have, want, err := versions(ctx, db)
	if err != nil || have == want {
		return err
	}
	tables := 0
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return err
	}
	if tables == 0 {
		return create(ctx, db)
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	if err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// create makes the newest schema in an empty database, in one transaction, and records all migrations
// as applied.
func create(ctx context.Context, db *sql.DB) error {
	all, err := known()
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, schema); err != nil {
		return fmt.Errorf("create the schema: %w", err)
	}
	for _, m := range append([]Migration{{}}, all...) {
		if _, err := tx.ExecContext(ctx, applied, m.Version); err != nil {
			return fmt.Errorf("record migration %d: %w", m.Version, err)
		}
	}
	return tx.Commit()
}

// versions returns the schema version of the database (have) and the newest version that this Belay
// knows (want). It refuses a database with a newer version.
func versions(ctx context.Context, db *sql.DB) (have, want int64, err error) {
	if want, err = newest(); err != nil {
		return 0, 0, err
	}
	var there int
	if err := db.QueryRowContext(ctx, hasVersions).Scan(&there); err != nil || there == 0 {
		return 0, want, err
	}
	if err := db.QueryRowContext(ctx, version).Scan(&have); err != nil {
		return 0, 0, err
	}
	if have > want {
		return 0, 0, tooNew(have, want)
	}
	return have, want, nil
}

const (
	hasVersions = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'goose_db_version'"
	version     = "SELECT coalesce(max(version_id), 0) FROM goose_db_version"
	applied     = "INSERT INTO goose_db_version (version_id, is_applied) VALUES (?, 1)"
)

// newest returns the newest known schema version.
func newest() (int64, error) {
	all, err := known()
	if err != nil {
		return 0, err
	}
	return all[len(all)-1].Version, nil
}

// checkSchema refuses a database whose schema is not the newest known one.
func checkSchema(ctx context.Context, c *conn) error {
	want, err := newest()
	if err != nil {
		return err
	}
	have, err := c.version(ctx)
	switch {
	case err != nil:
		return err
	case have > want:
		return tooNew(have, want)
	case have < want:
		return &belay.Error{Code: belay.CodeUnavailable, Op: "open", Message: fmt.Sprintf(
			"the database has schema %d, older than the %d of this Belay; an engine of this version brings it up "+
				"to date when it starts", have, want)}
	}
	return nil
}

// version returns the schema version of a database, 0 if it has none.
func (c *conn) version(ctx context.Context) (have int64, err error) {
	there := int64(0)
	err = c.query(ctx, hasVersions, number(&there))
	if err == nil && there > 0 {
		err = c.query(ctx, version, number(&have))
	}
	return have, err
}

func tooNew(have, want int64) error {
	return &belay.Error{Code: belay.CodeInternal, Op: "open", Message: fmt.Sprintf(
		"the database has schema %d and this Belay knows up to %d: a newer Belay wrote it; use that one, or a "+
			"copy from before", have, want)}
}

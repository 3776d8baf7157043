package postgres

import (
	"context"
	"database/sql"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/testkit/pgtest"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
)

// older makes a database with an older schema.
func older(t *testing.T, version int64) (url string) {
	t.Helper()
	url = pgtest.Shared(t).Database(t)
	err := withDatabase(url, func(db *sql.DB) error {
		files, err := fs.Sub(migrations, "migrations")
		if err != nil {
			return err
		}
		p, err := goose.NewProvider(goose.DialectPostgres, db, files)
		if err != nil {
			return err
		}
		_, err = p.UpTo(t.Context(), version)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// dial connects with a server's settings.
func dial(t *testing.T, url string) *conn {
	t.Helper()
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range settings {
		config.RuntimeParams[k] = v
	}
	c, err := connect(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// sql runs statements and returns the first value of the last one.
func (c *conn) sql(t *testing.T, text string) string {
	t.Helper()
	all, err := c.pg.Exec(t.Context(), text).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if rows := all[len(all)-1].Rows; len(rows) > 0 {
		return string(rows[0][0])
	}
	return ""
}

// A migration waits while another transaction, such as a dump, reads a table. Commits during that
// time do not wait for the migration.
func TestMigrationsDoNotBlockCommits(t *testing.T) {
	t.Parallel()
	url := older(t, 1)
	dump, server, watch := dial(t, url), dial(t, url), dial(t, url)
	dump.sql(t, "BEGIN; SELECT count(*) FROM meta; SELECT count(*) FROM executions")
	done := make(chan error, 1)
	go func() {
		_, err := Migrate(context.Background(), url)
		done <- err
	}()
	waiting := func(on string) bool {
		return watch.sql(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = "+
			"current_database() AND query LIKE '%"+on+"%'") != "0"
	}
	until := func(on string) {
		for !waiting(on) {
			select {
			case err := <-done:
				t.Fatalf("the migration ended while another transaction reads: %v", err)
			default:
			}
		}
	}
	for range 2 {
		until("ALTER TABLE meta")
		began := time.Now()
		server.sql(t, "SELECT epoch FROM meta") // every commit runs this statement, with a lock timeout of one second
		t.Logf("a commit waited for %s", time.Since(began))
	}
	dump.sql(t, "COMMIT; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM executions")
	until("CREATE INDEX CONCURRENTLY")
	server.sql(t, "UPDATE executions SET seq = seq")
	dump.sql(t, "COMMIT")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if left, err := Pending(t.Context(), url); err != nil || len(left) != 0 {
		t.Errorf("%d are left: %v", len(left), err)
	}
}

// If a migration was interrupted, the next call of Migrate runs it again.
func TestInterruptedMigrationsRunAgain(t *testing.T) {
	t.Parallel()
	url := older(t, 2)
	c := dial(t, url)
	c.sql(t, "CREATE INDEX executions_resting ON executions (state); UPDATE pg_index SET indisvalid = false WHERE "+
		"indexrelid = 'executions_resting'::regclass")
	if ran, err := Migrate(t.Context(), url); err != nil || len(ran) == 0 {
		t.Fatalf("%d ran: %v", len(ran), err)
	}
	if c.sql(t, "SELECT indisvalid AND indpred IS NOT NULL FROM pg_index WHERE indexrelid = "+
		"'executions_resting'::regclass") != "t" {
		t.Error("the index is not whole")
	}
}

// Every migration since the second, which added the column oldest, sets the oldest schema whose
// servers may continue.
func TestMigrationsSetTheOldestAllowedVersion(t *testing.T) {
	all, err := known()
	if err != nil || len(all) < 3 {
		t.Fatalf("%d migrations: %v", len(all), err)
	}
	for _, m := range all[2:] {
		if !strings.Contains(m.SQL, "UPDATE meta SET oldest = ") {
			t.Errorf("%s does not say UPDATE meta SET oldest = …", m.Name)
		}
	}
}

// Executions that only wait for a worker are in none of the indexes for counting, so that those
// indexes do not slow down their submission and claim.
func TestReadyExecutionsAreNotInCountingIndexes(t *testing.T) {
	s := testStore(t, Options{Writers: 1, Readers: 1})
	newWorker(t, s).round(100)
	c := <-s.readers
	defer func() { s.readers <- c }()
	for index, want := range map[string]string{"executions_resting": "8192", "dead_letters_open": "8192",
		"executions_pkey": "16384"} {
		if got := c.sql(t, "SELECT pg_relation_size('"+index+"')"); got != want {
			t.Errorf("%s has %s bytes, want %s: one page, and more once it has entries", index, got, want)
		}
	}
}

package postgres_test

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
	"github.com/belaydev/belay/internal/testkit/pgtest"
	"github.com/jackc/pgx/v5"
)

// Several servers may open a new database at the same time; one of them migrates it.
func TestOpeningANewDatabaseTakesTurns(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			s, err := postgres.Open(t.Context(), url, postgres.Options{Writers: 1, Readers: 1})
			if err != nil {
				t.Errorf("opener %d: %v", i, err)
				return
			}
			server{s, t}.submit(byte(i + 1))
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s := open(t, url, postgres.Options{})
	for n := range byte(4) {
		if !there(t, s, n+1) {
			t.Errorf("the execution that opener %d submitted is missing", n)
		}
	}
}

// Pending lists the migrations that Migrate will run, and each of them runs only once.
func TestPendingMigrationsAreListed(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	left, err := postgres.Pending(t.Context(), url)
	if err != nil || len(left) == 0 || left[0].Version != 1 ||
		!strings.Contains(left[0].SQL, "CREATE TABLE executions") {
		t.Fatalf("pending on an empty database: %d (%v)", len(left), err)
	}
	if _, err := pgtest.Shared(t).Query(name(url),
		"SELECT 1 / (count(*) = 0)::int FROM pg_tables WHERE schemaname = 'public'"); err != nil {
		t.Errorf("asking changed the database: %v", err)
	}
	if _, err := postgres.Open(t.Context(), url,
		postgres.Options{ReadOnly: true}); belay.CodeOf(err) != belay.CodeNotFound ||
		!strings.Contains(err.Error(), "no Belay data") {
		t.Errorf("read-only on an empty database: %v", err)
	}
	ran, err := postgres.Migrate(t.Context(), url)
	if err != nil || len(ran) != len(left) {
		t.Errorf("ran %d (%v), want %d", len(ran), err, len(left))
	}
	if ran, err = postgres.Migrate(t.Context(), url); err != nil || len(ran) != 0 {
		t.Errorf("ran %d the second time (%v)", len(ran), err)
	}
}

// opened returns the errors of all functions that check the schema before they do their work.
func opened(t *testing.T, url string) (all []error) {
	t.Helper()
	for _, o := range []postgres.Options{{}, {ReadOnly: true}} {
		s, err := postgres.Open(t.Context(), url, o)
		if err == nil {
			err = s.Close()
		}
		all = append(all, err)
	}
	_, pending := postgres.Pending(t.Context(), url)
	_, migrate := postgres.Migrate(t.Context(), url)
	return append(all, pending, migrate)
}

// newer changes the schema to a newer version that this server does not know. The schema allows
// servers that know at least the version oldest.
func newer(t *testing.T, url, oldest string) {
	t.Helper()
	if _, err := pgtest.Shared(t).Query(name(url),
		"INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true); UPDATE meta SET oldest = "+
			oldest); err != nil {
		t.Fatal(err)
	}
}

// A database with a newer schema that does not allow this version's servers is refused with an
// error that says so.
func TestNewerSchemasAreRefused(t *testing.T) {
	url := database(t)
	newer(t, url, "9998")
	for i, err := range opened(t, url) {
		if belay.CodeOf(err) != belay.CodeInternal || !strings.Contains(err.Error(), "9999") ||
			!strings.Contains(err.Error(), "newer Belay") {
			t.Errorf("%d: refused with: %v", i, err)
		}
	}
	if _, err := pgtest.Shared(t).Query(name(url), "ALTER TABLE meta DROP COLUMN oldest"); err != nil {
		t.Fatal(err)
	}
	for i, err := range opened(t, url) {
		if err == nil || !strings.Contains(err.Error(), "newer Belay") {
			t.Errorf("%d: where the schema allows no version: %v", i, err)
		}
	}
}

// If a migration excludes a running server, the server writes nothing any more. The error says what
// the operator must do, and reads still work.
func TestAServerExcludedByAMigrationWritesNothing(t *testing.T) {
	url := database(t)
	s := server{open(t, url, postgres.Options{}), t}
	s.submit(1)
	newer(t, url, "9999")
	_, err := s.during(nil, &machine.Submit{Submission: belay.Submission{ID: belay.ExecutionID{2}, Workflow: "w"}})
	if belay.CodeOf(err) != belay.CodeUnavailable || !strings.Contains(err.Error(), "9999") {
		t.Errorf("a write got %v", err)
	}
	if !there(t, s.Store, 1) {
		t.Error("the execution written before cannot be read")
	}
	newer(t, url, "1")
	s.submit(3)
}

// If a server runs during a migration that drops a column which its statements name, reads and
// writes report that the server is too old. This is also true in an application's transaction,
// which the application may still commit. If the schema allows the server, the error reports the
// missing column instead.
func TestAMissingColumnIsReportedAsATooOldServer(t *testing.T) {
	url := database(t)
	s := server{open(t, url, postgres.Options{}), t}
	s.submit(1)
	app, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = app.Close(context.Background()) }()
	newer(t, url, "9999; ALTER TABLE executions DROP COLUMN message")
	all := func() map[string]error {
		t.Helper()
		tx, err := app.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, joined := join(s.Store, tx, submit(3))
		if err := tx.Commit(t.Context()); err != nil {
			t.Errorf("the application's transaction: %v", err)
		}
		_, write := s.during(nil, submit(2))
		_, read := s.Read(t.Context(), store.Read{Execution: belay.ExecutionID{1}})
		_, list := s.List(t.Context(), store.List{Limit: 1})
		return map[string]error{"write": write, "read": read, "list": list, "join": joined}
	}
	for what, err := range all() {
		if belay.CodeOf(err) != belay.CodeUnavailable || !strings.Contains(err.Error(), "must know schema 9999") {
			t.Errorf("%s: %v", what, err)
		}
	}
	newer(t, url, "1")
	for what, err := range all() {
		if belay.CodeOf(err) != belay.CodeInternal || !strings.Contains(err.Error(), "message") {
			t.Errorf("%s, where it may go on: %v", what, err)
		}
	}
}

// A server that a newer schema allows continues to work: it reads, writes, and finds no migration
// to run.
func TestNewerSchemasMayAllowOlderServers(t *testing.T) {
	url := database(t)
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	newer(t, url, strconv.Itoa(len(files))) // the newest version that this server knows
	for i, err := range opened(t, url) {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	s := server{open(t, url, postgres.Options{}), t}
	s.submit(1)
	if reader := open(t, url, postgres.Options{ReadOnly: true}); !there(t, reader, 1) {
		t.Error("the execution that was written is not there")
	}
	if got, err := pgtest.Shared(t).Query(name(url), "SELECT max(version_id) FROM goose_db_version"); err != nil ||
		got != "9999" {
		t.Errorf("the schema is %s now (%v)", got, err)
	}
}

// A read-only store reads what servers commit, and writes nothing.
func TestReadOnlyReadsBesideServers(t *testing.T) {
	url := database(t)
	s := server{open(t, url, postgres.Options{}), t}
	reader := open(t, url, postgres.Options{ReadOnly: true})
	s.submit(1)
	if !there(t, reader, 1) {
		t.Error("the reader does not see the committed execution")
	}
	if _, err := (server{reader, t}).during(nil, submit(2)); belay.CodeOf(err) != belay.CodeInternal ||
		!strings.Contains(err.Error(), "read only") {
		t.Errorf("writing: %v", err)
	}
}

// The owner of a database needs no other privilege.
func TestTheDatabaseOwnerNeedsNoOtherPrivilege(t *testing.T) {
	srv := pgtest.Start(t, pgtest.Options{NoSync: true})
	if _, err := srv.Query("postgres", "CREATE ROLE app LOGIN"); err != nil {
		t.Fatal(err)
	}
	if _, err := srv.Query("postgres", "CREATE DATABASE theirs OWNER app"); err != nil {
		t.Fatal(err)
	}
	s := server{open(t, strings.Replace(srv.URL("theirs"), "user=postgres", "user=app", 1), postgres.Options{}), t}
	s.submit(1)
	if !there(t, s.Store, 1) {
		t.Error("the submitted execution is not there")
	}
}

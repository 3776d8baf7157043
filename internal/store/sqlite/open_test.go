package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/sqlite"
	"github.com/belaydev/belay/internal/store/storetest"
)

// submit writes one execution.
func submit(s *sqlite.Store, id belay.ExecutionID) error {
	c := &machine.Submit{Submission: belay.Submission{ID: id, Workflow: "w", Input: []byte(`{"n":1}`)}}
	var need machine.Need
	c.Need(&need)
	return s.Commit(context.Background(), need, func(rows *machine.Rows) *machine.Changes {
		changes, _ := machine.Fold(rows, []machine.Command{c})
		return changes
	})
}

func there(t *testing.T, s *sqlite.Store, id belay.ExecutionID) bool {
	t.Helper()
	_, err := s.Read(t.Context(), store.Read{Execution: id})
	if err != nil && belay.CodeOf(err) != belay.CodeNotFound {
		t.Fatal(err)
	}
	return err == nil
}

func mustOpen(t *testing.T, path string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Other users of the machine can read none of the files.
func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, filepath.Join(dir, "belay.db"), sqlite.Options{})
	if err := submit(s, belay.ExecutionID{1}); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		info, err := d.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o", d.Name(), info.Mode().Perm())
		}
		return err
	})
	if err != nil || files < 3 {
		t.Errorf("%d files: %v", files, err)
	}
}

// The database is at the given path, whatever characters the path has.
func TestPathsAreTakenLiterally(t *testing.T) {
	for _, name := range []string{"plain.db", "a b.db", "50%.db", "what?mode=memory.db", "x#y&z=1;.db", "ünïcode.db",
		"+%20.db"} {
		path := filepath.Join(t.TempDir(), name)
		s := mustOpen(t, path, sqlite.Options{})
		if err := submit(s, belay.ExecutionID{1}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
		if !there(t, mustOpen(t, path, sqlite.Options{ReadOnly: true}), belay.ExecutionID{1}) {
			t.Errorf("%s: read again, it is empty", name)
		}
	}
	if _, err := sqlite.Open(t.Context(), "a\x00b", sqlite.Options{}); belay.CodeOf(err) != belay.CodeInvalid {
		t.Errorf("a path with NUL: %v", err)
	}
}

// A path that cannot be opened is refused with the reason, and the file there is unchanged.
func TestFilesThatAreNoDatabaseAreRefused(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	content := []byte(strings.Repeat("this is no database\n", 100))
	if err := os.WriteFile(text, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		o    sqlite.Options
		want belay.Code
		says string
	}{
		"missing, to read": {
			filepath.Join(dir, "none.db"), sqlite.Options{ReadOnly: true}, belay.CodeNotFound, "there is no database",
		},
		"in a missing place": {filepath.Join(dir, "none", "belay.db"), sqlite.Options{}, belay.CodeInternal,
			"no such file"},
		"a folder":        {dir, sqlite.Options{}, belay.CodeInternal, ""},
		"a text":          {text, sqlite.Options{}, belay.CodeInternal, "damaged"},
		"a text, to read": {text, sqlite.Options{ReadOnly: true}, belay.CodeInternal, "damaged"},
	} {
		s, err := sqlite.Open(t.Context(), c.path, c.o)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s: opened", name)
			continue
		}
		if belay.CodeOf(err) != c.want || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %s: %v", name, belay.CodeOf(err), err)
		}
	}
	if now, err := os.ReadFile(text); err != nil || string(now) != string(content) {
		t.Errorf("the text was changed: %v", err)
	}
}

// A database that a newer Belay wrote is refused, and so is a read-only open of a database with an
// older schema.
func TestUnknownSchemasAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belay.db")
	if err := mustOpen(t, path, sqlite.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	change(t, path, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)")
	for _, o := range []sqlite.Options{{}, {ReadOnly: true}} {
		if _, err := sqlite.Open(t.Context(), path, o); err == nil || !strings.Contains(err.Error(), "9999") ||
			!strings.Contains(err.Error(), "newer Belay") {
			t.Errorf("newer, read-only %t: %v", o.ReadOnly, err)
		}
	}
	change(t, path, "DELETE FROM goose_db_version WHERE version_id > 0")
	if _, err := sqlite.Open(t.Context(), path,
		sqlite.Options{ReadOnly: true}); belay.CodeOf(err) != belay.CodeUnavailable ||
		!strings.Contains(err.Error(), "schema 0") {
		t.Errorf("older: %v", err)
	}
}

// change runs a statement on a database that no store has open.
func change(t *testing.T, path, text string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatal(err)
	}
}

// Several stores may open a new database at the same time; one of them creates it.
func TestOpeningANewDatabaseTakesTurns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belay.db")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err == nil {
				err = errors.Join(submit(s, belay.ExecutionID{byte(i + 1)}), s.Close())
			}
			if err != nil {
				t.Errorf("opener %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	s := mustOpen(t, path, sqlite.Options{})
	for i := range 4 {
		if !there(t, s, belay.ExecutionID{byte(i + 1)}) {
			t.Errorf("the execution that opener %d submitted is missing", i)
		}
	}
}

// A read-only store reads what an engine in another process commits, writes nothing, and also works
// without the engine.
func TestReadOnlyReadsBesideAnEngine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belay.db")
	engine := mustOpen(t, path, sqlite.Options{})
	reader := mustOpen(t, path, sqlite.Options{ReadOnly: true})
	if err := submit(engine, belay.ExecutionID{1}); err != nil {
		t.Fatal(err)
	}
	if !there(t, reader, belay.ExecutionID{1}) {
		t.Error("the reader does not see the committed execution")
	}
	_, prune := reader.Prune(t.Context(), store.Retention{Before: reader.Now() + 1}, 0)
	for what, err := range map[string]error{"commit": submit(reader, belay.ExecutionID{2}), "mark": mark(t, reader)} {
		if belay.CodeOf(err) != belay.CodeInternal || !strings.Contains(err.Error(), "read only") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if prune != nil { // Prune succeeds, because there is nothing to delete
		t.Errorf("prune: %v", prune)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	if !there(t, reader, belay.ExecutionID{1}) || !there(t, mustOpen(t, path, sqlite.Options{ReadOnly: true}),
		belay.ExecutionID{1}) {
		t.Error("without the engine there is nothing to read")
	}
	again := mustOpen(t, path, sqlite.Options{})
	if err := submit(again, belay.ExecutionID{3}); err != nil || !there(t, reader, belay.ExecutionID{3}) {
		t.Errorf("the reader does not see the execution that the next engine wrote: %v", err)
	}
}

// If the decision of a commit panics, nothing is written, and the store continues to work.
func TestAPanicInADecisionWritesNothing(t *testing.T) {
	clock := storetest.NewClock()
	s := mustOpen(t, filepath.Join(t.TempDir(), "belay.db"), sqlite.Options{Clock: clock.Now})
	func() {
		defer func() {
			if r := recover(); r != "decided badly" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = s.Commit(t.Context(), machine.Need{}, func(*machine.Rows) *machine.Changes { panic("decided badly") })
	}()
	if err := submit(s, belay.ExecutionID{1}); err != nil {
		t.Error(err)
	}
}

// A commit waits for the lock of another process for up to BusyTimeout, and not longer than its
// context allows.
func TestALockedDatabaseIsUnavailableForAWhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belay.db")
	s := mustOpen(t, path, sqlite.Options{BusyTimeout: 50 * time.Millisecond})
	if err := submit(s, belay.ExecutionID{1}); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := submit(s, belay.ExecutionID{2}); belay.CodeOf(err) != belay.CodeUnavailable ||
		!strings.Contains(err.Error(), "locked") {
		t.Errorf("while it is locked: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := submit(s, belay.ExecutionID{2}); err != nil {
		t.Errorf("when it is free again: %v", err)
	}
}

// Reading a damaged row gives an error that names the damaged value.
func TestDamagedRowsAreErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belay.db")
	s := mustOpen(t, path, sqlite.Options{})
	if err := submit(s, belay.ExecutionID{1}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	change(t, path, "UPDATE executions SET policy = '{'")
	s = mustOpen(t, path, sqlite.Options{})
	if _, err := s.Read(t.Context(), store.Read{Execution: belay.ExecutionID{1}}); belay.CodeOf(
		err) != belay.CodeInternal || !strings.Contains(err.Error(), "policy") {
		t.Errorf("read: %v", err)
	}
	if _, err := s.Counts(t.Context()); err != nil {
		t.Errorf("the store goes on: %v", err)
	}
}

// mark writes only the server's mark of life (a time that shows that it runs).
func mark(t *testing.T, s store.Store) error {
	t.Helper()
	return s.Commit(t.Context(), machine.Need{}, func(r *machine.Rows) *machine.Changes {
		changes, _ := machine.Fold(r, []machine.Command{&machine.Mark{}})
		return changes
	})
}

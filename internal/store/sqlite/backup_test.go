package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/sqlite"
)

// fill makes a store with n executions.
func fill(t *testing.T, path string, n uint64) *sqlite.Store {
	t.Helper()
	s := mustOpen(t, path, sqlite.Options{})
	for i := uint64(1); i <= n; i++ {
		if err := submit(s, numbered(i)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// A backup contains everything that was acknowledged before it began, and each later commit
// completely or not at all (guarantees G3 and G4). The store continues to commit during the backup.
func TestABackupBesideAWriter(t *testing.T) {
	path, to := filepath.Join(t.TempDir(), "belay.db"), filepath.Join(t.TempDir(), "b.db")
	const before = 300
	s := fill(t, path, before)
	stop, stopped := make(chan struct{}), make(chan uint64)
	go func() {
		n := uint64(before)
		for {
			select {
			case <-stop:
				stopped <- n
				return
			default:
			}
			n++
			if err := submit(s, numbered(n)); err != nil {
				t.Error(err)
			}
		}
	}()
	calls := 0
	snap, err := sqlite.Backup(t.Context(), path, to, func(done, total int) {
		if calls++; done < 0 || done > total {
			t.Errorf("%d of %d pages", done, total)
		}
	})
	close(stop)
	last := <-stopped
	if err != nil || calls == 0 || snap.Executions < before || snap.Executions > int64(last) ||
		snap.Events != snap.Executions {
		t.Fatalf("%+v after %d and up to %d, progress called %d times: %v", snap, before, last, calls, err)
	}
	info, err := os.Stat(to)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != snap.Bytes {
		t.Errorf("%v, %v", info, err)
	}
	if names, _ := filepath.Glob(filepath.Join(filepath.Dir(to), "*")); len(names) != 1 {
		t.Errorf("a backup is one file, not %q", names)
	}
	copied := mustOpen(t, to, sqlite.Options{})
	for n := uint64(1); n <= last; n++ {
		if have, want := there(t, copied, numbered(n)), n <= uint64(snap.Executions); have != want {
			t.Fatalf("execution %d of %d: there %t", n, snap.Executions, have)
		}
	}
}

// A backup describes its content, and reading it creates no files.
func TestABackupDescribesItsContent(t *testing.T) {
	path, to := filepath.Join(t.TempDir(), "belay.db"), filepath.Join(t.TempDir(), "b.db")
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	s := mustOpen(t, path, sqlite.Options{Clock: func() time.Time { return at }})
	spec := belay.WorkerSpec{ID: belay.WorkerID{9}, Name: "w", Capacity: 5}
	if err := submit(s, numbered(1)); err != nil {
		t.Fatal(err)
	}
	commit(t, s, &machine.Open{WorkerSpec: spec})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	made, err := sqlite.Backup(t.Context(), path, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := sqlite.Inspect(t.Context(), to)
	if err != nil || got != made {
		t.Errorf("%+v, but it was made as %+v: %v", got, made, err)
	}
	if got.Executions != 1 || got.Events != 1 || got.Sessions != 1 || got.Owned != 0 || got.Epoch != 0 ||
		got.Schema < 2 || !got.Mark.Time().Equal(at) {
		t.Errorf("%+v", got)
	}
	if names, _ := filepath.Glob(filepath.Join(filepath.Dir(to), "*")); len(names) != 1 {
		t.Errorf("there are %q", names)
	}
}

func commit(t *testing.T, s *sqlite.Store, c machine.Command) machine.Reply {
	t.Helper()
	var need machine.Need
	var reply []machine.Reply
	c.Need(&need)
	err := s.Commit(t.Context(), need, func(rows *machine.Rows) (changes *machine.Changes) {
		changes, reply = machine.Fold(rows, []machine.Command{c})
		return changes
	})
	if err != nil || reply[0].Err != nil {
		t.Fatalf("%T: %v, %v", c, err, reply)
	}
	return reply[0]
}

// A file that cannot be a backup, or is damaged, is refused with the reason, and no file is left.
func TestFilesThatAreNoBackupAreRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole := filepath.Join(dir, "whole.db")
	fill(t, filepath.Join(t.TempDir(), "belay.db"), 200)
	s := fill(t, filepath.Join(dir, "belay.db"), 200)
	if _, err := sqlite.Backup(t.Context(), filepath.Join(dir, "belay.db"), whole, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	torn := append([]byte(nil), text...)
	for i := range 4096 {
		torn[5*4096+i] ^= 0x5a
	}
	other := filepath.Join(dir, "other.db")
	sql := func(path, text string) {
		db, err := openSQL(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.Exec(text)
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	sql(other, "CREATE TABLE meta (x)")
	newer := write("newer.db", text)
	sql(newer, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)")
	for _, c := range []struct {
		path, says string
		code       belay.Code
	}{
		{filepath.Join(dir, "nowhere"), "no file", belay.CodeNotFound},
		{dir, "not a file", belay.CodeInvalid},
		{write("empty.db", nil), "none of Belay's", belay.CodeInvalid},
		{write("text.db", []byte(strings.Repeat("hello ", 5000))), "no database", belay.CodeInvalid},
		{other, "none of Belay's", belay.CodeInvalid},
		{newer, "schema 9999", belay.CodeInternal},
		{write("torn.db", torn), "damaged", belay.CodeInternal},
		{write("short.db", text[:len(text)/2]), "damaged", belay.CodeInternal},
	} {
		_, err := sqlite.Inspect(t.Context(), c.path)
		if belay.CodeOf(err) != c.code || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("inspect %s: %s %v; want %s %q", filepath.Base(c.path), belay.CodeOf(err), err, c.code, c.says)
		}
		to := filepath.Join(dir, "restored.db")
		if _, err := sqlite.Restore(t.Context(), c.path, to, 0, time.Now(), nil); belay.CodeOf(err) != c.code {
			t.Errorf("restore %s: %v", filepath.Base(c.path), err)
		}
		if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("restore %s left something: %v", filepath.Base(c.path), err)
		}
	}
}

// A cancelled backup leaves no file, and a backup never overwrites a file.
func TestACancelledBackupLeavesNoFile(t *testing.T) {
	path, to := filepath.Join(t.TempDir(), "belay.db"), filepath.Join(t.TempDir(), "b.db")
	fill(t, path, 500)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := sqlite.Backup(ctx, path, to, func(done, total int) { cancel() }) // cancel during the copy
	if belay.CodeOf(err) != belay.CodeUnavailable {
		t.Errorf("after a cancel: %v", err)
	}
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
	if err := os.WriteFile(to, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Backup(t.Context(), path, to, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over another file: %v", err)
	}
	if text, err := os.ReadFile(to); string(text) != "mine" {
		t.Errorf("the other file is %q: %v", text, err)
	}
}

// Tokens after a restore are higher than all tokens that were given out earlier: before the backup,
// after it, and after an earlier restore of the same backup (guarantee G1).
func TestTokensAfterARestore(t *testing.T) {
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "belay.db"), filepath.Join(dir, "backup.db")
	at := time.Now()
	s := fill(t, path, 1)
	highest := token(t, s, 1)
	if _, err := sqlite.Backup(t.Context(), path, backup, nil); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		highest = max(highest, token(t, s, byte(2+n)))
	}
	known := belay.Token(0)
	for round := range 3 {
		to := filepath.Join(dir, fmt.Sprintf("restored%d.db", round))
		snap, err := sqlite.Restore(t.Context(), backup, to, known, at, nil)
		if err != nil {
			t.Fatal(err)
		}
		known = snap.Epoch
		r := mustOpen(t, to, sqlite.Options{})
		for n := range 2 {
			given := token(t, r, byte(10+n))
			if given <= highest || given <= snap.Epoch {
				t.Errorf("restore %d: token %d of epoch %d after %d", round, given, snap.Epoch, highest)
			}
			highest = given
		}
	}
	if got, err := sqlite.Inspect(t.Context(), backup); err != nil || got.Epoch != 0 {
		t.Errorf("the backup itself has epoch %d: %v", got.Epoch, err)
	}
}

// token locks the first execution for an external owner with a new session, ends the session, so
// that the execution is lost, and returns the token of the lock.
func token(t *testing.T, s *sqlite.Store, session byte) belay.Token {
	t.Helper()
	id := belay.WorkerID{session}
	won := commit(t, s, &machine.Lock{
		LockRequest: belay.LockRequest{ID: id, Execution: numbered(1), Owner: "test", Reopen: true},
	}).Claims[0]
	commit(t, s, &machine.End{Worker: id, Dead: "killed"})
	commit(t, s, &machine.Lose{Execution: won.Execution.ID, Token: won.Execution.Token, Worker: id})
	return won.Execution.Token
}

func openSQL(path string) (*sql.DB, error) { return sql.Open("sqlite", path) }

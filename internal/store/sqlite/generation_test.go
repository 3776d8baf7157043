package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
)

// crashed copies the files that a crash at this moment would leave of a database, except those with
// the given suffixes.
func crashed(t *testing.T, path string, without ...string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "belay.db")
	for _, suffix := range []string{"", "-wal", generationFile} {
		text, err := os.ReadFile(path + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		keep := true
		for _, w := range without {
			keep = keep && w != suffix
		}
		if keep {
			if err := os.WriteFile(to+suffix, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return to
}

// holds reports whether the database at path opens and has an execution.
func holds(t *testing.T, path string, id byte) (bool, error) {
	t.Helper()
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		return false, err
	}
	defer s.Close()
	_, err = s.Read(t.Context(), store.Read{Execution: belay.ExecutionID{id}})
	return err == nil, nil
}

// missing fails the test unless err says that commits are missing in the database.
func missing(t *testing.T, what string, err error) {
	t.Helper()
	if belay.CodeOf(err) != belay.CodeInternal || err == nil ||
		!strings.Contains(err.Error(), "acknowledged are missing") || !strings.Contains(err.Error(), "restore") {
		t.Errorf("%s: %v", what, err)
	}
}

// Every function refuses a database whose log was removed after a crash, whether or not a part of
// the log was moved into the database before, and leaves the database unchanged. With its log the
// database opens. An operator can begin a new epoch to continue without the missing commits.
func TestADatabaseWithoutItsLogIsRefused(t *testing.T) {
	for _, moved := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "belay.db")
		s, err := Open(t.Context(), path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		if err := batch(t, s, belay.ExecutionID{1}); err != nil {
			t.Fatal(err)
		}
		if moved { // the first commit is in the database, and the second commit only in the log
			s.move(t.Context())
			if err := batch(t, s, belay.ExecutionID{2}); err != nil {
				t.Fatal(err)
			}
		}
		if there, err := holds(t, crashed(t, path), 1); !there {
			t.Errorf("with its log: %v", err)
		}
		lost := crashed(t, path, "-wal")
		before, err := os.ReadFile(lost)
		if err != nil {
			t.Fatal(err)
		}
		_, err = holds(t, lost, 1)
		missing(t, "open", err)
		_, err = Open(t.Context(), lost, Options{ReadOnly: true})
		missing(t, "read", err)
		_, err = Backup(t.Context(), lost, filepath.Join(t.TempDir(), "copy"), nil)
		missing(t, "back up", err)
		if after, err := os.ReadFile(lost); err != nil || string(after) != string(before) {
			t.Errorf("the database was changed: %v", err)
		}
		gone := crashed(t, path, "-wal", "")
		_, err = holds(t, gone, 1)
		missing(t, "without the database", err)
		epoch, err := BeginEpoch(t.Context(), lost, 0, time.Now())
		if err != nil || epoch == 0 {
			t.Fatal(epoch, err)
		}
		if there, err := holds(t, lost, 1); err != nil || there != moved {
			t.Errorf("after the loss was accepted: %t, %v; moved %t", there, err, moved)
		}
	}
}

// A database that was closed opens without any other file, and so does a database into which
// another program has moved the log.
func TestAClosedDatabaseNeedsNoOtherFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belay.db")
	for n := byte(1); n <= 3; n++ {
		s, err := Open(t.Context(), path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := batch(t, s, belay.ExecutionID{n}); err != nil {
			t.Fatal(err)
		}
		other := crashed(t, path)
		c, err := connectTo(t.Context(), fileURL(other))
		if err != nil {
			t.Fatal(err)
		}
		if err := firstOf(c.query(t.Context(), "SELECT count(*) FROM executions", ignore), c.close()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(other + "-wal"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the other program has not moved the log: %v", err)
		}
		if there, err := holds(t, other, n); !there {
			t.Errorf("after another program: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path + generationFile); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after closing: %v", err)
		}
	}
}

package sqlite_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/sqlite"
)

// childPath is the environment variable with the path of the database to which a copy of this test
// program writes.
const childPath = "BELAY_TEST_CHILD"

// child starts a copy of this test program that runs only the named test. That test does the work
// of the child process; in the parent it returns at once.
func child(t *testing.T, test, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), childPath+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func numbered(n uint64) (id belay.ExecutionID) {
	binary.BigEndian.PutUint64(id[:], n)
	return id
}

// TestChildWrites writes until it is killed, and prints what was acknowledged.
func TestChildWrites(t *testing.T) {
	path := os.Getenv(childPath)
	if path == "" {
		return // runs only as a child of another test
	}
	s := mustOpen(t, path, sqlite.Options{})
	for n := uint64(1); ; n++ {
		if err := submit(s, numbered(n)); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("done %d\n", n)
	}
}

// Everything that was acknowledged before a kill is in the database, complete (guarantees G3 and
// G4).
func TestAKillLosesNoAcknowledgedCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belay.db")
	last := uint64(0)
	for round := range 3 {
		cmd, lines := child(t, "TestChildWrites", path)
		if round > 0 {
			last = 0 // the new child submits the same executions again, which changes nothing
		}
		for lines.Scan() {
			if _, err := fmt.Sscanf(lines.Text(), "done %d", &last); err == nil && last == uint64(20+50*round) {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // Wait returns an error because the child was killed
		s := mustOpen(t, path, sqlite.Options{})
		for n := uint64(1); n <= last; n++ {
			rec, err := s.Read(t.Context(), store.Read{Execution: numbered(n), Spec: true})
			if err != nil || rec.Spec == nil || string(rec.Spec.Input) != `{"n":1}` {
				t.Fatalf("round %d: execution %d of %d: %+v, %v", round, n, last, rec, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if last < 100 {
		t.Errorf("only %d were acknowledged", last)
	}
}

// TestChildWritesUpToALimit writes until a write fails, and prints the number of each acknowledged
// commit. A limit on the size of files makes the write fail.
func TestChildWritesUpToALimit(t *testing.T) {
	path := os.Getenv(childPath)
	if path == "" {
		return // runs only as a child of another test
	}
	s := mustOpen(t, path, sqlite.Options{})
	signal.Ignore(syscall.SIGXFSZ)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 400_000, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	n := uint64(1)
	err := submit(s, numbered(n))
	for ; err == nil; err = submit(s, numbered(n)) {
		fmt.Printf("done %d\n", n)
		n++
	}
	if belay.CodeOf(err) != belay.CodeUnavailable || !errors.Is(err, store.ErrBroken) {
		t.Errorf("the commit that failed: %s: %v", belay.CodeOf(err), err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	// The disk works again, but the store still writes nothing, because a repetition of the failed
	// write may seem to succeed although the data is lost.
	for what, err := range map[string]error{"commit": submit(s, numbered(n+1)), "mark": mark(t, s)} {
		if belay.CodeOf(err) != belay.CodeInternal || !errors.Is(err, store.ErrBroken) {
			t.Errorf("%s afterwards: %s: %v", what, belay.CodeOf(err), err)
		}
	}
	if !there(t, s, numbered(1)) {
		t.Error("the execution written before cannot be read")
	}
}

// After a failed write the store is unusable until its process ends, and everything that was
// acknowledged before is in the database.
func TestAFailedWriteBreaksTheStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belay.db")
	cmd, lines := child(t, "TestChildWritesUpToALimit", path)
	last := uint64(0)
	var said []string
	for lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "done %d", &last); err != nil {
			said = append(said, lines.Text())
		}
	}
	if err := cmd.Wait(); err != nil || last == 0 {
		t.Fatalf("after %d: %v\n%s", last, err, strings.Join(said, "\n"))
	}
	s := mustOpen(t, path, sqlite.Options{})
	for n := uint64(1); n <= last; n++ {
		if !there(t, s, numbered(n)) {
			t.Errorf("execution %d of %d is missing", n, last)
		}
	}
	if err := submit(s, numbered(last+5)); err != nil {
		t.Errorf("the next process: %v", err)
	}
}

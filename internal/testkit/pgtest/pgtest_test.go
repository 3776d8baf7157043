package pgtest_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/testkit/pgtest"
)

func query(t *testing.T, s *pgtest.Server, url, sql string) string {
	t.Helper()
	path, _, _ := strings.Cut(url, "?")
	out, err := s.Query(filepath.Base(path), sql)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Databases of one server are separate, and a database that is made from a template has the
// template's content.
func TestDatabasesAreSeparate(t *testing.T) {
	s := pgtest.Shared(t)
	template := func(url string) error {
		path, _, _ := strings.Cut(url, "?")
		_, err := s.Query(filepath.Base(path), "CREATE TABLE known (id int); INSERT INTO known VALUES (1)")
		return err
	}
	a, b, empty := s.From(t, "known", template), s.From(t, "known", template), s.Database(t)
	query(t, s, a, "INSERT INTO known VALUES (2)")
	if n := query(t, s, a, "SELECT count(*) FROM known"); n != "2" {
		t.Errorf("%s rows in the first, want 2", n)
	}
	if n := query(t, s, b, "SELECT count(*) FROM known"); n != "1" {
		t.Errorf("%s rows in the second, want 1", n)
	}
	if n := query(t, s, empty, "SELECT count(*) FROM pg_tables WHERE tablename = 'known'"); n != "0" {
		t.Error("an empty database has the template's table")
	}
}

// A committed row survives a restart and a crash of the server.
func TestServersKeepWhatTheyAcknowledged(t *testing.T) {
	s := pgtest.Start(t, pgtest.Options{})
	url := s.Database(t)
	query(t, s, url, "CREATE TABLE kept (id int)")
	for i, again := range []func() error{s.Restart, func() error { return errors.Join(s.Kill(), s.Resume()) }} {
		query(t, s, url, "INSERT INTO kept VALUES (1)")
		if err := again(); err != nil {
			t.Fatal(err)
		}
		if n := query(t, s, url, "SELECT count(*) FROM kept"); n != strconv.Itoa(i+1) {
			t.Errorf("%s rows after the server came back, want %d", n, i+1)
		}
	}
	if n := query(t, s, url, "SHOW fsync"); n != "on" {
		t.Errorf("fsync is %s", n)
	}
}

// Terminate ends the backends of one database.
func TestTerminateEndsBackends(t *testing.T) {
	s := pgtest.Shared(t)
	url := s.Database(t)
	cmd := exec.Command(s.Binary("psql"), "-X", "-q", "-A", "-t", url)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	if _, err := io.WriteString(in, "SELECT 'here';\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "here\n" {
		t.Fatalf("psql says %q: %v", line, err)
	}
	if n := s.Terminate(t, url); n != 1 {
		t.Errorf("%d backends terminated, want 1", n)
	}
	if _, err := io.WriteString(in, "SELECT 'still here';\n"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err == nil {
		t.Error("psql did not notice")
	}
}

// child is an environment variable: a test sets it in a process that it starts in order to kill it.
const child = "PGTEST_CHILD"

// A server ends when a kill ends its test process.
func TestServersDieWithTheirTest(t *testing.T) {
	if os.Getenv(child) != "" {
		s := pgtest.Start(t, pgtest.Options{NoSync: true})
		dir, err := s.Query("postgres", "SHOW data_directory")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("at " + dir + "\n")
		select {}
	}
	pgtest.Start(t, pgtest.Options{NoSync: true}) // skips the test if there is no server
	cmd := exec.Command(os.Args[0], "-test.run=^TestServersDieWithTheirTest$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(strings.TrimPrefix(line, "at "))
	pidFile, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(pidFile), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	// The test polls, because no event announces that the directory was removed.
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Dir(dir)); errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is still there", dir)
		}
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("postmaster %d is still there", pid)
	}
}

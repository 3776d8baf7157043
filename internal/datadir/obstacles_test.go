package datadir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/socket"
)

// flock takes the lock of a directory like another process.
func flock(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "belay.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the lock is free", func() bool {
		return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
	})
	return f
}

// takeLock ends a host (the process with the engine) and takes the lock before any client of the
// host can take it.
func takeLock(t *testing.T, dir string, h *Host) *os.File {
	t.Helper()
	h.next = "the test" // clients that read this name do not try to take the lock
	closed := make(chan error, 1)
	go func() { closed <- h.Close() }()
	f := flock(t, dir)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	return f
}

// Rule: files that a dead host (the process with the engine) has left do not stop the next host: a
// socket without a listener, a half-made socket, or any other file with the name of the socket.
func TestFilesOfADeadHostAreReplaced(t *testing.T) {
	for name, leave := range map[string]func(path string) error{
		"socket": func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return l.Close()
		},
		"file": func(path string) error { return os.WriteFile(path, []byte("?"), 0o600) },
		"link": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a[b]*")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			fresh := filepath.Join(dir, socket.Fresh+"1")
			for _, path := range []string{filepath.Join(dir, socket.Name), fresh} {
				if err := leave(path); err != nil {
					t.Fatal(err)
				}
			}
			a, b := open(t, dir, "a"), open(t, dir, "b")
			sees(t, b, submit(t, a))
			if hosts(a, b) != 1 {
				t.Error("both host")
			}
			if _, err := os.Lstat(fresh); err == nil {
				t.Error("the half-made socket is still there")
			}
		})
	}
}

// Rule: the path of the directory may be longer than the path of a socket can be.
func TestTheDirectoryMayHaveALongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 200))
	a, b := open(t, dir, "a"), open(t, dir, "b")
	sees(t, b, submit(t, a))
	if hosts(a, b) != 1 {
		t.Error("both host")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	submit(t, b)
	if !b.Hosting() {
		t.Error("the next does not host")
	}
}

// Rule: Open waits for a lock that is released a little later.
func TestOpenWaitsForALockThatIsReleasedLate(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir, "before").Close(); err != nil { // writes its name into the lock file
		t.Fatal(err)
	}
	lock := flock(t, dir)
	opened := make(chan error, 1)
	go func() {
		b, err := Open(t.Context(), dir, Options{Log: quiet})
		if err == nil {
			err = b.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("opened while another process had the lock: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// Rule: the error about an engine that is not shared names the process that runs it.
func TestTheErrorNamesAnEngineThatIsNotShared(t *testing.T) {
	dir := t.TempDir()
	e, err := embedded.Open(t.Context(), "sqlite:"+dir, embedded.Purpose("a program"), embedded.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	o := Options{Patience: 100 * time.Millisecond, Log: quiet}
	_, err = Open(t.Context(), dir, o)
	if want := fmt.Sprintf("process %d (a program)", os.Getpid()); belay.CodeOf(err) != belay.CodeConflict ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("Open: %v", err)
	}
	_, err = OpenHost(t.Context(), dir, o)
	if belay.CodeOf(err) != belay.CodeConflict || !strings.Contains(err.Error(), "a program") {
		t.Errorf("OpenHost: %v", err)
	}
}

// Rule: a process that waits for a data directory soon logs which process has the directory, and
// how long it will wait at most.
func TestAWaitForTheDirectoryIsAnnounced(t *testing.T) {
	dir := t.TempDir()
	e, err := embedded.Open(t.Context(), "sqlite:"+dir, embedded.Purpose("a program"), embedded.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var out bytes.Buffer
	o := Options{Patience: 500 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&out, nil))}
	if _, err := Open(t.Context(), dir, o); belay.CodeOf(err) != belay.CodeConflict {
		t.Errorf("Open: %v", err)
	}
	want := fmt.Sprintf("process %d (a program) has this data directory", os.Getpid())
	n := strings.Count(out.String(), "waiting for the data directory")
	if n != 1 || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "500ms") {
		t.Errorf("it was announced %d times:\n%s", n, &out)
	}
}

// pretend takes the lock of a directory and serves h on its socket, as if this test were the
// process with the engine.
func pretend(t *testing.T, dir string, h http.Handler) {
	t.Helper()
	lock := flock(t, dir)
	l, err := socket.Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-served
		_ = lock.Close()
	})
}

// Rule: if the process that runs the engine of the directory has another version of the protocol,
// the error names that process and its version.
func TestTheErrorNamesAHostOfAnotherVersion(t *testing.T) {
	o := Options{Patience: 2 * time.Second, Log: quiet}
	t.Run("newer", func(t *testing.T) {
		dir := t.TempDir()
		pretend(t, dir, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(socket.Hello{
				Protocol: socket.Protocol + 1, Version: "9.1", PID: 77, Purpose: "belay run",
			})
		}))
		named, o := false, o
		var err error
		// On a busy machine the answer of the pretended host may take longer than the first
		// patience, so the test tries again with more patience.
		for ; !named && o.Patience < time.Minute; o.Patience *= 2 {
			_, err = Open(t.Context(), dir, o)
			named = belay.CodeOf(err) == belay.CodeConflict &&
				strings.Contains(err.Error(), "process 77 (belay run)") && strings.Contains(err.Error(), "Belay 9.1")
		}
		if !named {
			t.Errorf("got %v", err)
		}
	})
	t.Run("something else", func(t *testing.T) {
		dir := t.TempDir()
		pretend(t, dir, http.NotFoundHandler())
		_, err := Open(t.Context(), dir, o)
		if belay.CodeOf(err) != belay.CodeConflict || !strings.Contains(err.Error(), "404") {
			t.Errorf("Open: %v", err)
		}
		if _, err := OpenHost(t.Context(), dir, o); belay.CodeOf(err) != belay.CodeConflict {
			t.Errorf("OpenHost: %v", err)
		}
	})
}

// Rule: if a host (the process with the engine) accepts connections and does not answer, like a
// stopped process, Open and OpenHost wait no longer than the patience, and the error says what to
// do.
func TestAHostThatDoesNotAnswerIsNotWaitedForLonger(t *testing.T) {
	dir := t.TempDir()
	stopped := make(chan struct{})
	pretend(t, dir, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stopped }))
	defer close(stopped)
	_, err := Open(t.Context(), dir, Options{Patience: 50 * time.Millisecond, Log: quiet})
	if belay.CodeOf(err) != belay.CodeConflict && belay.CodeOf(err) != belay.CodeUnavailable {
		t.Errorf("got %v", err)
	}
	// With this patience, Open and OpenHost wait long enough to find out that the process with the
	// engine does not answer.
	o := Options{Patience: socket.Greeting + 200*time.Millisecond, Log: quiet}
	_, err = Open(t.Context(), dir, o)
	_, hostErr := OpenHost(t.Context(), dir, o)
	for what, err := range map[string]error{"Open": err, "OpenHost": hostErr} {
		if belay.CodeOf(err) != belay.CodeConflict || !strings.Contains(err.Error(), "does not answer") ||
			!strings.Contains(err.Error(), "Ctrl-Z") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Rule: Open fails at once if the store cannot be opened.
func TestOpenFailsAtOnceIfTheStoreCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "belay.db"), []byte(strings.Repeat("this is no database ", 100)),
		0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := Open(t.Context(), dir, Options{Patience: time.Minute, Log: quiet})
	if err == nil || time.Since(began) > 30*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	flock(t, dir).Close() // Open has released the lock
}

package datadir

import (
	"encoding/json"
	"fmt"
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

// flock takes the lock of a directory as a process that is not of ours would.
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

// stand ends a host and takes its lock, quicker than anybody else.
func stand(t *testing.T, dir string, h *Host) *os.File {
	t.Helper()
	h.next = "the test" // whoever is told leaves the lock alone
	closed := make(chan error, 1)
	go func() { closed <- h.Close() }()
	f := flock(t, dir)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	return f
}

// Rule: what a dead host leaves is not in the way: a socket that nobody listens
// on, one half made, or anything else of that name.
func TestWhatADeadHostLeaves(t *testing.T) {
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
				t.Error("what was half made is still there")
			}
		})
	}
}

// Rule: the path of the directory may be longer than that of a socket.
func TestADeepDirectory(t *testing.T) {
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

// Rule: a lock that is free a little later is waited for.
func TestALockThatIsReleasedLate(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir, "before").Close(); err != nil { // stands in the lock file
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
		t.Fatalf("opened while the lock was held: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// Rule: an engine that is not shared is named, and so is what can be done.
func TestAnEngineThatIsNotShared(t *testing.T) {
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

// pretend serves the socket of a directory in place of a host, whose lock it has.
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

// Rule: a host that shares in another way is told apart from none, and named.
func TestAHostOfAnotherVersion(t *testing.T) {
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
		// a busy machine may hear nothing in so short a time
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

// Rule: a host that takes connections and does not answer, as one that was
// stopped, is not waited for longer than the patience.
func TestAHostThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	stopped := make(chan struct{})
	pretend(t, dir, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stopped }))
	defer close(stopped)
	_, err := Open(t.Context(), dir, Options{Patience: 50 * time.Millisecond, Log: quiet})
	if belay.CodeOf(err) != belay.CodeConflict && belay.CodeOf(err) != belay.CodeUnavailable {
		t.Errorf("got %v", err)
	}
	o := Options{Patience: socket.Greeting + 200*time.Millisecond, Log: quiet} // long enough to know
	_, err = Open(t.Context(), dir, o)
	_, hostErr := OpenHost(t.Context(), dir, o)
	for what, err := range map[string]error{"Open": err, "OpenHost": hostErr} {
		if belay.CodeOf(err) != belay.CodeConflict || !strings.Contains(err.Error(), "does not answer") ||
			!strings.Contains(err.Error(), "Ctrl-Z") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Rule: a store that cannot be opened is an answer, at once.
func TestAStoreThatCannotBeOpened(t *testing.T) {
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
	flock(t, dir).Close() // nobody has kept the lock
}

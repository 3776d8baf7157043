package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// roleEnv is the environment variable that makes the test binary run as another process of a test.
const roleEnv = "REGISTRY_ROLE"

// roles are the programs that the test binary can run as, by name. A role gets the data directory
// and further arguments.
var roles = map[string]func(dir string, args []string) error{
	"swap": swapUntilKilled, "crash": crashAt, "lock": lockUntilKilled,
}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(roleEnv)]; role != nil {
		if err := role(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// role returns a command that runs the test binary in a role.
func role(t *testing.T, name, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{dir}, args...)...)
	cmd.Env = append(os.Environ(), roleEnv+"="+name, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// started starts a role and waits until it has printed a line.
func started(t *testing.T, name, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := role(t, name, dir, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the process says nothing: %v", err)
	}
	return cmd
}

// end kills a process and waits for its end.
func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// forever says that the role has come to its end, and waits to be killed.
func forever() {
	fmt.Println("ready")
	for {
		_ = syscall.Pause()
	}
}

// swapUntilKilled is a role that begins a swap to the recipe args[0].
func swapUntilKilled(dir string, args []string) error {
	r, err := Open(dir)
	if err != nil {
		return err
	}
	if _, err := r.Begin(context.Background(), args[0]); err != nil {
		return err
	}
	forever()
	return nil
}

// lockUntilKilled is a role that acquires the lock of the registry.
func lockUntilKilled(dir string, _ []string) error {
	r, err := Open(dir)
	if err != nil {
		return err
	}
	return r.withLock(context.Background(), func(*change) error {
		forever()
		return nil
	})
}

// bystander starts a process that does nothing, and returns its identity.
func bystander(t *testing.T) (*exec.Cmd, Process) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(cmd) })
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, p
}

func open(t *testing.T) *Registry {
	t.Helper()
	r, err := Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func register(t *testing.T, r *Registry, q Registration) Workflow {
	t.Helper()
	w, err := r.Register(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func begin(t *testing.T, r *Registry, recipe string) *Swap {
	t.Helper()
	s, err := r.Begin(t.Context(), recipe)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unlock(s.lock) })
	return s
}

// list returns the state, which must have been saved.
func list(t *testing.T, r *Registry) State {
	t.Helper()
	s, err := r.List(t.Context())
	if err == nil {
		err = s.Unsaved
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func names(s State) string {
	var all []string
	for _, w := range s.Workflows {
		all = append(all, w.Name)
	}
	return strings.Join(all, " ")
}

// events returns the kinds of the events in the log.
func events(t *testing.T, r *Registry) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.path, logName))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var kinds []string
	for line := range strings.Lines(string(data)) {
		var e Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("the log has the line %q: %v", line, err)
		}
		if e.At.IsZero() {
			t.Errorf("an event without a time: %s", line)
		}
		kinds = append(kinds, string(e.Kind))
	}
	return strings.Join(kinds, " ")
}

func wantCode(t *testing.T, err error, code belay.Code) {
	t.Helper()
	if err == nil || belay.CodeOf(err) != code {
		t.Fatalf("the error is %v, want one of the code %s", err, code)
	}
}

// clock is a clock that a test sets.
type clock struct {
	wall time.Time
	boot time.Duration
}

// under makes the registry use a clock that begins at the present time.
func under(r *Registry) *clock {
	c := &clock{wall: r.wall(), boot: r.boot()}
	r.wall = func() time.Time { return c.wall }
	r.boot = func() time.Duration { return c.boot }
	return c
}

func (c *clock) pass(d time.Duration) { c.wall, c.boot = c.wall.Add(d), c.boot+d }

package test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait whose length the test does not measure. It is longer than any of
// belay's own time limits.
const patience = 150 * time.Second

// place is the directory of one test, in which belay works: it contains a home, a data directory
// and a working directory.
type place struct {
	t    *testing.T
	root string
	data string
	cwd  string
	as   int      // the user id that belay runs as; 0 for the user of the test
	more []string // further environment variables of belay and of the roles
}

func newPlace(t *testing.T) *place {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// jobs may run as other users, which must be able to enter the directory above root
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, root: root, data: filepath.Join(root, "data"), cwd: filepath.Join(root, "cwd")}
	for _, dir := range []string{"home", "tmp", "cwd"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// path returns the path of a file in the test's directory.
func (p *place) path(name string) string { return filepath.Join(p.root, name) }

// environment returns the environment of belay, which contains no settings of the
// developer.
func (p *place) environment(more ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + p.path("home"), "TMPDIR=" + p.path("tmp"), "LANG=C.UTF-8",
		"BELAY_DATA=" + p.data,
	}, slices.Concat(p.more, more)...)
}

// command returns a belay command that has not been started.
func (p *place) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary(p.t), args...)
	cmd.Dir, cmd.Env = p.cwd, p.environment()
	if p.as != 0 {
		cmd.Path = p.give()
		cmd.Args[0] = cmd.Path
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.as), Gid: uint32(p.as)}}
	}
	return cmd
}

// give makes the user as whom the test runs belay the owner of all files in the test's directory.
// It returns the path of a copy of the binary that this user may run.
func (p *place) give() string {
	p.t.Helper()
	own := filepath.Join(filepath.Dir(p.root), "belay")
	if !exists(own) {
		raw, err := os.ReadFile(binary(p.t))
		if err == nil {
			err = os.WriteFile(own, raw, 0o755)
		}
		if err = errors.Join(err, os.Chmod(filepath.Dir(p.root), 0o755)); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := filepath.WalkDir(p.root, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(path, p.as, p.as)
		}
		if os.IsNotExist(err) { // a running job has removed the file
			return nil
		}
		return err
	}); err != nil {
		p.t.Fatal(err)
	}
	return own
}

// belay runs a command line to its end.
func (p *place) belay(args ...string) result {
	p.t.Helper()
	return p.start(p.command(args...)).wait(patience)
}

// run runs the command belay run with these arguments, and waits for its end.
func (p *place) run(args ...string) result {
	p.t.Helper()
	return p.belay(append([]string{"run"}, args...)...)
}

// started is a process that a test has started.
type started struct {
	t        *testing.T
	cmd      *exec.Cmd
	began    time.Time
	out, err transcript
	done     chan struct{}
	end      error
	took     time.Duration
}

// bare are the flags that let a job write into a directory that the test reads, even if belay runs
// as root.
var bare = []string{"--agent-users", "none", "--agent-seal=false"}

// start starts a command in its own process group, as a shell does.
func (p *place) start(cmd *exec.Cmd) *started {
	p.t.Helper()
	return p.startInto(cmd, nil)
}

// startInto starts a command whose standard output goes to out.
func (p *place) startInto(cmd *exec.Cmd, out io.Writer) *started {
	p.t.Helper()
	x := &started{t: p.t, cmd: cmd, done: make(chan struct{}), began: time.Now()}
	cmd.Stdout, cmd.Stderr = &x.out, &x.err
	if out != nil {
		cmd.Stdout = out
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	// If another process still has the output open 10 s after the end of cmd, cmd.Wait returns an
	// error, and so the test notices a process that was left behind.
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", line(cmd), err)
	}
	go func() {
		x.end = cmd.Wait()
		x.took = time.Since(x.began)
		close(x.done)
	}()
	p.t.Cleanup(func() {
		if !x.ended() {
			_ = cmd.Process.Kill()
			<-x.done
		}
	})
	return x
}

func line(cmd *exec.Cmd) string {
	text := strings.Join(append([]string{filepath.Base(cmd.Path)}, cmd.Args[1:]...), " ")
	if len(text) > 400 {
		text = text[:400] + "…"
	}
	return text
}

func (x *started) ended() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

// signal sends a signal to this process only.
func (x *started) signal(sig syscall.Signal) {
	x.t.Helper()
	if err := x.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		x.t.Fatalf("send %s to %s: %v", sig, line(x.cmd), err)
	}
}

// ctrlC sends SIGINT to the process group, as a terminal does.
func (x *started) ctrlC() {
	x.t.Helper()
	if err := syscall.Kill(-x.cmd.Process.Pid, syscall.SIGINT); err != nil {
		x.t.Fatalf("interrupt %s: %v", line(x.cmd), err)
	}
}

// wait waits for the end of the process and of its output.
func (x *started) wait(within time.Duration) result {
	x.t.Helper()
	select {
	case <-x.done:
	case <-time.After(within):
		x.t.Fatalf("%s has not ended within %s\n%s", line(x.cmd), within, x.dump())
	}
	if errors.Is(x.end, exec.ErrWaitDelay) {
		x.t.Fatalf("%s has ended, but a process that it left behind keeps its output open\n%s", line(x.cmd), x.dump())
	}
	r := result{
		t: x.t, line: line(x.cmd), out: x.out.String(), err: x.err.String(), took: x.took, state: x.cmd.ProcessState,
	}
	r.code = r.state.ExitCode()
	if status, ok := r.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.code = 128 + int(status.Signal())
	}
	return r
}

// says waits until the process has written a text to its standard error.
func (x *started) says(text string) {
	x.t.Helper()
	x.until("the process says "+text, func() bool { return strings.Contains(x.err.String(), text) })
}

// until waits for a condition while the process runs.
func (x *started) until(what string, happened func() bool) {
	x.t.Helper()
	if !poll(patience, func() bool { return happened() || x.ended() }) || !happened() {
		x.t.Fatalf("%s: timed out before: %s\n%s", line(x.cmd), what, x.dump())
	}
}

func (x *started) dump() string {
	state := "the process runs"
	if x.ended() {
		state = fmt.Sprintf("the process has ended: %v", x.cmd.ProcessState)
	}
	return fmt.Sprintf("%s\nstdout:\n%s\nstderr:\n%s", state, clip(x.out.String()), clip(x.err.String()))
}

// clip shortens a long output to its beginning and its end.
func clip(s string) string {
	const most = 6000
	if len(s) > most {
		s = s[:most/2] + fmt.Sprintf("\n… %d bytes …\n", len(s)-most) + s[len(s)-most/2:]
	}
	return strings.ToValidUTF8(s, "?")
}

// result is the exit code and the output of a process that has ended.
type result struct {
	t        *testing.T
	line     string
	code     int // the exit code, or 128+n if signal n ended the process
	out, err string
	took     time.Duration
	state    *os.ProcessState
}

func (r result) String() string {
	return fmt.Sprintf("%s\nexit code %d after %s\nstdout:\n%s\nstderr:\n%s", r.line, r.code,
		r.took.Round(time.Millisecond), clip(r.out), clip(r.err))
}

// want checks the exit code.
func (r result) want(code int) result {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("exit code %d, want %d\n%s", r.code, code, r)
	}
	return r
}

// showing checks that standard output contains these texts.
func (r result) showing(texts ...string) result {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.out, text) {
			r.t.Errorf("standard output does not contain %q\n%s", text, r)
		}
	}
	return r
}

// saying checks that standard error contains these texts.
func (r result) saying(texts ...string) result {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.err, text) {
			r.t.Fatalf("standard error does not contain %q\n%s", text, r)
		}
	}
	return r
}

// poll checks a condition again and again until it is true. It returns false if the condition is
// not true within the given time.
func poll(within time.Duration, happened func() bool) bool {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		if happened() {
			return true
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return happened()
		}
	}
}

// until waits for a condition, and fails the test if the condition does not become true in time.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	if !poll(patience, happened) {
		t.Fatalf("timed out before: %s", what)
	}
}

// after waits for a fixed time; it returns false if the process ends earlier.
func (x *started) after(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-x.done:
		return false
	case <-timer.C:
		return true
	}
}

// transcript collects output while it arrives.
type transcript struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.Write(b)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.String()
}

//go:build linux

package process

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/host"
	"github.com/google/go-cmp/cmp"
)

// Rule: Result.Code is the exit code that a shell would return, and Result.Isolation is the kind of
// isolation of the run.
func TestExitCode(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		for _, tt := range []struct {
			script string
			code   int
			signal syscall.Signal
		}{
			{"exit 0", 0, 0},
			{"exit 3", 3, 0},
			{"exit 255", 255, 0},
			{"kill -TERM $$", 143, syscall.SIGTERM},
			{"kill -KILL $$", 137, syscall.SIGKILL},
			{"kill -INT $$", 130, syscall.SIGINT},
		} {
			c, _ := shell(t, kind, tt.script)
			r, err := Run(t.Context(), c)
			if err != nil || r.Code != tt.code || r.Signal != tt.signal {
				t.Errorf("%s: code %d, signal %d, error %v; want %d, %d", tt.script, r.Code, r.Signal, err, tt.code,
					tt.signal)
			}
			if r.Isolation != kind || r.TimedOut || r.Cancelled || r.Duration <= 0 || r.Usage.MaxRSS <= 0 {
				t.Errorf("%s: %+v", tt.script, r)
			}
			noneLeft(t, c.ID)
		}
	})
}

// Rule: if a command cannot be executed, Start returns a StartError with the exit code that a shell
// would return, and leaves no process.
func TestCommandThatCannotRun(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"no-such-command"}, 127, "command not found"},
		{[]string{"./no-such-file"}, 127, "no such file"},
		{[]string{"/no/such/file", "x"}, 127, "no such file"},
		{[]string{file("plain", "#!/bin/sh\n", 0o644)}, 126, "not executable"},
		{[]string{"plain"}, 126, "not executable"},
		{[]string{dir}, 126, "not executable"},
		{[]string{file("script", "exit 0\n", 0o755)}, 126, "neither a program nor a script"},
		{[]string{file("lost", "#!/no/such/shell\n", 0o755)}, 126, "interpreter"},
	} {
		each(t, func(t *testing.T, kind Isolation) {
			c := Command{
				ID: id(t), Args: tt.args, Dir: dir, Isolation: kind, Env: map[string]string{
					"PATH": "rel:" + dir + ":/bin",
				},
			}
			_, err := Start(t.Context(), c)
			var start *StartError
			if !errors.As(err, &start) || start.Code != tt.code || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q: %v, want code %d and %q", tt.args, err, tt.code, tt.want)
			}
			noneLeft(t, c.ID)
		})
	}
	c := Command{ID: id(t), Args: []string{"true"}, Dir: filepath.Join(dir, "gone")}
	if _, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "working directory") {
		t.Errorf("missing directory: %v", err)
	}
}

// Rule: Start refuses an invalid Command before it starts anything.
func TestInvalidCommand(t *testing.T) {
	good := Command{ID: "r", Args: []string{"true"}, Dir: "/"}
	if _, err := Start(t.Context(), Command{ID: "r", Dir: "/"}); !errors.Is(err, ErrNoCommand) {
		t.Errorf("no command: %v", err)
	}
	for want, change := range map[string]func(c *Command){
		"no command given":             func(c *Command) { c.Args = []string{"", "x"} },
		`run id ""`:                    func(c *Command) { c.ID = "" },
		`run id "a/b"`:                 func(c *Command) { c.ID = "a/b" },
		"not an absolute path":         func(c *Command) { c.Dir = "tmp" },
		"NUL byte":                     func(c *Command) { c.Args = []string{"echo", "a\x00b"} },
		"unknown isolation":            func(c *Command) { c.Isolation = "chroot" },
		"never inherited":              func(c *Command) { c.Inherit = []string{"GIT_DIR"} },
		"not the name":                 func(c *Command) { c.Env = map[string]string{"A=B": "c"} },
		"mark of the run":              func(c *Command) { c.Env = map[string]string{Marker: "x"} },
		"the value contains":           func(c *Command) { c.Env = map[string]string{"A": "\x00"} },
		"working directory \"/\\x00\"": func(c *Command) { c.Dir = "/\x00" },
	} {
		c := good
		change(&c)
		if _, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

// Rule: a command inherits only the variables that its Command names: no other variable, no open
// file, no terminal, no capability, and not the working directory.
func TestNothingIsInherited(t *testing.T) {
	for _, name := range []string{"CANARY", "GIT_DIR", "GIT_CONFIG_COUNT", "BELAY_STORE", "HOME", "LD_PRELOAD_NOT"} {
		t.Setenv(name, "leak")
	}
	t.Setenv("WANTED", "yes")
	leak, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	// This copy of the descriptor survives exec, as if a program had left a file open by mistake.
	fd, err := syscall.Dup(int(leak.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	for _, kind := range isolations() {
		c, out := shell(t, kind, "/usr/bin/env; ls /proc/self/fd | tr '\\n' ' '; echo; cut -d' ' -f7 "+
			"/proc/$$/stat; grep -E '^(CapInh|NoNewPrivs)' /proc/self/status; pwd")
		c.Inherit = []string{"WANTED", "UNSET"}
		c.Env = map[string]string{"PATH": "/usr/bin:/bin", "GIVEN": "a\nb"}
		if _, err := Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		want := Marker + "=" + c.ID + "\nGIVEN=a\nb\nPATH=/usr/bin:/bin\nWANTED=yes\nPWD=" + c.Dir +
			"\n0 1 2 3 \n0\nCapInh:\t0000000000000000\nNoNewPrivs:\t1\n" + c.Dir + "\n"
		if diff := cmp.Diff(sorted(want), sorted(out.String())); diff != "" {
			t.Errorf("%s: environment and files (-want +got):\n%s", kind, diff)
		}
	}
}

func sorted(text string) []string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		for j := i; j > 0 && lines[j-1] > line; j-- {
			lines[j], lines[j-1] = lines[j-1], line
		}
	}
	return lines
}

// Rule: Output receives standard output and standard error completely, each with its own stream
// number. If the command waits between its writes, Output receives them in the order of writing.
func TestOutputInOrder(t *testing.T) {
	c, out := shell(t, Auto, "for i in 1 2 3 4 5; do echo o$i; read x <o$i; echo e$i >&2; read x <e$i; done")
	for _, n := range "12345" {
		for _, s := range []string{"o", "e"} {
			if err := syscall.Mkfifo(filepath.Join(c.Dir, s+string(n)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.Output = func(ctx context.Context, chunk Chunk) error {
		out.take(ctx, chunk)
		acknowledge := filepath.Join(c.Dir, strings.TrimSpace(string(chunk.Data)))
		return os.WriteFile(acknowledge, []byte("\n"), 0)
	}
	if _, err := wait(t, begin(t, t.Context(), c)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("o1\ne1\no2\ne2\no3\ne3\no4\ne4\no5\ne5\n", out.String()); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("e1\ne2\ne3\ne4\ne5\n", out.stderr.String()); diff != "" {
		t.Errorf("stderr (-want +got):\n%s", diff)
	}
}

// Rule: the input and the output of a command may contain any bytes, and arrive unchanged.
func TestBinaryThroughStdin(t *testing.T) {
	data := make([]byte, 1<<20)
	state := uint32(1)
	for i := range data {
		state = state*1664525 + 1013904223
		data[i] = byte(state >> 24)
	}
	each(t, func(t *testing.T, kind Isolation) {
		c, out := shell(t, kind, "cat")
		c.Stdin = data
		if r, err := Run(t.Context(), c); err != nil || r.Code != 0 || r.OutputCut {
			t.Fatalf("%+v, %v", r, err)
		}
		if !bytes.Equal(out.stdout.Bytes(), data) {
			t.Errorf("%d bytes came back changed as %d", len(data), out.stdout.Len())
		}
	})
}

// Rule: a command that does not read its input is not delayed. If no input is given, the command
// reads an empty file.
func TestUnreadStdin(t *testing.T) {
	c, _ := shell(t, Auto, "exit 4")
	c.Stdin = make([]byte, 4<<20)
	if r, err := Run(t.Context(), c); err != nil || r.Code != 4 {
		t.Errorf("unread input: %+v, %v", r, err)
	}
	c, out := shell(t, Auto, "wc -c; echo end")
	if r, err := Run(t.Context(), c); err != nil || r.Code != 0 || !strings.Contains(out.String(), "0\nend") {
		t.Errorf("no input: %q, %+v, %v", out, r, err)
	}
}

// Rule: output of any size needs only a bounded amount of memory. A slow Output makes the command
// wait, and no output is lost.
func TestHugeOutputInBoundedMemory(t *testing.T) {
	const size = 100 << 20
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	sum, total, most := sha256.New(), 0, uint64(0)
	c := Command{
		ID: id(t), Dir: "/", Args: []string{"head", "-c", strconv.Itoa(size), "/dev/zero"},
		Output: func(_ context.Context, chunk Chunk) error {
			sum.Write(chunk.Data)
			if total += len(chunk.Data); total%(8<<20) < len(chunk.Data) {
				runtime.ReadMemStats(&during)
				most = max(most, during.HeapAlloc)
			}
			return nil
		},
	}
	r, err := Run(t.Context(), c)
	if err != nil || r.Code != 0 || r.OutputCut {
		t.Fatalf("%+v, %v", r, err)
	}
	if total != size {
		t.Errorf("%d bytes arrived, want %d", total, size)
	}
	want := sha256.New()
	for range 100 {
		want.Write(make([]byte, 1<<20))
	}
	if !bytes.Equal(sum.Sum(nil), want.Sum(nil)) {
		t.Error("the bytes are not those that were written")
	}
	if grown := int64(most) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// Rule: a command can run as another user. It then cannot signal its supervisor.
func TestAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start processes as another user")
	}
	for _, kind := range []Isolation{PIDNamespace, Subreaper} {
		c, out := shell(t, kind, "id -u; id -g; id -G; kill -9 $PPID && echo killed")
		c.Dir = "/"
		c.User = &host.User{UID: 65534, GID: 65533}
		if r, err := Run(t.Context(), c); err != nil || r.Code == 0 {
			t.Errorf("%s: %+v, %v", kind, r, err)
		}
		if diff := cmp.Diff("65534\n65533\n65533\n", out.stdout.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

// Rule: Auto uses the strongest kind of isolation that works on this machine. If the Command
// requires a kind that does not work, Start returns an error that names that kind.
func TestIsolationIsChosenByTrying(t *testing.T) {
	c, _ := shell(t, Auto, "true")
	r, err := Run(t.Context(), c)
	if err != nil || r.Isolation == Auto {
		t.Errorf("%+v, %v", r, err)
	}
	if os.Geteuid() != 0 {
		c, _ := shell(t, PIDNamespace, "true")
		if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "no pid namespace here") {
			t.Errorf("forced without the right to it: %v", err)
		}
	}
}

// Rule: in its own PID namespace a command sees only processes of its run.
func TestNamespaceHidesTheHost(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, out := shell(t, kind, "ls -d /proc/[0-9]* 2>/dev/null | wc -l; test -d /proc/"+strconv.Itoa(os.Getpid())+
			"/task && echo seen")
		if _, err := Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		count, _ := strconv.Atoi(strings.Fields(out.String())[0])
		if hidden := count < 8; hidden != (kind != Subreaper) {
			t.Errorf("the command sees %d processes: %q", count, out)
		}
	})
}

// Rule: if the context has already ended, Start starts nothing.
func TestEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	c, _ := shell(t, Auto, "true")
	if _, err := Start(ctx, c); !errors.Is(err, errTest) {
		t.Errorf("start: %v", err)
	}
	noneLeft(t, c.ID)
}

// Rule: the timeout begins at the start of the command. A command that ends before its timeout is
// not reported as timed out.
func TestTimeout(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, _ := shell(t, kind, "sleep "+unique())
		c.Timeout = 100 * time.Millisecond
		r, err := Run(t.Context(), c)
		if !errors.Is(err, ErrTimedOut) || !r.TimedOut || r.Cancelled || r.Code != 143 {
			t.Errorf("%+v, %v", r, err)
		}
		if r.Duration < c.Timeout {
			t.Errorf("ended after %s, before its timeout", r.Duration)
		}
		noneLeft(t, c.ID)
		c, _ = shell(t, kind, "exit 1")
		c.Timeout = time.Minute
		if r, err := Run(t.Context(), c); err != nil || r.TimedOut || r.Code != 1 {
			t.Errorf("in time: %+v, %v", r, err)
		}
	})
}

// BenchmarkRun measures how long a supervised run of a command takes, and how long the command
// takes without a supervisor.
func BenchmarkRun(b *testing.B) {
	for _, kind := range isolations() {
		b.Run(strings.ReplaceAll(string(kind), " ", "-"), func(b *testing.B) {
			for b.Loop() {
				c := Command{ID: "bench", Args: []string{"/bin/true"}, Dir: "/", Isolation: kind}
				if _, err := Run(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("without", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain also lets the test binary run as the process that a test examines, in a PID namespace of
// its own.
func TestMain(m *testing.M) {
	if os.Getenv("HOST_TEST_IDENTIFY") != "" {
		p, err := Self()
		answer := map[string]any{"process": p, "error": fmt.Sprint(err), "init": (Process{
			BootID: p.BootID, PIDNamespace: p.PIDNamespace, PID: 1, Start: 1,
		}).State(p)}
		json.NewEncoder(os.Stdout).Encode(answer)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// start runs a process that lives until the test ends it.
func start(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// until polls for a condition that must come true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

func self(t *testing.T) Process {
	t.Helper()
	p, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Rule: a process is alive while it runs, and dead as soon as only a zombie or no entry in the
// process table remains.
func TestStateFollowsAProcessToItsEnd(t *testing.T) {
	me := self(t)
	if got := me.State(me); got != Alive {
		t.Fatalf("this process is %s", got)
	}
	cmd := start(t)
	child, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if got := child.State(me); got != Alive {
		t.Fatalf("a running child is %s", got)
	}
	if err := child.Signal(me, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the killed child, not waited for, is dead", func() bool { return child.State(me) == Dead })
	cmd.Wait()
	if got := child.State(me); got != Dead {
		t.Errorf("a child that was waited for is %s", got)
	}
	if err := child.Signal(me, syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal to a dead process: %v", err)
	}
	if _, err := Identify(cmd.Process.Pid); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("identify a dead process: %v", err)
	}
}

// Rule: if a process has ended and its number belongs to another process, State returns Dead for
// the ended process, and a signal to it never reaches the other process.
func TestAReusedNumberIsAnotherProcess(t *testing.T) {
	me := self(t)
	cmd := start(t)
	other, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	former := other
	former.Start--
	if got := former.State(me); got != Dead {
		t.Errorf("the former holder of the number is %s", got)
	}
	if err := former.Signal(me, syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal to the former holder: %v", err)
	}
	if got := other.State(me); got != Alive {
		t.Errorf("the other process is %s after a signal to the former holder", got)
	}
}

// Rule: if a process in a PID namespace sees the /proc of the outer namespace, its State returns
// Unknown, because /proc shows other processes under the same numbers.
func TestProcOfAnotherNamespaceProvesNothing(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"HOST_TEST_IDENTIFY=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	out, err := cmd.Output()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this machine allows no PID namespace")
	}
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Process Process
		Error   string
		Init    Liveness
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(answer.Error, "another PID namespace") || answer.Process.PIDNamespace != 0 {
		t.Errorf("identified itself as %+v, error %q", answer.Process, answer.Error)
	}
	if answer.Init != Unknown {
		t.Errorf("another process is %s", answer.Init)
	}
}

// Rule: FindEnv finds exactly the processes with the variable, each with an identity that a signal
// can use.
func TestFindEnv(t *testing.T) {
	const key = "HOST_TEST_MARK"
	mark := fmt.Sprintf("m%d-%d", os.Getpid(), time.Now().UnixNano())
	a := start(t, "PATH=/bin", key+"="+mark+"-a")
	b := start(t, key+"="+mark+"-b")
	start(t, "NOT_"+key+"="+mark)
	start(t)
	find := func() map[int]string {
		list, err := FindEnv(key, func(v string) bool { return strings.HasPrefix(v, mark) })
		if err != nil {
			t.Fatal(err)
		}
		me, got := self(t), map[int]string{}
		for _, f := range list {
			got[f.PID] = f.Value
			if f.State(me) != Alive {
				t.Errorf("%s is %s", f.Process, f.State(me))
			}
		}
		return got
	}
	// A child has its parent's environment until it has started its program.
	until(t, "both marked processes are found", func() bool { return len(find()) == 2 })
	got := find()
	if got[a.Process.Pid] != mark+"-a" || got[b.Process.Pid] != mark+"-b" {
		t.Errorf("found %v, want %d and %d", got, a.Process.Pid, b.Process.Pid)
	}
}

// Rule: the process table contains a child of this process, with this process as its parent.
func TestProcesses(t *testing.T) {
	child := start(t)
	table, err := Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Descendants(table, os.Getpid()) {
		if s.PID == child.Process.Pid && s.Parent == os.Getpid() && s.Start > 0 && !s.Ended() {
			return
		}
	}
	t.Errorf("child %d is not in the table", child.Process.Pid)
}

// Rule: the command of a process, which the process chooses itself, cannot shift the fields of the
// status line that prove its identity.
func TestParseStat(t *testing.T) {
	const fields = " 1 7 7 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 3 0 8154 5000000 200 1844"
	for _, command := range []string{"sh", "", "a b", ") Z 9 (", "(((", ")))", "x\ny) S 1 1"} {
		s, err := parseStat("42 (" + command + ") S" + fields)
		if err != nil {
			t.Errorf("command %q: %v", command, err)
			continue
		}
		if want := (Status{PID: 42, Parent: 1, State: 'S', Threads: 3, Start: 8154}); s != want {
			t.Errorf("command %q: %+v, want %+v", command, s, want)
		}
	}
}

// Rule: every status line is parsed or refused, without a panic.
func FuzzParseStat(f *testing.F) {
	f.Add("42 (sh) S 1 7 7 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 3 0 8154 5000000")
	f.Add(") (")
	f.Add("1 () ")
	f.Add("0()\x00 2 0 0 0 0 0 0 0 0 0 1 2 0 0 0 0 3 0 4 0")
	f.Fuzz(func(t *testing.T, line string) {
		if s, err := parseStat(line); err == nil && s.State == 0 {
			t.Errorf("%q was read as %+v", line, s)
		}
	})
}

// Rule: a process whose leader thread has ended while its other threads run is not proven dead.
func TestZombieLeaderWithThreadsHasNotEnded(t *testing.T) {
	if (Status{State: 'Z', Threads: 2}).Ended() {
		t.Error("a zombie leader with a living thread counts as ended")
	}
	if !(Status{State: 'Z', Threads: 1}).Ended() {
		t.Error("a zombie does not count as ended")
	}
}

// Rule: the boot clock only moves forward.
func TestBoottime(t *testing.T) {
	a := Boottime()
	b := Boottime()
	if a <= 0 || b < a {
		t.Errorf("read %s, then %s", a, b)
	}
}

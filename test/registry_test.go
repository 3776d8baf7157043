package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// codeAgain is the exit code of a command that may succeed later, and of a lost lease.
const codeAgain = 75

// registered is the state that belay registry ls -o json prints.
type registered struct {
	Workflows []struct {
		Name, Recipe string
		OwnerPID     int    `json:"owner_pid"`
		OwnerStart   uint64 `json:"owner_start_ns"`
		Signal       string `json:"preempt_signal_path"`
		Asked        bool   `json:"preempt_requested"`
	}
	Swap *struct {
		Target    string `json:"target_recipe"`
		GrantedAt string `json:"granted_at"`
	} `json:"swap_in_progress"`
	Quarantined *struct{ File string }
	Unsaved     string
}

func (p *place) registry() (s registered) {
	p.t.Helper()
	r := p.belay("registry", "ls", "-o", "json").want(0)
	if err := json.Unmarshal([]byte(r.out), &s); err != nil {
		p.t.Fatalf("%v\n%s", err, r)
	}
	return s
}

// swapEvents returns the kinds of the events in the log of swaps.
func (p *place) swapEvents() string {
	p.t.Helper()
	var kinds []string
	for _, m := range regexp.MustCompile(`"event": ?"(\w+)"`).FindAllStringSubmatch(
		read(p.t, filepath.Join(p.data, "swap_log.jsonl")), -1) {
		kinds = append(kinds, m[1])
	}
	return strings.Join(kinds, " ")
}

// workflow starts a workflow with belay registry exec whose command prints the word ready.
func (p *place) workflow(script string, flags ...string) *started {
	p.t.Helper()
	x := p.start(p.command(append(append([]string{"registry", "exec"}, flags...), "--", "sh", "-c", script)...))
	x.shows("ready")
	return x
}

// Rule: belay registry exec registers its command while it runs, passes on its exit code, its
// streams and its variables, and releases the entry.
func TestRegistryExec(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	cmd := p.command("registry", "exec", "--name", "n", "--recipe", "a", "--preemptible", "--", "sh", "-c",
		`cat; echo "$BELAY_REGISTRY_NAME"; echo "$BELAY_PREEMPT_SIGNAL"; echo err >&2; "$0" registry ls -o json; exit 7`,
		binary(t))
	cmd.Stdin = strings.NewReader("input\n")
	r := p.start(cmd).wait(patience).want(7).saying("err")
	signal := filepath.Join(p.data, "signals") + "/n-"
	r.showing("input\nn\n"+signal, `"name": "n"`)
	if s := p.registry(); len(s.Workflows) != 0 {
		t.Errorf("left: %+v", s)
	}
	p.belay("registry", "exec", "--name", "n", "--recipe", "a", "--", "no-such-command").want(127)
	if s := p.registry(); len(s.Workflows) != 0 {
		t.Errorf("left after a command that does not exist: %+v", s)
	}
}

// Rule: if belay registry exec is killed, all processes of its command are killed, and the entry
// stays until they have ended.
func TestTheCommandDiesWithItsRegistration(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.workflow("sleep 600 & echo child $!; echo ready; wait", "--name", "n", "--recipe", "a")
	var child int
	if _, err := fmt.Sscanf(x.out.String(), "child %d", &child); err != nil {
		t.Fatal(err)
	}
	until(t, "the supervisor of the command is the owner", func() bool {
		return p.registry().Workflows[0].OwnerPID != x.cmd.Process.Pid
	})
	x.kill()
	swap := p.belay("swap", "--to", "b", "--wait", "60s", "--", "true").want(0)
	if err := syscall.Kill(child, 0); err == nil {
		t.Errorf("the command's child lives although a swap was granted\n%s", swap)
	}
}

// Rule: the command of a workflow whose entry is lost is killed.
func TestTheCommandOfALostEntryIsKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.workflow("echo ready; exec sleep 600", "--name", "n", "--recipe", "a", "--ttl", "1s")
	until(t, "the supervisor of the command is the owner", func() bool {
		return p.registry().Workflows[0].OwnerPID != x.cmd.Process.Pid
	})
	until(t, "the process is stopped without the lock", func() bool {
		x.signal(syscall.SIGSTOP)
		lock, err := os.Open(filepath.Join(p.data, ".workflows.lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			return true
		}
		x.signal(syscall.SIGCONT)
		return false
	})
	until(t, "the entry expires", func() bool { return len(p.registry().Workflows) == 0 })
	p.belay("registry", "register", "--name", "n", "--recipe", "b", "--pid", fmt.Sprint(os.Getpid())).want(0)
	x.signal(syscall.SIGCONT)
	x.wait(patience).want(codeAgain).saying("reassigned")
}

// Rule: the command of a workflow whose entry was lost with the state file is killed; only a release
// counts as a yield.
func TestTheCommandOfALostStateFileIsKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.workflow("trap '' TERM; echo ready; while :; do sleep 0.1; done", "--name", "n", "--recipe", "a",
		"--ttl", "3s", "--grace", "1h")
	until(t, "belay registry exec ends", func() bool { // a renewal may write the file again
		_ = os.Remove(filepath.Join(p.data, "workflows.json"))
		return x.ended()
	})
	x.wait(patience).want(codeAgain).saying("removed or damaged")
}

// Rule: a swap asks a preemptible workflow to yield, waits for it, runs its command, and reports.
func TestSwapWaitsForAYield(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	b := binary(t)
	x := p.workflow(`echo ready; until `+b+` registry preempted; do :; done; `+b+` registry yield; echo yielded`,
		"--name", "n", "--recipe", "a", "--preemptible")
	r := p.belay("swap", "--to", "b", "--wait", "60s", "-o", "json", "--", "sh", "-c",
		`echo loading; "$0" registry register --name late --recipe a --pid $$; echo $?; exit 3`, b).want(3)
	x.wait(patience).want(0).showing("yielded")
	var report struct {
		Outcome   string
		ExitCode  int      `json:"exit_code"`
		WaitedFor []string `json:"waited_for"`
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("%v\n%s", err, r)
	}
	if report.Outcome != "failed" || report.ExitCode != 3 || fmt.Sprint(report.WaitedFor) != "[n]" {
		t.Errorf("the report is %+v", report)
	}
	r.saying("loading", `a swap to recipe "b" by process`, "\n75\n", "asked to yield")
	if got := p.swapEvents(); got != "begin preempt_requested granted failed" {
		t.Errorf("the log has %s", got)
	}
}

// Rule: a swap that may not wait exits with 75 and names the workflow in the way; the workflow goes
// on. Arguments that are missing are errors of the command line.
func TestSwapGivesUp(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.workflow("echo ready; exec sleep 600", "--name", "busy", "--recipe", "a")
	r := p.belay("swap", "--to", "b", "--wait", "0", "--", "touch", "ran").want(codeAgain)
	r.saying(`"busy"`, fmt.Sprint(p.registry().Workflows[0].OwnerPID))
	if exists(filepath.Join(p.cwd, "ran")) {
		t.Error("the command ran")
	}
	if got := p.swapEvents(); got != "begin failed" {
		t.Errorf("the log has %s", got)
	}
	x.kill()
	for _, args := range [][]string{
		{"swap", "--to", "b"}, {"swap", "--", "true"}, {"swap", "--to", "b", "--wait", "-1s", "--", "true"},
		{"registry", "exec", "--name", "n", "--", "true"}, {"registry", "exec", "--name", "n", "--recipe", "a"},
		{"registry", "register", "--name", "n", "--recipe", "a"}, {"registry", "renew"},
		{"registry", "ls", "--server", "http://127.0.0.1:1"}, {"registry", "lss"},
	} {
		p.belay(args...).want(64)
	}
	p.belay("registry", "register", "--name", "n", "--recipe", "a", "--pid", "4194305").want(66)
}

// Rule: if belay swap is killed, its command is killed too, and the next operation removes the
// marker with one event.
func TestAKilledSwapLeavesNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.start(p.command("swap", "--to", "b", "--", "sh", "-c", "echo $$; exec sleep 600"))
	x.shows("\n")
	if s := p.registry(); s.Swap == nil || s.Swap.Target != "b" || s.Swap.GrantedAt == "" {
		t.Errorf("the state is %+v", s)
	}
	p.belay("swap", "--to", "c", "--wait", "0", "--", "true").want(codeAgain).saying(fmt.Sprint(x.cmd.Process.Pid))
	var child int
	if _, err := fmt.Sscan(x.out.String(), &child); err != nil {
		t.Fatal(err)
	}
	x.kill()
	until(t, "the command has ended", func() bool { return syscall.Kill(child, 0) != nil })
	p.belay("registry", "exec", "--wait", "60s", "--name", "n", "--recipe", "c", "--", "true").want(0)
	if got := p.swapEvents(); got != "begin granted orphan_marker_cleared" {
		t.Errorf("the log has %s", got)
	}
}

// grandchild is the script of a command whose grandchild ignores SIGTERM, has a session of its own,
// and outlives its parent. It prints the grandchild's number.
const grandchild = `(setsid sh -c 'trap "" TERM HUP INT; echo $$; while :; do sleep 0.1; done' &); exec sleep 600`

// Rule: if belay swap is interrupted or killed, no workflow registers before all descendants of its
// command have ended, also one that has left its parent and its session, and ignores SIGTERM.
func TestASwapEndsWithAllDescendants(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			if signal.Ignored(sig) {
				t.Skip("this process ignores the signal, as under nohup, and so do the programs that it starts")
			}
			p := newPlace(t)
			x := p.start(p.command("swap", "--to", "b", "--grace", "300ms", "--", "sh", "-c", grandchild))
			x.shows("\n")
			var child int
			if _, err := fmt.Sscan(x.out.String(), &child); err != nil {
				t.Fatal(err)
			}
			x.signal(sig)
			p.belay("registry", "exec", "--wait", "60s", "--name", "n", "--recipe", "c", "--", "sh", "-c",
				fmt.Sprintf(`! grep -qs "^State:.[RSDT]" /proc/%d/status`, child)).want(0)
			if r := x.wait(patience); r.code == 0 {
				t.Errorf("an interrupted swap succeeds\n%s", r)
			}
			want := "begin granted failed"
			if sig == syscall.SIGKILL {
				want = "begin granted orphan_marker_cleared"
			}
			if got := p.swapEvents(); got != want {
				t.Errorf("the log has %s", got)
			}
		})
	}
}

// Rule: if the guard of a swap's command is killed, the descendants of the command are killed before
// the swap ends, and the swap fails.
func TestASwapSurvivesTheEndOfItsGuard(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.start(p.command("swap", "--to", "b", "--", "sh", "-c", `echo $PPID; `+grandchild))
	x.until("both numbers are there", func() bool { return strings.Count(x.out.String(), "\n") == 2 })
	var guard, child int
	if _, err := fmt.Sscan(x.out.String(), &guard, &child); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	x.wait(patience).want(137)
	if s, err := host.Lookup(child); err == nil && !s.Ended() {
		t.Error("a descendant of the command lives after the swap")
	}
	if got := p.swapEvents(); got != "begin granted failed" {
		t.Errorf("the log has %s", got)
	}
}

// Rule: processes that the command of a swap leaves behind go on after the swap, and the command has
// the data directory in its environment.
func TestASwapLeavesServersBehind(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := p.belay("swap", "--to", "b", "--", "sh", "-c",
		`sleep 600 >/dev/null 2>&1 & echo $! "$BELAY_DATA"; exit 4`).want(4)
	var server int
	var dir string
	if _, err := fmt.Sscan(r.out, &server, &dir); err != nil || dir != p.data {
		t.Fatalf("%v\n%s", err, r)
	}
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Errorf("the server has ended: %v", err)
	}
	p.belay("registry", "exec", "--name", "n", "--recipe", "c", "--", "true").want(0)
	p.belay("swap", "--to", "b", "--", "no-such-command").want(127)
}

// Rule: an interrupted swap ends its command, and reports that it failed.
func TestAnInterruptedSwapEndsItsCommand(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.start(p.command("swap", "--to", "b", "--", "sh", "-c", "echo ready; exec sleep 600"))
	x.shows("ready")
	x.signal(syscall.SIGTERM)
	if r := x.wait(patience); r.code == 0 {
		t.Errorf("an interrupted swap succeeds\n%s", r)
	}
	if got := p.swapEvents(); got != "begin granted failed" {
		t.Errorf("the log has %s", got)
	}
}

// Rule: a shell script takes part with its own number. Its entry lives as long as the script, and
// another process can neither renew nor release it.
func TestAScriptRegistersItself(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	script := exec.Command("sh", "-c", `"$0" registry register --name s --recipe a --pid $$ --preemptible &&
		"$0" registry renew --name s && echo registered && read x && "$0" registry yield --name s && echo over`, binary(t))
	script.Dir, script.Env = p.cwd, p.environment()
	in, err := script.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	x := p.start(script)
	x.shows("registered")
	for _, command := range []string{"renew", "release", "yield", "preempted"} {
		p.belay("registry", command, "--name", "s").want(codeAgain).saying("reassigned")
	}
	signal := p.registry().Workflows[0].Signal
	if !strings.HasPrefix(x.out.String(), signal+"\n") {
		t.Errorf("the script got the path %q, want %s", x.out.String(), signal)
	}
	_, _ = in.Write([]byte("\n"))
	x.wait(patience).want(0).showing("over")
	if s := p.registry(); len(s.Workflows) != 0 {
		t.Errorf("left: %+v", s)
	}
}

// Rule: belay registry watch prints each state, as one line of JSON.
func TestRegistryWatch(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.start(p.command("registry", "watch", "-o", "json"))
	x.shows(`{"workflows":[],"swap_in_progress":null}`)
	p.workflow("echo ready; read x", "--name", "n", "--recipe", "a").kill()
	x.shows(`"name":"n"`)
	x.until("the watcher sees the end", func() bool {
		return strings.HasSuffix(x.out.String(), "{\"workflows\":[],\"swap_in_progress\":null}\n") &&
			strings.Count(x.out.String(), "\n") > 1
	})
	x.signal(syscall.SIGINT)
	x.wait(patience).want(0)
}

// Rule: a damaged state file is reported once and kept; swaps begin again after belay registry
// repair.
func TestRegistryRepair(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.belay("registry", "exec", "--name", "n", "--recipe", "a", "--", "true").want(0)
	if err := os.WriteFile(filepath.Join(p.data, "workflows.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.belay("registry", "ls").want(codeCannot).saying("damaged")
	q := p.registry().Quarantined
	if q == nil || read(t, filepath.Join(p.data, q.File)) != "{" {
		t.Fatalf("the copy is %+v", q)
	}
	p.belay("swap", "--to", "b", "--wait", "0", "--", "true").want(codeCannot).saying("belay registry repair")
	p.belay("registry", "repair").want(0).showing(q.File)
	p.belay("swap", "--to", "b", "--wait", "0", "--", "true").want(0)
}

// Rule: the state file is replaced by these calls in this order: create a temporary file beside it,
// write, sync the file, rename, sync the directory; and nothing acknowledges the change before.
func TestTheStateIsWrittenDurably(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatalf("strace is needed: %v (scripts/need.sh strace)", err)
	}
	p := newPlace(t)
	p.belay("registry", "exec", "--name", "n", "--recipe", "a", "--", "true").want(0) // makes the files
	trace := p.path("trace")
	cmd := p.command("registry", "register", "--name", "n", "--recipe", "a", "--preemptible", "--pid",
		fmt.Sprint(os.Getpid()))
	cmd.Args = append([]string{strace, "-f", "-y", "-qq", "-o", trace, "-e",
		"trace=openat,write,fsync,fdatasync,rename,renameat,renameat2,flock", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = strace
	p.start(cmd).wait(patience).want(0)
	var calls []string
	quiet := regexp.QuoteMeta(p.data)
	for _, c := range []struct{ name, pattern string }{
		{"lock", `flock\(\d+<` + quiet + `/\.workflows\.lock>, LOCK_EX`},
		{"create", `openat\(\d+<` + quiet + `>, "\.workflows\.json\.new", \S*O_CREAT`},
		{"write", `write\(\d+<` + quiet + `/\.workflows\.json\.new>`},
		{"sync", `fsync\(\d+<` + quiet + `/\.workflows\.json\.new>\)\s+= 0`},
		{"rename", `renameat2?\(\d+<` + quiet + `>, "\.workflows\.json\.new", \d+<` + quiet + `>, "workflows\.json"(, 0)?\)\s+= 0`},
		{"sync directory", `fsync\(\d+<` + quiet + `>\)\s+= 0`},
		{"unlock", `flock\(\d+<` + quiet + `/\.workflows\.lock>, LOCK_UN`},
		{"acknowledge", `write\(1<`},
	} {
		calls = append(calls, c.name)
		text := read(t, trace)
		at := regexp.MustCompile(c.pattern).FindStringIndex(text)
		if at == nil {
			t.Fatalf("no %s after %s in\n%s", c.name, strings.Join(calls, ", "), text)
		}
		if err := os.WriteFile(trace, []byte(text[at[1]:]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Rule: with --wait, a registration waits for the end of a swap to another recipe.
func TestARegistrationWaitsForASwap(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	free := p.path("free")
	x := p.start(p.command("swap", "--to", "b", "--", "sh", "-c", "echo ready; "+busy(free)))
	x.shows("ready")
	p.belay("registry", "exec", "--name", "n", "--recipe", "a", "--", "true").want(codeAgain)
	y := p.start(p.command("registry", "exec", "--wait", "60s", "--name", "n", "--recipe", "a", "--", "true"))
	if !y.after(150 * time.Millisecond) {
		t.Error("the registration did not wait\n" + y.dump())
	}
	if err := os.WriteFile(free, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x.wait(patience).want(0)
	y.wait(patience).want(0)
}

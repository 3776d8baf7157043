package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// busy returns a command that runs until a file exists.
func busy(file string) string { return "while [ ! -e '" + file + "' ]; do sleep 0.02; done" }

// result returns the result of an execution of belay run.
func (p *place) result(id belay.ExecutionID) agent.Result {
	p.t.Helper()
	var r agent.Result
	decode(p.t, string(p.execution(id).Output), &r)
	return r
}

// Rule: a job ends within its grace period even if one of its processes has made its own session
// (setsid), ignores signals and keeps the output open. No process is left (guarantee G7).
func TestASetsidGrandchildEndsWithinTheGracePeriod(t *testing.T) {
	t.Parallel()
	const grace = 2 * time.Second
	for name, ignores := range map[string]string{"polite": "", "stubborn": "trap '' TERM HUP INT; "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			x := p.start(p.command("run", "--repo", "none", "--grace", grace.String(), "--",
				"sh", "-c", `setsid sh -c "`+ignores+`echo up; while :; do sleep 0.1; done" & sleep 0.3; exit 7`))
			x.until("the grandchild writes", func() bool { return strings.Contains(x.out.String(), "up") })
			r := x.wait(patience).want(7)
			e := p.only()
			if ran := e.FinishedAt.Sub(e.StartedAt); ran > 300*time.Millisecond+grace+2*time.Second {
				t.Errorf("the job took %s; the command's own 0.3 s and the grace period of %s were enough\n%s", ran,
					grace, r)
			} else {
				t.Logf("%s: over %s after the start, with a grace period of %s", name, ran.Round(time.Millisecond),
					grace)
			}
			p.clean()
		})
	}
}

// Rule: one Ctrl-C is a graceful shutdown: the running step gets SIGTERM, the execution is
// released without a charge to its retry budget, no process is left, and the same command line
// continues the execution.
func TestInterruptOnceReleasesTheExecution(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"SIGINT", "SIGTERM"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			repo, free, ledger := p.repository(), p.path("free"), p.path("ledger")
			args := []string{"run", "--repo", repo, "--key", "k",
				"--step", "one=echo one >> " + ledger + "; echo one > one.txt", "--step", "two=echo two >> " + ledger +
					"; " + busy(free)}
			x := p.start(p.command(args...))
			x.until("the second step runs", func() bool { return strings.Contains(read(t, ledger), "two") })
			if how == "SIGINT" {
				x.ctrlC()
			} else {
				x.signal(syscall.SIGTERM)
			}
			stopped := time.Now()
			r := x.wait(patience).want(130).saying("the same line to go on", "belay cancel ")
			t.Logf("stopped within %s", time.Since(stopped).Round(time.Millisecond))
			p.clean()
			e := p.only()
			if e.State != belay.Pending || e.Attempt != 1 || e.Losses != 0 {
				t.Errorf("the execution is %s, attempt %d, %d losses; want pending with nothing charged\n%s\n%s",
					e.State,
					e.Attempt, e.Losses, show(p.history(e.ID)), r)
			}
			if err := os.WriteFile(free, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			p.belay(args...).want(0).saying(e.ID.String()+" goes on", "step one is done already")
			if got := read(t, ledger); got != "one\ntwo\ntwo\n" {
				t.Errorf("the ledger is %q: a finished step was repeated, or the interrupted one was not", got)
			}
			p.clean()
		})
	}
}

// Rule: a step has its whole grace period after SIGTERM, even if a Ctrl-C caused the SIGTERM.
func TestInterruptKeepsTheGracePeriod(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.start(p.command("run", "--repo", "none", "--key", "k", "--grace", "20s", "--",
		"sh", "-c", "trap 'sleep 7; echo cleaned up; exit 0' TERM; echo up; while :; do sleep 0.1; done"))
	x.until("the command runs", func() bool { return strings.Contains(x.out.String(), "up") })
	x.ctrlC()
	r := x.wait(patience).want(130)
	if !strings.Contains(r.out, "cleaned up") {
		t.Errorf("the command was killed before its grace period was over\n%s", r)
	}
	p.clean()
}

// Rule: a second Ctrl-C ends the job at once, even if the command ignores signals, and no process
// is left.
func TestInterruptTwiceEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := []string{"run", "--repo", p.repository(), "--key", "k", "--grace", "60s", "--",
		"sh", "-c", "setsid sleep 600 & trap '' TERM; echo up; " + busy(p.path("free"))}
	x := p.start(p.command(args...))
	x.until("the command runs", func() bool { return strings.Contains(x.out.String(), "up") })
	x.ctrlC()
	x.says("interrupt again to stop at once")
	x.ctrlC()
	again := time.Now()
	r := x.wait(patience).want(130)
	if took := time.Since(again); took > 3*time.Second {
		t.Errorf("the second Ctrl-C took %s\n%s", took, r)
	} else {
		t.Logf("ended %s after the second Ctrl-C", took.Round(time.Millisecond))
	}
	p.clean()
	if err := os.WriteFile(p.path("free"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.belay(args...).want(0).saying("goes on")
	p.clean()
}

// Rule: a step's timeout counts from the start of that step. It ends the step's whole process tree
// and keeps the step's changes; the exit code is 124.
func TestTimeoutCountsFromTheStart(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	repo := p.repository()
	began := time.Now()
	r := p.run("--repo", repo, "--timeout", "1500ms", "--grace", "1s", "--", "sh", "-c",
		"echo kept > kept.txt; echo changed >> notes.txt; setsid sleep 600 & sleep 600").want(124).saying("timed out")
	e := p.only()
	got := p.result(e.ID)
	if e.State != belay.Failed || e.Error == nil || len(got.Steps) != 1 || !got.Steps[0].TimedOut {
		t.Fatalf("%s with %+v\n%s", e.State, got, r)
	}
	if d := got.Steps[0].Duration(); d < 1500*time.Millisecond || d > time.Since(began) {
		t.Errorf("the step ran for %s", d)
	} else {
		t.Logf("the step ran for %s with a timeout of 1.5 s and a grace period of 1 s", d)
	}
	if got.Changes == nil || got.Changes.Patch == "" {
		t.Fatalf("no change was kept: %+v\n%s", got.Changes, r)
	}
	patch := p.artifact(e.ID, got.Changes.Patch)
	if !strings.Contains(patch, "+kept") || !strings.Contains(patch, "+changed") {
		t.Errorf("the patch does not contain the changes:\n%s", patch)
	}
	p.clean()
}

// Rule: an execution whose process has died can be cancelled from another terminal although no
// engine runs; the cancellation is final (guarantee G7).
func TestCancelWithoutAnEngine(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := []string{
		"run", "--repo", p.repository(), "--key", "k", "--", "sh", "-c", "echo up; " + busy(p.path("free")),
	}
	x := p.start(p.command(args...))
	x.until("the command runs", func() bool { return strings.Contains(x.out.String(), "up") })
	x.signal(syscall.SIGKILL)
	x.wait(patience)
	e := p.only()
	c := p.belay("cancel", e.ID.String(), "--reason", "no longer wanted").want(0)
	until(t, "no process is left", func() bool { return len(p.processes()) == 0 })
	if now := p.execution(e.ID); now.State != belay.Cancelled {
		t.Errorf("the execution is %s after the cancel\n%s\n%s\n%s", now.State, c, show(p.history(e.ID)),
			p.belay("explain", e.ID.String()))
	}
	if !strings.Contains(c.out, "is cancelled") {
		t.Errorf("the cancel does not say that the execution is cancelled\n%s", c)
	}
	p.belay(args...).want(130).saying("has ended already")
	p.clean()
}

// Rule: after belay retry, a failed execution runs its failed step again, and does not repeat the
// steps that had finished.
func TestRetryContinuesAfterTheFinishedSteps(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ledger, free := p.path("ledger"), p.path("free")
	args := []string{"run", "--repo", p.repository(), "--key", "k", "--step", "one=echo one >> " + ledger +
		"; echo new > one.txt",
		"--step", "two=echo two >> " + ledger + "; echo $BELAY_TOKEN > two.txt; test -e one.txt && test -e " + free}
	p.belay(args...).want(1).saying("step two failed")
	e := p.only()
	p.patched(e.ID, "+1\n")                              // the patch has the change of the failed step
	p.belay(args...).want(1).saying("has ended already") // the execution with the key k has ended
	if err := os.WriteFile(free, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.belay("retry", "k", "--reason", "the file is there now").want(0)
	p.belay(args...).want(0).saying(e.ID.String()+" goes on", "step one is done already")
	if got := read(t, ledger); got != "one\ntwo\ntwo\n" {
		t.Errorf("the ledger is %q", got)
	}
	if e = p.execution(e.ID); e.Generation != 2 || e.State != belay.Succeeded {
		t.Errorf("%s in generation %d", e.State, e.Generation)
	}
	p.patched(e.ID, "+2\n") // the change of the second attempt replaces that of the first
	p.clean()
}

// patched checks that an execution's patch can be applied and contains the given line.
func (p *place) patched(id belay.ExecutionID, line string) {
	p.t.Helper()
	changes := p.result(id).Changes
	if changes == nil || changes.Patch == "" {
		p.t.Fatalf("no changes of %s are kept", id)
	}
	patch := p.artifact(id, changes.Patch)
	p.gitWith(p.path("repo"), patch, "apply", "--check")
	if !strings.HasPrefix(patch, "diff --git ") || !strings.Contains(patch, line) {
		p.t.Errorf("the patch is\n%s", patch)
	}
}

// Rule: --resume continues the newest unfinished execution of the same command line, and starts a
// new execution if there is none.
func TestResumeFindsTheSameLine(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	repo, free := p.repository(), p.path("free")
	args := []string{"run", "--repo", repo, "--resume", "--", "sh", "-c", "echo up; " + busy(free)}
	x := p.start(p.command(args...))
	x.until("the command runs", func() bool { return strings.Contains(x.out.String(), "up") })
	x.signal(syscall.SIGKILL)
	first := idOf(t, x.wait(patience).err)
	if err := os.WriteFile(free, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("--repo", repo, "--resume", "--", "true").want(0) // for another command line, --resume starts a new execution
	p.belay(args...).want(0).saying(first.String() + " goes on")
	again := p.belay(args...).want(0)
	if second := idOf(t, again.err); second == first {
		t.Errorf("a finished execution was continued\n%s", again)
	}
	if n := len(p.executions()); n != 3 {
		t.Errorf("%d executions, want 3", n)
	}
	p.clean()
}

// Rule: belay run does not continue a paused execution. Its refusal names the command that resumes
// the execution.
func TestAPausedExecutionIsNotContinued(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := []string{"run", "--repo", "none", "--key", "k", "--", "sh", "-c", "echo up; " + busy(p.path("free"))}
	x := p.start(p.command(args...))
	x.until("the command runs", func() bool { return strings.Contains(x.out.String(), "up") })
	x.signal(syscall.SIGKILL)
	x.wait(patience)
	id := p.only().ID.String()
	p.belay("pause", "k").want(0)
	if e := p.only(); e.State != belay.Paused {
		t.Errorf("%s after the pause", e.State)
	}
	one(t, p.belay(args...).want(codeCannot), "belay resume "+id)
	p.belay("resume", "k").want(0)
	if err := os.WriteFile(p.path("free"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.belay(args...).want(0).saying(id + " goes on")
	p.clean()
}

// Rule: one data directory has one engine. A second belay run uses the engine of the first belay
// run and does not disturb it. Commands that only read work at the same time.
func TestOneEngineManyReaders(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	free := p.path("free")
	x := p.start(p.command("run", "--repo", p.repository(), "--key", "k", "--", "sh", "-c", "echo up; "+busy(free)))
	x.until("the command runs", func() bool { return strings.Contains(x.out.String(), "up") })
	id := p.only().ID.String()
	until(t, "the log is written while the command runs", func() bool { return p.belay("logs", id).out == "up\n" })
	p.run("--repo", "none", "--", "true").want(0)
	text := map[string]string{ // a word that each command must print as text
		"ls": "running", "get k": "submitted", "explain k": "", "logs k": "up", "doctor": "engine",
	}
	for args, want := range text {
		if r := p.belay(strings.Fields(args)...).want(0); !strings.Contains(r.out, want) {
			t.Errorf("the command does not say %q\n%s", want, r)
		}
	}
	for _, args := range []string{"ls", "get k", "explain k", "doctor", "version"} {
		var v any
		decode(t, p.belay(append(strings.Fields(args), "-o", "json")...).want(0).out, &v)
	}
	watch, watchJSON := p.start(p.command("watch", id)), p.start(p.command("watch", id, "-o", "json"))
	watch.until("the watch shows the past events", func() bool {
		return strings.Contains(watch.out.String(),
			"started")
	})
	if err := os.WriteFile(free, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x.wait(patience).want(0)
	if r := watch.wait(patience).want(0); !strings.Contains(r.out, "succeeded") {
		t.Errorf("the end was not seen\n%s", r)
	}
	seq := int64(0)
	for line := range strings.Lines(watchJSON.wait(patience).want(0).out) {
		var ev belay.Event
		decode(t, line, &ev)
		if seq++; ev.Seq != seq {
			t.Errorf("G15: event %d arrived as number %d", ev.Seq, seq)
		}
	}
	if all := p.history(idOf(t, x.err.String())); int64(len(all)) != seq {
		t.Errorf("G15: %d of %d events were seen", seq, len(all))
	}
	p.clean()
}

// Rule: a belay watch that Ctrl-C interrupts has the exit code of an interrupted program. A later
// belay watch can continue after the last seq that the interrupted one has printed.
func TestWatchResumes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.run("--repo", "none", "--key", "k", "--step", "a=true", "--step", "b=true").want(0)
	all := strings.Count(p.belay("watch", "k").want(0).out, "\n")
	for after := range all + 1 {
		if n := strings.Count(p.belay("watch", "k", "--after", fmt.Sprint(after)).want(0).out, "\n"); n != all-after {
			t.Errorf("after %d come %d events, want %d", after, n, all-after)
		}
	}
}

// Rule: if the process that had the lock on the data directory has died, belay run still waits a
// moment for the lock: a process that is killed while it starts a child leaves the lock open in the
// child for a moment.
func TestALockThatOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.run("--repo", "none", "--", "true").want(0) // afterwards the lock file names a process that has ended
	lock, err := os.OpenFile(filepath.Join(p.data, "belay.lock"), os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	x := p.start(p.command("run", "--repo", "none", "--", "echo", "ran"))
	if !x.after(200 * time.Millisecond) {
		t.Fatalf("the command did not wait for the lock\n%s", x.dump())
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	x.wait(patience).want(0)
	p.clean()
}

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
)

// gated is a belay run of several steps on a shared data directory. When a step starts, it writes
// the fencing token of its run into a ledger (a file outside of Belay). Then it waits until the
// test makes a file, the step's gate.
type gated struct {
	*started
	p     *place
	name  string
	steps int
	args  []string
}

// gates starts a belay run whose steps wait for files (gates), in the data directory of the test,
// beside the runs that have started before.
func (p *place) gates(name string, steps int) *gated {
	p.t.Helper()
	g := &gated{p: p, name: name, steps: steps, args: []string{"run", "--repo", "none", "--key", name}}
	for i := range steps {
		g.args = append(g.args, "--step", fmt.Sprintf("s%d=set -e; echo s%d $BELAY_TOKEN >> '%s'; %s", i, i,
			p.path(name+".ledger"), busy(g.gate(i))))
	}
	g.again()
	return g
}

// again starts the same command line once more.
func (g *gated) again() { g.started = g.p.start(g.p.command(g.args...)) }

func (g *gated) gate(i int) string { return g.p.path(fmt.Sprintf("%s.gate%d", g.name, i)) }

// open makes the gates of the steps first to last: files for which these steps wait before they
// end.
func (g *gated) open(first, last int) {
	g.t.Helper()
	for i := first; i <= last; i++ {
		if err := os.WriteFile(g.gate(i), nil, 0o600); err != nil {
			g.t.Fatal(err)
		}
	}
}

// ledger returns the ledger: the notes that the steps have written into a file outside of Belay.
func (g *gated) ledger() string {
	text, err := os.ReadFile(g.p.path(g.name + ".ledger"))
	if err != nil && !os.IsNotExist(err) {
		g.t.Fatal(err)
	}
	return string(text)
}

// begun waits until a step has begun the given number of times.
func (g *gated) begun(step, times int) {
	g.t.Helper()
	g.until(fmt.Sprintf("step %d has begun %d times", step, times), func() bool {
		return strings.Count(g.ledger(), fmt.Sprintf("s%d ", step)) >= times
	})
}

// id returns the id of the run's execution.
func (g *gated) id() belay.ExecutionID {
	g.t.Helper()
	g.says("belay: ex_")
	return idOf(g.t, g.err.String())
}

// undisturbed lets the run end and checks that nothing disturbed it: the execution had one run, and
// each step began once.
func (g *gated) undisturbed() {
	g.t.Helper()
	g.open(0, g.steps-1)
	g.wait(patience).want(0)
	history := g.p.history(g.id())
	if n := count(history, "started"); n != 1 {
		g.t.Errorf("%s was started %d times\n%s", g.name, n, show(history))
	}
	for i := range g.steps {
		if n := strings.Count(g.ledger(), fmt.Sprintf("s%d ", i)); n != 1 {
			g.t.Errorf("%s: step %d began %d times\n%s", g.name, i, n, g.ledger())
		}
	}
	if e := g.p.execution(g.id()); e.State != belay.Succeeded {
		g.t.Errorf("%s is %s", g.name, e.State)
	}
}

// watched starts a belay watch on an execution. The returned function checks that the watch got
// every event of the execution (guarantee G15).
func (p *place) watched(id belay.ExecutionID, more ...string) (check func()) {
	x := p.start(p.command(append([]string{"watch", id.String(), "-o", "json"}, more...)...))
	return func() {
		p.t.Helper()
		seq := int64(0)
		for line := range strings.Lines(x.wait(patience).want(0).out) {
			var ev belay.Event
			decode(p.t, line, &ev)
			if seq++; ev.Seq != seq {
				p.t.Errorf("G15: event %d arrived as number %d", ev.Seq, seq)
			}
		}
		if all := p.history(id); int64(len(all)) != seq {
			p.t.Errorf("G15: %d of %d events were seen", seq, len(all))
		}
	}
}

// Rule: any number of belay run processes work side by side on one data directory, each on its own
// execution, and other commands work at the same time. The process that started first may also end
// first.
func TestRunsSideBySide(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a, b, c := p.gates("a", 2), p.gates("b", 3), p.gates("c", 1)
	all := []*gated{a, b, c}
	var checks []func()
	for _, g := range all {
		g.begun(0, 1)
		checks = append(checks, p.watched(g.id()))
	}
	if r := p.belay("ls", "--state", "running").want(0); strings.Count(r.out, "running") != len(all) {
		t.Errorf("not all executions run\n%s", r)
	}
	if r := p.belay("workers", "ls").want(0); strings.Count(r.out, "belay run (pid ") != len(all) {
		t.Errorf("not every worker is listed\n%s", r)
	}
	if r := p.belay("get", "b").want(0); !strings.Contains(r.out, fmt.Sprintf("belay run (pid %d)",
		b.cmd.Process.Pid)) {
		t.Errorf("get does not name the owner\n%s", r)
	}
	p.belay("signal", "c", "go").want(0)
	x := p.belay("submit", "nobody", "--input", `{"a":1}`).want(0)
	p.belay("cancel", strings.TrimSpace(x.out)).want(0)
	for _, g := range all {
		g.undisturbed()
	}
	for _, check := range checks {
		check()
	}
	p.clean()
	p.sound()
}

// Rule: an operator's command reaches an execution whichever process runs it.
func TestOperatorCommandsReachEveryProcess(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a, b := p.gates("a", 2), p.gates("b", 2)
	a.begun(0, 1)
	b.begun(0, 1)
	for _, g := range []*gated{a, b} { // for the process that has the engine, and for the other
		p.belay("pause", g.name, "--reason", "lunch").want(0)
		g.says("pause")
		g.open(0, 0)
		until(t, g.name+" is paused", func() bool { return p.execution(g.id()).State == belay.Paused })
		p.belay("resume", g.name).want(0)
		g.begun(1, 1)
	}
	p.belay("lock", "steal", "a").want(codeUsage).saying("--reason")
	p.belay("lock", "steal", "a", "--reason", "it hangs").want(0)
	a.begun(1, 2)
	a.open(1, 1)
	a.wait(patience).want(0)
	stolen := false
	for _, ev := range p.history(a.id()) {
		stolen = stolen || ev.Kind == "steal" && ev.Text == "it hangs" && ev.Actor != ""
	}
	if !stolen {
		t.Error("the history does not name the actor and the reason of the steal")
	}
	p.belay("cancel", "b").want(0)
	b.wait(patience).want(130)
	p.clean()
}

// Rule: kill -9 of the process that has the engine disturbs no other process: another process takes
// the engine over within a moment, and continues its own execution. The command of the killed
// process is killed too; the same command line continues its execution without repeating finished
// steps (guarantees G3, G4 and G7).
func TestTheHostIsKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.gates("a", 3)
	a.begun(0, 1)
	b := p.gates("b", 3)
	b.begun(0, 1)
	check := p.watched(b.id())
	a.open(0, 0)
	a.begun(1, 1)
	a.signal(syscall.SIGKILL)
	a.wait(patience)
	killed := time.Now()
	b.open(0, 0)
	b.begun(1, 1) // the first write of b's step is acknowledged, so some process has the engine
	took := time.Since(killed)
	t.Logf("from the kill to a step that follows an acknowledged one: %s", took)
	if took >= belay.DefaultTTL.D()/2 {
		t.Errorf("the others waited for a lease to expire")
	}
	until(t, "the dead process's execution is reclaimed", func() bool {
		return p.execution(a.id()).State == belay.Pending
	})
	a.again()
	a.begun(1, 2)
	a.open(1, 2)
	a.wait(patience).want(0).saying("step s0 is done already")
	if n := strings.Count(a.ledger(), "s0 "); n != 1 {
		t.Errorf("a finished step began %d times", n)
	}
	b.undisturbed()
	check()
	p.clean()
	p.sound()
}

// Rule: kill -9 of a process without the engine disturbs no other process, and the engine notices
// the death at once.
func TestAClientIsKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.gates("a", 2)
	a.begun(0, 1)
	b := p.gates("b", 1)
	b.begun(0, 1)
	b.signal(syscall.SIGKILL)
	b.wait(patience)
	killed := time.Now()
	until(t, "the execution of the killed process is reclaimed",
		func() bool { return p.execution(b.id()).State == belay.Pending })
	if took := time.Since(killed); took >= belay.DefaultTTL.D()/2 {
		t.Errorf("G6: the loss was noticed after %s, as late as the lease's end", took)
	}
	a.undisturbed()
	b.again()
	b.begun(0, 2)
	b.open(0, 0)
	b.wait(patience).want(0)
	p.clean()
}

// Rule: every process may be killed, one after the other, again and again. The same command lines
// continue the executions, and no finished step is repeated.
func TestHostsAreKilledInTurn(t *testing.T) {
	t.Parallel()
	r := dice(t)
	p := newPlace(t)
	const steps = 5
	all := []*gated{p.gates("a", steps), p.gates("b", steps), p.gates("c", steps)}
	for i := range steps {
		for _, g := range all {
			g.begun(i, 1)
		}
		victim := all[r.IntN(len(all))]
		victim.after(between(r, 0, 30*time.Millisecond))
		victim.signal(syscall.SIGKILL)
		victim.wait(patience)
		victim.again()
		for _, g := range all {
			g.open(i, i)
		}
	}
	for _, g := range all {
		g.wait(patience).want(0)
		events := p.history(g.id())
		saved := savedSteps(t, events)
		for line := range strings.Lines(g.ledger()) {
			var step string
			var token belay.Token
			if _, err := fmt.Sscanf(line, "%s %d\n", &step, &token); err != nil {
				t.Fatal(err)
			}
			if under := saved["run["+step+"]"]; token > under {
				t.Errorf("%s: step %s was saved under token %d and began again under %d\n%s", g.name, step, under,
					token, show(events))
			}
		}
	}
	p.clean()
	p.sound()
}

// Rule: two processes that use the same key at the same time have one execution (guarantee G9): the
// second process waits for the execution's end, and takes it over if the first process dies.
func TestTheSameKeyAtTheSameTime(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.gates("k", 2)
	a.begun(0, 1)
	second := p.start(p.command(a.args...))
	second.says(fmt.Sprintf("belay run (pid %d) runs ", a.cmd.Process.Pid))
	third := p.start(p.command(a.args...))
	third.says("already")
	third.ctrlC()
	third.wait(patience).want(130)
	a.open(0, 0)
	a.begun(1, 1)
	a.signal(syscall.SIGKILL)
	a.wait(patience)
	a.begunAgain(second)
	a.open(1, 1)
	second.wait(patience).want(0).saying("step s0 is done already", "step s1 done")
	if n := len(p.executions()); n != 1 {
		t.Errorf("G9: %d executions", n)
	}
	p.clean()
}

// begunAgain waits until the second step has begun a second time. It fails the test if the process
// that should repeat this step ends earlier.
func (g *gated) begunAgain(by *started) {
	g.t.Helper()
	by.until("the second step has begun again", func() bool { return strings.Count(g.ledger(), "s1 ") == 2 })
}

// Rule: if the process with the engine is stopped (SIGSTOP), the other processes wait and lose
// nothing. They continue when that process continues.
func TestTheHostIsStopped(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.gates("a", 1)
	a.begun(0, 1)
	b := p.gates("b", 2)
	b.begun(0, 1)
	a.signal(syscall.SIGSTOP)
	b.open(0, 0)
	if !strings.Contains(p.belay("ls").want(0).out, "running") { // a command that only reads needs no engine
		t.Error("nothing is shown while the host is stopped")
	}
	if strings.Contains(b.ledger(), "s1 ") {
		t.Error("a step began before the previous one was acknowledged")
	}
	a.signal(syscall.SIGCONT)
	b.begun(1, 1)
	b.undisturbed()
	a.undisturbed()
	p.clean()
}

// Rule: a data directory with a very long path is shared like any other.
func TestADeepDataDirectoryIsShared(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.data = filepath.Join(p.root, strings.Repeat("d", 120), "data")
	a := p.gates("a", 1)
	a.begun(0, 1)
	b := p.gates("b", 1)
	b.begun(0, 1)
	a.undisturbed()
	b.undisturbed()
	p.clean()
}

// Rule: a belay run that has the engine hands it over to belay serve and finishes as the server's
// client. When the server stops, or is killed, belay run takes the engine over again. Commands that
// watch or read during these changes miss nothing.
func TestBelayRunYieldsToAServerAndTakesOverAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.gates("a", 4)
	a.begun(0, 1)
	b := p.gates("b", 4)
	b.begun(0, 1)
	checks := []func(){p.watched(a.id()), p.watched(b.id())}
	// both lets a and b continue to their next step. The next step begins only if the process that
	// has the engine at that time acknowledges the writes of a and b.
	both := func(step int) {
		t.Helper()
		a.open(step, step)
		b.open(step, step)
		a.begun(step+1, 1)
		b.begun(step+1, 1)
	}
	first, _ := p.serve()
	// this watch connects to the server over HTTP
	checks = append(checks, p.watched(b.id(), "--server", "unix:"+filepath.Join(p.data, "belay.sock")))
	both(0)
	if r := p.belay("doctor").want(0); !strings.Contains(r.out, "belay serve") {
		t.Errorf("the server does not have the engine\n%s", r)
	}
	p.belay("serve", "--listen", "127.0.0.1:0").want(codeCannot).saying(fmt.Sprintf("process %d (belay serve",
		first.cmd.Process.Pid))
	first.signal(syscall.SIGTERM)
	first.wait(patience).want(0)
	both(1)
	second, server := p.serve()
	over := p.belay("ls", "--server", server.url, "--state", "running").want(0)
	if strings.Count(over.out, "running") != 2 {
		t.Errorf("the server does not show both\n%s", over)
	}
	second.signal(syscall.SIGKILL)
	second.wait(patience)
	both(2)
	a.undisturbed()
	b.undisturbed()
	third, _ := p.serve() // the watches over HTTP can end only while a server runs
	for _, check := range checks {
		check()
	}
	third.signal(syscall.SIGTERM)
	third.wait(patience).want(0)
	p.clean()
	p.sound()
}

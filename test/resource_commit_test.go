package test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/belaydev/belay"
)

// commitTrap kills a server that runs under strace at one of its commits, when the server syncs the database: the
// commit is in the database, and the server has answered no caller.
type commitTrap struct {
	told *os.File
	hit  chan struct{}

	mu   sync.Mutex
	pid  int
	left int // the number of syncs until the kill; 0 for no kill
}

// startTraced starts the server under strace.
func (m *member) startTraced() *commitTrap {
	g := m.group
	g.t.Helper()
	cmd := g.command("serve", "--listen", m.listen)
	tr := &commitTrap{told: g.reportSyncs(cmd), hit: make(chan struct{})}
	m.proc = g.start(cmd)
	var watching sync.WaitGroup
	watching.Go(tr.watch)
	g.t.Cleanup(func() {
		tr.mu.Lock()
		if tr.pid != 0 { // strace does not end the server when strace itself is killed
			_ = syscall.Kill(tr.pid, syscall.SIGKILL)
		}
		tr.mu.Unlock()
		_ = tr.told.Close()
		watching.Wait()
	})
	m.proc.until("the server is ready", func() bool { return ready.MatchString(m.proc.err.String()) })
	return tr
}

// arm kills the server at its n-th sync from now on.
func (tr *commitTrap) arm(n int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.left = n
}

// watch reads the output of strace, which reports each sync when it begins.
func (tr *commitTrap) watch() {
	var text []byte
	buf, seen := make([]byte, 4096), 0
	for {
		k, err := tr.told.Read(buf)
		if err != nil {
			return
		}
		text = append(text, buf[:k]...)
		calls := syncCall.FindAllSubmatch(text, -1)
		for _, c := range calls[min(seen, len(calls)):] {
			if tr.count(c[1]) {
				return
			}
		}
		seen = len(calls)
	}
}

// count counts a sync of a thread, and reports whether it has killed the server.
func (tr *commitTrap) count(thread []byte) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if n, err := strconv.Atoi(string(thread)); tr.pid == 0 && err == nil {
		tr.pid, _ = leader(n)
	}
	if tr.left == 0 || tr.pid == 0 {
		return false
	}
	if tr.left--; tr.left > 0 {
		return false
	}
	_ = syscall.Kill(tr.pid, syscall.SIGKILL)
	tr.pid = 0
	close(tr.hit)
	return true
}

// progress names the step that a change of the mode has reached in the store, while no server runs.
func (g *deviceGroup) progress() string {
	g.t.Helper()
	r := g.reader()
	defer r.Close()
	ctx := g.t.Context()
	d, err := r.Gate(ctx, deviceID)
	all, err2 := r.Executions(ctx, belay.Filter{Workflow: loadWorkflow, Limit: 1000})
	if err != nil || err2 != nil {
		g.t.Fatal(err, err2)
	}
	swaps := all.Executions
	switch {
	case len(swaps) < g.rounds:
		return "submitted"
	case d.Resource.Swapping == nil:
		return "over"
	case swaps[0].State == belay.Pending:
		return "requested"
	case swaps[0].State == belay.Running:
		return fmt.Sprintf("running with %d steps", swaps[0].Checkpoints)
	}
	return "ended and not noted"
}

// killAtCommit submits work that needs another mode, and kills the server at its n-th commit since a phase of the
// change of the mode. It returns the step that the change had reached.
func (g *deviceGroup) killAtCommit(tr *commitTrap, phase string, n int) (w deviceWork, step string) {
	g.t.Helper()
	w, resume := g.reach(phase)
	tr.arm(n)
	if phase != phaseRequested {
		resume()
	}
	g.wait("the server is killed", tr.hit)
	g.members[0].proc.wait(patience)
	step = g.progress()
	if phase == phaseRequested {
		resume()
	}
	return w, step
}

// Rule: the server is killed with SIGKILL at each of its commits during a swap, when the commit is in the store and
// no caller knows it. After the restart the swap goes on from the step that the store has, and nothing is
// wedged.
func TestASwapSurvivesAKillAtEachCommit(t *testing.T) {
	t.Parallel()
	type point struct {
		phase string // of the swap, from which on the commits count
		n     int
	}
	points := []point{
		{phaseRequested, 1}, {phaseClaimed, 1}, {phaseUnloaded, 1}, {phaseLoaded, 1}, {phaseLoadSaved, 1},
		{phaseLoadSaved, 2}, {phaseLoadSaved, 3},
	}
	steps := []string{
		"requested", "running with 1 steps", "running with 2 steps", "ended and not noted", "over",
	}
	least, most := 1, 4 // rounds of all points; on a busy machine a kill may come late and leave a later step
	if *long {
		least = 3
	}
	g := newDeviceGroup(t, "", 1)
	m := g.members[0]
	first := g.submit()
	g.ready(first)
	m.proc.signal(syscall.SIGKILL)
	m.proc.wait(patience)
	seen := make(map[string]int)
	missing := func(step string) bool { return seen[step] == 0 }
	for round := 1; round <= least || round <= most && slices.ContainsFunc(steps, missing); round++ {
		for _, at := range points {
			w, step := g.killAtCommit(m.startTraced(), at.phase, at.n)
			t.Logf("killed at commit %d since %q: %s", at.n, at.phase, step)
			seen[step]++
			m.start()
			g.ready(w)
			m.proc.signal(syscall.SIGKILL)
			m.proc.wait(patience)
		}
	}
	t.Logf("the store had these steps at the kills: %v", seen)
	for _, step := range steps {
		if missing(step) {
			t.Errorf("INCONCLUSIVE: no kill left the step %q; seen %v", step, slices.Sorted(maps.Keys(seen)))
		}
	}
}

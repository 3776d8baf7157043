package registry

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: a swap asks the preemptible workflows of other recipes to yield, waits for all of them, and
// is granted when the last one has left. The signals are removed.
func TestASwapWaitsForOtherRecipes(t *testing.T) {
	r := open(t)
	_, other := bystander(t)
	yields := register(t, r, Registration{Name: "yields", Recipe: "a", Owner: other, Preemptible: true})
	stays := register(t, r, Registration{Name: "stays", Recipe: "a", Owner: other})
	register(t, r, Registration{Name: "same", Recipe: "b", Owner: other, Preemptible: true})
	s := begin(t, r, "b")
	var seen []string
	var leaving sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := s.Await(ctx, func(left []Workflow) {
		var all []string
		for _, w := range left {
			all = append(all, w.Name)
		}
		seen = append(seen, strings.Join(all, "+"))
		w := stays
		if len(left) > 1 {
			w = yields
			if _, err := os.Stat(yields.PreemptSignalPath); err != nil {
				t.Errorf("no signal: %v", err)
			}
			if asked, err := r.Preempted(t.Context(), yields); err != nil || !asked {
				t.Errorf("preempted: %v, %v", asked, err)
			}
			if asked, err := r.Preempted(t.Context(), stays); err != nil || asked {
				t.Errorf("the workflow that is not preemptible was asked to yield: %v", err)
			}
		}
		leaving.Go(func() {
			if err := r.Release(t.Context(), w); err != nil {
				t.Error(err)
			}
		})
	})
	leaving.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(seen, " "); got != "yields+stays stays" {
		t.Errorf("the swap waited for %s", got)
	}
	if m := list(t, r).Swap; m == nil || m.GrantedAt.IsZero() {
		t.Errorf("the marker is %+v", m)
	}
	if err := errors.Join(s.End(t.Context(), nil), s.End(t.Context(), nil)); err != nil {
		t.Fatal(err)
	}
	if got := events(t, r); got != "begin preempt_requested granted done" {
		t.Errorf("the log has %s", got)
	}
	if left, _ := os.ReadDir(filepath.Join(r.path, signalsName)); len(left) > 0 {
		t.Errorf("the signal %s is left", left[0].Name())
	}
	if list(t, r).Swap != nil {
		t.Error("the marker is left")
	}
}

// Rule: the death of a workflow's owner wakes a waiting swap.
func TestASwapSeesADeath(t *testing.T) {
	r := open(t)
	cmd, other := bystander(t)
	register(t, r, Registration{Name: "a", Recipe: "a", Owner: other})
	s := begin(t, r, "b")
	began := time.Now()
	if err := s.Await(t.Context(), func([]Workflow) { end(cmd) }); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("the swap saw the death after %s", took)
	}
}

// Rule: a swap that may not wait any longer is refused with EAGAIN and names the workflows in the
// way; at its end, its signals are removed.
func TestASwapGivesUp(t *testing.T) {
	r := open(t)
	_, other := bystander(t)
	w := register(t, r, Registration{Name: "stays", Recipe: "a", Owner: other, Preemptible: true})
	s := begin(t, r, "b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Await(ctx, nil)
	wantCode(t, err, belay.CodeSwapInProgress)
	if !errors.Is(err, syscall.EAGAIN) || !strings.Contains(err.Error(), `"stays"`) {
		t.Errorf("the refusal is %v", err)
	}
	if err := s.End(t.Context(), err); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(w.PreemptSignalPath); !os.IsNotExist(err) {
		t.Errorf("the signal is left: %v", err)
	}
	if got := events(t, r); got != "begin preempt_requested failed" {
		t.Errorf("the log has %s", got)
	}
}

// Rule: the marker of a killed holder is removed by the next operation, with one event, and its
// signals too. It wedges nothing.
func TestAnOrphanIsClearedOnce(t *testing.T) {
	r := open(t)
	_, other := bystander(t)
	w := register(t, r, Registration{Name: "a", Recipe: "a", Owner: other, Preemptible: true})
	cmd := started(t, "swap", r.path, "b")
	_, err := r.Register(t.Context(), Registration{Name: "c", Recipe: "c"})
	wantCode(t, err, belay.CodeSwapInProgress)
	if err := r.withLock(t.Context(), func(c *change) error { // as the holder would do in Await
		_, err := c.requestPreempt(&w)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	end(cmd)
	register(t, r, Registration{Name: "c", Recipe: "c"})
	list(t, r)
	if got := events(t, r); got != "begin orphan_marker_cleared" {
		t.Errorf("the log has %s", got)
	}
	if asked, err := r.Preempted(t.Context(), w); err != nil || asked {
		t.Errorf("the signal of the dead swap is left: %v, %v", asked, err)
	}
}

// Rule: the marker of a living holder that has lost the lock is an orphan too, and the holder
// learns that its swap is over.
func TestAHolderWithoutTheLockHasAnOrphan(t *testing.T) {
	r := open(t)
	s := begin(t, r, "b")
	_ = unlock(s.lock)
	if list(t, r).Swap != nil {
		t.Error("the marker is left")
	}
	_, err := s.Conflicts(t.Context())
	wantCode(t, err, belay.CodeLeaseLost)
	wantCode(t, s.End(t.Context(), nil), belay.CodeLeaseLost)
	if got := events(t, r); got != "begin orphan_marker_cleared" {
		t.Errorf("the log has %s", got)
	}
}

// Rule: while a process has the lock, the marker of a holder in a container with another boot id or PID
// namespace stays; only the proven death of the holder removes it. Even then no workflow registers
// before the lock is free.
func TestAHeldLockKeepsTheMarker(t *testing.T) {
	cmd, died := bystander(t)
	end(cmd)
	r := open(t)
	s := begin(t, r, "b")
	holder := func(p Process) {
		t.Helper()
		if err := r.withLock(t.Context(), func(c *change) error {
			m := s.marker
			m.Holder = p
			c.doc.Swap = &m
			return c.save()
		}); err != nil {
			t.Fatal(err)
		}
	}
	nspawn, container := r.self, r.self
	nspawn.BootID = "00000000-0000-0000-0000-000000000000"
	container.PIDNamespace++
	for _, p := range []Process{nspawn, container, {}} {
		holder(p)
		if m := list(t, r).Swap; m == nil || m.Holder != p {
			t.Errorf("the marker of %+v was removed", p)
		}
		_, err := r.Register(t.Context(), Registration{Name: "a", Recipe: "a"})
		wantCode(t, err, belay.CodeSwapInProgress)
	}
	holder(died)
	if list(t, r).Swap != nil {
		t.Error("the marker of a dead holder is left")
	}
	for _, recipe := range []string{"a", "b"} {
		_, err := r.Register(t.Context(), Registration{Name: "a", Recipe: recipe})
		wantCode(t, err, belay.CodeSwapInProgress)
	}
	_ = unlock(s.lock)
	register(t, r, Registration{Name: "a", Recipe: "a"})
}

// Rule: while a swap is in progress, no workflow registers if its marker was lost with the state
// file, also not after Repair, which is refused.
func TestALostMarkerOpensNothing(t *testing.T) {
	r := open(t)
	s := begin(t, r, "b")
	refused := func(err error) {
		t.Helper()
		wantCode(t, err, belay.CodeSwapInProgress)
		if !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("the refusal is no EAGAIN: %v", err)
		}
	}
	if err := os.Remove(filepath.Join(r.path, stateName)); err != nil {
		t.Fatal(err)
	}
	_, err := r.Register(t.Context(), Registration{Name: "a", Recipe: "a"})
	refused(err)
	_, err = r.Begin(t.Context(), "c")
	refused(err)
	write(t, r, "damaged")
	if _, err := r.List(t.Context()); belay.CodeOf(err) != belay.CodeConflict {
		t.Fatalf("the damage was not reported: %v", err)
	}
	_, err = r.Repair(t.Context())
	refused(err)
	_, err = r.Register(t.Context(), Registration{Name: "a", Recipe: "a"})
	refused(err)
	wantCode(t, s.End(t.Context(), nil), belay.CodeLeaseLost)
	if _, err := r.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	register(t, r, Registration{Name: "a", Recipe: "a"})
}

// Rule: a stopped holder keeps its swap.
func TestAStoppedHolderKeepsItsSwap(t *testing.T) {
	r := open(t)
	cmd := started(t, "swap", r.path, "b")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if m := list(t, r).Swap; m == nil || m.Holder.PID != cmd.Process.Pid {
		t.Errorf("the marker is %+v", m)
	}
}

// Rule: the log is renamed when it is long, so that at most two files exist, and an event that was
// interrupted in the middle is removed.
func TestTheLogIsBounded(t *testing.T) {
	r := open(t)
	r.maxLog = 1000
	for range 20 {
		if err := begin(t, r, "b").End(t.Context(), errors.New(strings.Repeat("why", 10000))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{logName, oldLogName} {
		if info, err := os.Stat(filepath.Join(r.path, name)); err != nil || info.Size() > 1000+2*maxText {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	f, err := os.OpenFile(filepath.Join(r.path, logName), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"event":"beg`)
	_ = f.Close()
	if err := begin(t, r, "b").End(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := events(t, r); !strings.HasSuffix(got, "begin done") {
		t.Errorf("the log has %s", got)
	}
}

// Rule: a call waits for the lock until its context ends, and then names the process that has it.
func TestTheLockHasABound(t *testing.T) {
	r := open(t)
	cmd := started(t, "lock", r.path)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := r.Register(ctx, Registration{Name: "a", Recipe: "a"})
	wantCode(t, err, belay.CodeUnavailable)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), cmdPID(cmd.Process.Pid)) {
		t.Errorf("the error does not name process %d: %v", cmd.Process.Pid, err)
	}
	end(cmd)
	register(t, r, Registration{Name: "a", Recipe: "a"})
}

// Rule: however many calls give up while another process has the lock, at most one goroutine of a
// Registry waits for it, and later calls work.
func TestCallsThatGiveUpLeaveOneGoroutine(t *testing.T) {
	r := open(t)
	cmd := started(t, "lock", r.path)
	before := runtime.NumGoroutine()
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		_, err := r.Register(ctx, Registration{Name: "a", Recipe: "a"})
		cancel()
		wantCode(t, err, belay.CodeUnavailable)
	}
	if n := runtime.NumGoroutine() - before; n > 3 { // the timers of the contexts may have some
		t.Errorf("%d goroutines are left", n)
	}
	end(cmd)
	register(t, r, Registration{Name: "a", Recipe: "a"})
}

func cmdPID(pid int) string { return Process{PID: pid}.String() }

// Rule: a watcher sees each change that lasts: registration, request, swap, death.
func TestAWatcherSeesChanges(t *testing.T) {
	r := open(t)
	cmd, other := bystander(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := make(chan State)
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := r.Watch(ctx, func(s State) error { seen <- s; return nil }); err != nil {
			t.Error(err)
		}
	})
	expect := func(what string, ok func(State) bool) {
		t.Helper()
		for s := range seen {
			if ok(s) {
				return
			}
		}
		t.Fatalf("the watcher does not see %s", what)
	}
	expect("the beginning", func(s State) bool { return len(s.Workflows) == 0 })
	register(t, r, Registration{Name: "a", Recipe: "a", Owner: other, Preemptible: true})
	expect("a registration", func(s State) bool { return names(s) == "a" })
	s := begin(t, r, "b")
	expect("a swap", func(s State) bool { return s.Swap != nil })
	if _, err := s.Conflicts(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("a request", func(s State) bool { return s.Workflows[0].PreemptRequested })
	end(cmd)
	expect("a death", func(s State) bool { return len(s.Workflows) == 0 })
	cancel()
	go func() {
		for range seen {
		}
	}()
	watching.Wait()
	close(seen)
}

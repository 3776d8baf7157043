package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: a mode that cannot be loaded delays the other modes by one swap at a time; it alone is tried less
// and less often.
func TestAModeThatCannotBeLoadedWedgesNoOther(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(24*time.Hour))
	s.do(s.setResource())
	bad := s.submit(requires("broken"))
	s.all(w)
	tries := 0
	// swap lets swaps to the mode "broken" fail until the resource has another mode.
	swap := func() {
		for r := s.resource(); r.Swap != nil; r = s.resource() {
			if s.row(r.Swap.Execution).State != belay.Running {
				s.all(w)
			}
			l := leaseOf(s.row(r.Swap.Execution))
			if r.Swap.To != "broken" {
				s.settled(s.settle(l, belay.OutcomeSucceeded))
				return
			}
			tries++
			s.settled(s.settle(l, belay.OutcomeFailed, func(c *belay.Settlement) {
				c.Failure = &belay.Failure{Class: belay.ClassPermanent, Message: "no memory"}
			}))
			if r := s.resource(); r.Wants[len(r.Wants)-1].Mode != "broken" {
				t.Fatalf("after the failure the modes wait in the order %q", r.modes())
			}
		}
	}
	for i := range 30 {
		mode := []string{"A", "B"}[i%2]
		id := s.submit(requires(mode))
		s.all(w)
		swap()
		began := s.now
		for s.row(id).State != belay.Succeeded {
			if s.now.Sub(began) > 2*time.Minute {
				t.Fatalf("round %d: an execution of the mode %s still waits: %+v", i, mode, s.resource())
			}
			for _, l := range s.all(w) {
				s.settled(s.settle(l, belay.OutcomeSucceeded))
			}
			s.pass(time.Second)
			s.sweepGates()
			swap()
		}
	}
	if r := s.resource(); tries < 3 || tries > 20 || s.row(bad).WaitsAt() != gpu {
		t.Errorf("after %d tries of the broken mode the resource is %+v", tries, r)
	}
}

// Rule: a resource does not forget that a swap has failed when nothing waits for the mode for a while.
func TestAFailureIsRememberedWithoutAnyoneWaiting(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	s.swapping(w)
	s.swapped(w, belay.OutcomeFailed)
	for _, e := range s.parked(LineOf(gpu, "A")) {
		s.settled(s.act(e.ID, belay.ActionCancel))
	}
	s.pass(time.Second)
	s.settled(&Admit{Gate: gpu, Heads: MaxHeads, Modes: []string{"A"}, Lead: "A"})
	s.submit(requires("A"))
	s.all(w)
	if r := s.resource(); r.Swap != nil || len(r.Wants) != 1 {
		t.Fatalf("before the time the resource is %+v", r)
	}
	s.pass(swapRetry)
	s.sweepGates()
	s.swapped(w, belay.OutcomeSucceeded)
}

// Rule: when a mode gets its turn and executions of it still wait afterwards, all modes that waited come before
// it, so that three modes whose lines never become empty all have their turns.
func TestEachModeHasItsTurn(t *testing.T) {
	r := Resource{}
	now := At(time.Unix(2_000_000_000, 0))
	for _, mode := range []string{"A", "B", "C"} {
		r.want(mode, now)
	}
	var turns []string
	for range 9 {
		next := r.wanted(0, now)
		turns = append(turns, next)
		r.become(next, now)
		r.entered(next, now)
		for r.wanted(1, now) == "" {
			if now = now.Add(time.Second); now.Sub(r.ReadyAt) > 2*belay.DefaultMaxWait.D() {
				t.Fatalf("%v have had their turns, and the resource does not drain: %+v", turns, r)
			}
		}
	}
	if want := strings.Split("ABCABCABC", ""); !slices.Equal(turns, want) {
		t.Errorf("the turns are %v", turns)
	}
}

// Rule: a swap for which there is no worker fails when its time is over, like one that takes too long.
func TestASwapWithoutAWorkerEnds(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(24*time.Hour))
	s.do(s.setResource(func(t *belay.ResourceTerms) { t.Swap.Workflow = "jbo" }))
	s.submit(requires("A"))
	s.all(w)
	id := s.resource().Swap.Execution
	s.pass(belay.DefaultSwapTimeout.D() - 1000)
	s.do(&Tick{Execution: id})
	if r := s.resource(); r.Swap == nil {
		t.Fatalf("before its time the resource is %+v", r)
	}
	s.pass(time.Millisecond)
	s.settled(&Tick{Execution: id})
	if r := s.resource(); r.Swap != nil || r.Failures != 1 || !strings.Contains(r.Error, "no worker started it") {
		t.Errorf("after its time the resource is %+v", r)
	}
}

// Rule: if an operator corrects the workflow, its version or its queue, a swap that no worker has begun is
// cancelled, and another swap begins with the new terms at once. A swap that has begun continues.
func TestNewTermsReplaceASwapThatHasNotBegun(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(24*time.Hour))
	s.do(s.setResource(func(t *belay.ResourceTerms) { t.Swap.Workflow = "jbo" }))
	waits := s.submit(requires("A"))
	s.all(w)
	wrong := s.resource().Swap.Execution
	s.settled(s.setResource(func(t *belay.ResourceTerms) { t.Swap.Workflow, t.MaxWait = "jbo", within(2*time.Minute) }))
	if r := s.resource(); r.Swap == nil || r.Swap.Execution != wrong {
		t.Fatalf("other terms with the same workflow: %+v", r)
	}
	s.settled(s.setResource())
	if e, r := s.row(wrong), s.resource(); e.State != belay.Cancelled || r.Swap == nil || r.Swap.Execution == wrong ||
		r.Failures != 0 {
		t.Fatalf("the swap is %s and the resource %+v", e.State, r)
	}
	right := s.win(w)
	s.settled(s.setResource(func(t *belay.ResourceTerms) { t.Swap.Queue = "other" }))
	if e := s.row(right.Execution); e.State != belay.Running || e.CancelBy != 0 {
		t.Fatalf("a swap that has begun is %s", e.State)
	}
	s.settled(s.settle(right, belay.OutcomeSucceeded))
	if r := s.resource(); r.Mode != "" || r.Swap == nil || r.Swap.From != "" || r.Swap.To != "A" {
		t.Errorf("the mode that the former workflow has loaded counts: %+v", r)
	}
	if e := s.row(waits); e.WaitsAt() != gpu {
		t.Errorf("it does not wait: %+v", *e)
	}
}

// Rule: a workflow that changes modes from now on does not know the present mode, so the mode is loaded
// again; runs that use it end first.
func TestANewSwapperLoadsThePresentModeAgain(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(24*time.Hour))
	first := s.run(w, requires("A"))
	s.settled(s.setResource())
	second := s.submit(requires("A"))
	if won := s.all(w); len(won) != 0 {
		t.Fatalf("%v runs in a mode that the workflow has not loaded", executionsOf(won))
	}
	if r := s.resource(); r.Swap != nil {
		t.Fatalf("a swap begins beside a run: %+v", r)
	}
	s.settled(s.settle(first, belay.OutcomeSucceeded))
	if r := s.resource(); r.Swap == nil || r.Swap.From != "" || r.Swap.To != "A" {
		t.Fatalf("after the run the resource is %+v", r)
	}
	s.swapped(w, belay.OutcomeSucceeded)
	l := s.win(w)
	if l.Execution != second {
		t.Fatalf("%s runs, want %s", l.Execution, second)
	}
	s.settled(s.settle(l, belay.OutcomeSucceeded))
	s.settled(s.setResource(func(t *belay.ResourceTerms) { t.Swap.Timeout = within(time.Minute) }))
	if r := s.resource(); r.Mode != "A" {
		t.Errorf("another timeout makes the mode unknown: %+v", r)
	}
	s.settled(s.setResource(func(t *belay.ResourceTerms) { t.Swap.Version = "2" }))
	if r := s.resource(); r.Mode != "" || r.ReadyAt != 0 {
		t.Errorf("a new version of the workflow knows the mode: %+v", r)
	}
}

// Rule: a resource lets through at most 200 executions that have not started a run yet, so that another mode
// waits for a bounded number of runs. It lets further ones through while workers start them, or when the
// earlier ones have lost their places.
func TestAResourceLetsABoundedNumberThrough(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	first := s.run(w, requires("A"))
	submits := make([]Command, maxLet+MaxHeads)
	for i := range submits {
		submits[i] = s.submission(requires("B"))
	}
	s.batch(submits...)
	for range len(submits) {
		if len(s.parked(LineOf(gpu, "B"))) == len(submits) {
			break
		}
		s.settled(s.claims(w, 100))
	}
	through := func() int {
		held, _ := s.held(gpu)
		n := 0
		for _, id := range held {
			if s.row(id).State == belay.Pending {
				n++
			}
		}
		return n
	}
	s.settled(s.settle(first, belay.OutcomeSucceeded))
	if n := through(); n != maxLet {
		t.Fatalf("%d were let through at once, want %d", n, maxLet)
	}
	s.pass(time.Second)
	s.sweepGates()
	if n := through(); n != maxLet {
		t.Fatalf("%d were let through after a second, want %d", n, maxLet)
	}
	started := 0
	for range MaxHeads / 10 {
		started += len(s.all(w))
	}
	if n := through(); n != maxLet {
		t.Errorf("%d were let through when %d had started", n, started)
	}
	if n := len(s.parked(LineOf(gpu, "B"))); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// Rule: an operator's preempt of a run that uses a resource gives it no place at the head of its lane.
func TestAnOperatorsPreemptIsNoYield(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	l := s.run(w, preemptible("A"))
	s.pass(time.Minute)
	s.do(s.act(l.Execution, belay.ActionPreempt))
	s.settled(s.settle(l, belay.OutcomePreempted))
	if e := s.row(l.Execution); e.DueAt != s.now || strings.Contains(e.ReasonText, "mode") {
		t.Errorf("after the preempt it is due at %d, now is %d: %s", e.DueAt, s.now, e.ReasonText)
	}
}

// Rule: all preemptible runs are asked to yield, however many use the resource.
func TestAllHoldersAreAskedToYield(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	submits := make([]Command, maxAsked+20)
	for i := range submits {
		submits[i] = s.submission(preemptible("A"))
	}
	s.batch(submits...)
	for n := 0; n < len(submits); {
		won := len(s.settled(s.claims(w, 100)).Claims)
		if n += won; won == 0 {
			t.Fatalf("only %d runs began", n)
		}
	}
	s.submit(requires("B"))
	s.all(w)
	s.pass(2 * time.Minute)
	asked := make(map[belay.ExecutionID]int)
	for queue := []Command{&AskHolders{Gate: gpu}}; len(queue) > 0; queue = queue[1:] {
		switch c := queue[0].(type) {
		case *AskHolders:
			queue = append(queue, s.do(c).Follow...)
		case *Yield:
			asked[c.Execution]++
		}
	}
	if len(asked) != len(submits) {
		t.Errorf("%d of %d runs were asked", len(asked), len(submits))
	}
}

// Rule: each swap has a larger number than all swaps before it, also if the row of the resource was lost or
// the clock goes back; so a resource can refuse the owner of a former swap.
func TestTheNumbersOfSwapsGrow(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(24*time.Hour))
	s.do(s.setResource())
	last := int64(0)
	for i := range 6 {
		s.submit(requires([]string{"A", "B"}[i%2]))
		s.all(w)
		for tries := 0; s.resource().Swap == nil && tries < 5; tries++ {
			s.pass(time.Second)
			s.sweepGates()
		}
		r := s.resource()
		if r.Swap == nil || r.Number <= last || r.Number < int64(r.Swap.Since) || r.Number >= 1<<53 {
			t.Fatalf("swap %d has the number %d after %d: %+v", i, r.Number, last, r.Swap)
		}
		last = r.Number
		s.swapped(w, belay.OutcomeSucceeded)
		s.settled(s.settle(s.win(w), belay.OutcomeSucceeded))
		s.pass(10 * time.Second)
		s.sweepGates()
	}
}

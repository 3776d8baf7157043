package machine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// Rule: executions of one mode share a resource, and those of another mode wait until it is free.
func TestModesOfAResourceExcludeEachOther(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	a1, a2, b := s.submit(requires("A")), s.submit(requires("A")), s.submit(requires("B"))
	won := s.all(w)
	if diff := cmp.Diff([]belay.ExecutionID{a1, a2}, executionsOf(won)); diff != "" {
		t.Fatalf("claimed (-want +got):\n%s", diff)
	}
	if e := s.row(b); e.WaitsAt() != gpu || e.DueAt == 0 || e.Ready() != 0 {
		t.Fatalf("it is not parked: %+v", *e)
	}
	s.settled(s.settle(won[0], belay.OutcomeSucceeded))
	if got := s.all(w); len(got) > 0 {
		t.Fatalf("%v runs beside the mode A", executionsOf(got))
	}
	s.settled(s.settle(won[1], belay.OutcomeSucceeded))
	if got := executionsOf(s.all(w)); !slices.Equal(got, []belay.ExecutionID{b}) {
		t.Fatalf("then %v runs, want %s", got, b)
	}
	if r := s.resource(); r.Mode != "B" || len(r.Wants) > 0 {
		t.Errorf("the resource is %+v", r)
	}
}

// Rule: when an execution of another mode has waited for the maximum wait, no run of the present mode
// starts any more, from that moment on and whenever the sweeper checks the gate.
func TestNoRunOfThePresentModeStartsAfterTheMaximumWait(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	s.do(s.setResource())
	first := s.inMode(w, requires("A"))
	b := s.submit(requires("B"))
	s.all(w)
	s.pass(time.Minute - 1000)
	second := s.run(w, requires("A")) // in time
	s.pass(time.Millisecond)
	late := s.submit(requires("A"))
	if won := s.all(w); len(won) > 0 {
		t.Fatalf("%v starts after the maximum wait", executionsOf(won))
	}
	s.settled(s.settle(first, belay.OutcomeSucceeded))
	s.settled(s.settle(second, belay.OutcomeSucceeded))
	s.swapped(w, belay.OutcomeSucceeded)
	if won := executionsOf(s.all(w)); !slices.Equal(won, []belay.ExecutionID{b}) {
		t.Fatalf("%v runs after the swap, want %s", won, b)
	}
	if e := s.row(late); e.WaitsAt() != gpu {
		t.Errorf("it does not wait: %+v", *e)
	}
}

// Rule: a mode stays for its minimum residency although no run uses it and others wait.
func TestAModeStaysForItsResidency(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	s.do(s.setResource())
	l := s.inMode(w, requires("A"))
	s.submit(requires("B"))
	s.all(w)
	s.settled(s.settle(l, belay.OutcomeSucceeded))
	for range 9 {
		s.pass(time.Second)
		s.sweepGates()
		if r := s.resource(); r.Mode != "A" || r.Swap != nil {
			t.Fatalf("after %s it is %+v", s.now.Sub(r.ReadyAt), r)
		}
	}
	if won := s.all(w); len(won) > 0 {
		t.Fatalf("%v runs", executionsOf(won))
	}
	s.settled(s.settle(s.run(w, requires("A")), belay.OutcomeSucceeded))
	s.pass(2 * time.Second)
	s.sweepGates()
	s.pass(time.Second)
	s.sweepGates()
	if r := s.resource(); r.Swap == nil || r.Swap.From != "A" || r.Swap.To != "B" {
		t.Errorf("after the residency it is %+v", r)
	}
}

// Rule: a preemptible run is asked to yield when another mode is due. It is charged nothing, and
// returns to the head of its lane; a run that is not preemptible is not asked.
func TestAPreemptibleRunYields(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	s.do(s.setResource())
	yielding := s.inMode(w, preemptible("A"))
	staying := s.run(w, requires("A"))
	s.overdue(w)
	later := s.submit(preemptible("A"))
	s.all(w)
	s.sweepGates()
	e := s.row(yielding.Execution)
	if !e.Preempting || s.row(staying.Execution).Preempting {
		t.Fatalf("asked to yield: %t, want true; and %t, want false", e.Preempting, s.row(staying.Execution).Preempting)
	}
	deeds := s.records[e.ID].deeds
	if d := deeds[len(deeds)-1]; d.Kind != "preempt" || d.Actor != System || d.Reason == "" {
		t.Errorf("the history says %+v", *d)
	}
	s.settled(s.settle(yielding, belay.OutcomePreempted))
	e = s.row(yielding.Execution)
	if e.Attempts != 0 || e.State != belay.Pending || e.Places != 0 || e.DueAt != e.CreatedAt {
		t.Errorf("after it yielded it is %+v", *e)
	}
	s.settled(s.settle(staying, belay.OutcomeSucceeded))
	s.swapped(w, belay.OutcomeSucceeded)
	l := s.all(w)[0] // B
	s.settled(s.settle(l, belay.OutcomeSucceeded))
	s.pass(10 * time.Second)
	s.sweepGates()
	s.pass(time.Second)
	s.sweepGates()
	s.swapped(w, belay.OutcomeSucceeded)
	if won := executionsOf(s.all(w)); !slices.Equal(won, []belay.ExecutionID{e.ID, later}) {
		t.Errorf("then %v run, want %s first and %s second", won, e.ID, later)
	}
}

// Rule: a lock on an execution whose resource has another mode is refused with 423 and a time; the
// refusal makes the resource change its mode, so that a later lock succeeds.
func TestALockWaitsForTheModeOfItsResource(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	s.do(s.setResource())
	s.settled(s.settle(s.inMode(w, requires("A")), belay.OutcomeSucceeded))
	s.pass(10 * time.Second)
	id := s.submit(requires("B"))
	lock := s.lock(belay.WorkerID(s.id()), id)
	refused := func() {
		t.Helper()
		_, replies := s.batch(lock)
		var e *belay.Error
		if !errors.As(replies[0].Err, &e) || e.Code != belay.CodeSwapInProgress || e.Code.Status() != 423 ||
			e.RetryAfter <= 0 {
			t.Fatalf("the lock is answered with %v", replies[0].Err)
		}
		for _, c := range replies[0].Follow {
			s.settled(c)
		}
	}
	refused()
	s.pass(time.Second)
	s.sweepGates()
	refused()
	s.swapped(w, belay.OutcomeSucceeded)
	s.do(lock)
	s.pass(wishFor)
	s.sweepGates()
	if r := s.resource(); len(r.Wants) > 0 || r.Mode != "B" {
		t.Errorf("the wish outlives its time: %+v", r)
	}
}

// Rule: an execution that changes a mode may be lost, killed, cancelled or deleted at any step, also
// together with the commands that follow; the resource is then free for the next swap, and one row of
// the audit says so.
func TestALostSwapWedgesNothing(t *testing.T) {
	for _, step := range []struct {
		name, audit string
		after       time.Duration // until the next swap begins
		lose        func(s *stage, w belay.WorkerID)
	}{
		{"cancelled before its first run", "swap_failed", swapRetry, func(s *stage, _ belay.WorkerID) {
			s.do(s.act(s.resource().Swap.Execution, belay.ActionCancel))
		}},
		{"failed", "swap_failed", swapRetry, func(s *stage, w belay.WorkerID) {
			s.do(s.settle(s.win(w), belay.OutcomeFailed, func(c *belay.Settlement) {
				c.Failure = &belay.Failure{Class: belay.ClassPermanent, Message: "no memory"}
			}))
		}},
		{"lost for the last time", "swap_failed", swapRetry, func(s *stage, w belay.WorkerID) {
			for range belay.DefaultMaxLosses {
				x := s.worker("doomed", ttl(time.Second))
				l := s.win(x)
				s.pass(time.Second)
				s.do(&Expire{x})
				s.do(&Lose{Execution: l.Execution, Token: l.Token, Worker: x, Newest: true})
			}
		}},
		{"over its time", "swap_failed", swapRetry, func(s *stage, w belay.WorkerID) {
			l := s.win(w)
			s.pass(11 * time.Minute)
			s.do(&Tick{Execution: l.Execution})
		}},
		{"succeeded, unheard", "swapped", 0, func(s *stage, w belay.WorkerID) {
			s.do(s.settle(s.win(w), belay.OutcomeSucceeded))
		}},
		{"gone", "swap_orphan_cleared", swapRetry, func(s *stage, _ belay.WorkerID) {
			delete(s.records, s.resource().Swap.Execution)
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			s := newStage(t)
			w := s.worker("w", ttl(time.Hour))
			s.swapping(w)
			step.lose(s, w) // the commands that follow are lost
			s.pass(2 * lineLook)
			s.sweepGates()
			s.pass(lineLook)
			s.sweepGates()
			if step.after > 0 {
				if r := s.resource(); r.Swap != nil || r.Mode != "" || r.Failures != 1 || r.Error == "" {
					t.Fatalf("the resource is %+v", r)
				}
				s.pass(step.after)
				s.sweepGates()
				s.swapped(w, belay.OutcomeSucceeded)
			}
			if won := s.all(w); len(won) != 1 {
				t.Fatalf("%d executions run after the swap", len(won))
			}
			n := 0
			for _, a := range s.audit {
				if a.Action == step.audit && a.Name == string(gpu) && a.Actor == System {
					n++
				}
			}
			if n != 1 {
				t.Errorf("the audit has %d rows %s", n, step.audit)
			}
		})
	}
}

// Rule: after each failure in a row a resource waits twice as long before its next swap, up to a limit;
// an operator who sets its terms makes it try again at once.
func TestAFailedSwapIsRetriedLater(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(24*time.Hour))
	s.swapping(w)
	for i, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		s.swapped(w, belay.OutcomeFailed)
		r := s.resource()
		got := r.Wants[0].RetryAt.Sub(s.now)
		if r.Failures != i+1 || r.Wants[0].Failures != i+1 || got != want*time.Second || r.Error != "no memory" {
			t.Fatalf("failure %d: it tries again in %s: %+v", i+1, got, r)
		}
		s.to(r.Wants[0].RetryAt - 1)
		s.sweepGates()
		if r := s.resource(); r.Swap != nil {
			t.Fatalf("failure %d: the next swap begins early", i+1)
		}
		s.pass(time.Second)
		s.sweepGates()
	}
	s.swapped(w, belay.OutcomeFailed)
	s.settled(s.setResource(func(t *belay.ResourceTerms) { t.MaxWait = within(2 * time.Minute) }))
	s.swapped(w, belay.OutcomeSucceeded)
	if r := s.resource(); r.Mode != "A" || r.Failures != 0 || r.Error != "" {
		t.Errorf("after the success it is %+v", r)
	}
}

// Rule: the swap of a resource cannot be started, repeated or copied by a client, and a child of it
// cannot wait for its end.
func TestOnlyTheRulesStartASwap(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	s.refused(s.submission(func(b *belay.Submission) { b.Swap = "gpu" }), belay.CodeInvalid)
	s.swapping(w)
	id := s.resource().Swap.Execution
	s.refused(s.act(id, belay.ActionFork), belay.CodeConflict)
	l := s.win(w)
	child := s.submission(requires("A"))
	s.childOf(l, "load")(&child.Submission)
	s.refused(child, belay.CodeConflict)
	s.settled(s.settle(l, belay.OutcomeFailed, func(c *belay.Settlement) {
		c.Failure = &belay.Failure{Class: belay.ClassPermanent}
	}))
	s.refused(s.act(id, belay.ActionRetry), belay.CodeConflict)
	if n := len(s.records[id].letters); n != 0 {
		t.Errorf("the failed swap left %d dead letters", n)
	}
	s.refused(s.lock(belay.WorkerID(s.id()), id, func(r *belay.LockRequest) { r.Reopen = true }), belay.CodeConflict)
}

// Rule: each swap serves the executions that wait, however many they are, even if another mode is due too.
func TestASwapServesThoseWhoWait(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	l := s.run(w, requires("A"))
	for range 5 {
		s.submit(requires("B"))
		s.submit(requires("C"))
	}
	s.all(w)
	s.pass(2 * time.Minute) // both are overdue
	s.settled(s.settle(l, belay.OutcomeSucceeded))
	if won := s.all(w); len(won) != 5 {
		t.Fatalf("%d executions run after the swap, want the 5 of the mode B", len(won))
	}
	if r := s.resource(); r.Mode != "B" || !slices.Equal(r.modes(), []string{"C"}) {
		t.Errorf("the resource is %+v", r)
	}
}

// Rule: more modes than have lines of their own may wait; all of them have their turn.
func TestManyModesWait(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	l := s.run(w, requires("A"))
	modes := maxWants + 20
	r := Resource{Mode: "A", ReadyAt: s.now}
	for i := range modes {
		if got := r.want(fmt.Sprint("m", i), s.now); got != (i < maxWants) {
			t.Fatalf("mode %d has a line: %t", i, got)
		}
	}
	// the row with a hundred modes, of which none waits any more
	g, err := ReadGate(s.objects[GateRef(gpu)])
	if err != nil {
		t.Fatal(err)
	}
	r.Wants = r.Wants[:maxWants]
	g.Resource = &r
	o := copied(s.objects[GateRef(gpu)])
	if o.Body, err = gateCodec.encode(g); err != nil {
		t.Fatal(err)
	}
	s.objects[o.ObjectRef] = o
	b := s.submit(requires("B"))
	s.all(w)
	if e := s.row(b); e.Gate != gpu {
		t.Fatalf("it waits at %q", e.Gate)
	}
	s.settled(s.settle(l, belay.OutcomeSucceeded))
	for range 3 {
		s.pass(time.Second)
		s.sweepGates()
		for _, l := range s.all(w) {
			if l.Execution == b {
				return
			}
		}
	}
	t.Errorf("it still waits: %+v", *s.row(b))
}

// Rule: an operator's terms are checked before they are stored.
func TestTheTermsOfAResourceAreChecked(t *testing.T) {
	s := newStage(t)
	for name, change := range map[string]func(*belay.ResourceTerms){
		"negative residency":       func(t *belay.ResourceTerms) { t.MinResidency = -1 },
		"negative wait":            func(t *belay.ResourceTerms) { t.MaxWait = -1 },
		"too long a wait":          func(t *belay.ResourceTerms) { t.MaxWait = belay.MaxResourceWait + 1 },
		"residency above the wait": func(t *belay.ResourceTerms) { t.MaxWait = within(time.Second) },
		"no workflow":              func(t *belay.ResourceTerms) { t.Swap.Workflow = "" },
		"a control character":      func(t *belay.ResourceTerms) { t.Swap.Queue = "a\x1fb" },
		"a negative timeout":       func(t *belay.ResourceTerms) { t.Swap.Timeout = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.refused(s.setResource(change), belay.CodeInvalid)
		})
	}
	s.t = t
	s.refused(s.set(gpu, belay.GateSetResource), belay.CodeInvalid)
	s.refused(s.set(gpu, belay.GatePause, func(c *belay.GateChange) { c.Resource = new(belay.ResourceTerms) }),
		belay.CodeInvalid)
	s.refused(s.submission(requires("")), belay.CodeInvalid)
	s.refused(s.submission(requires("a\x1fb")), belay.CodeInvalid)
}

package machine

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Guarantee G7 (ends and cancels are final): during the grace period of a cancel the owner's writes
// are accepted. When the grace period is over, they are refused, and Tick ends the execution.
func TestCancelGivesAGracePeriod(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w", ttl(hour)), policy(belay.Policy{CancelGrace: belay.Duration(time.Second)}))
	s.do(s.act(l.Execution, belay.ActionCancel))
	if got := s.row(l.Execution).CheckAt; got != s.now.Add(time.Second) {
		t.Errorf("looked at again at %d", got)
	}
	s.pass(time.Second - time.Microsecond)
	s.do(s.save(l, belay.KindStep, "salvage"))
	s.do(&Tick{Execution: l.Execution})
	s.is(l.Execution, "running+cancelling")
	s.pass(time.Microsecond)
	s.refused(s.save(l, belay.KindStep, "late"), belay.CodeLeaseLost, belay.CauseCancelled)
	s.refused(s.settle(l, belay.OutcomeSucceeded), belay.CodeLeaseLost, belay.CauseCancelled)
	s.do(&Tick{Execution: l.Execution})
	s.is(l.Execution, "cancelled")
}

// Guarantee G7 (ends and cancels are final): an execution whose cancel was acknowledged ends as
// cancelled, however its run ends.
func TestEveryEndOfACancelledRunIsCancelled(t *testing.T) {
	ends := map[string]func(*stage, belay.Lease){
		"loss": func(s *stage, l belay.Lease) { s.lose(l) },
		"order": func(s *stage, l belay.Lease) {
			s.do(&End{Worker: l.Worker})
			s.do(&Lose{l.Execution, l.Token, l.Worker, false, true, false})
		},
		"steal":   func(s *stage, l belay.Lease) { s.do(s.act(l.Execution, belay.ActionSteal)) },
		"grace":   func(s *stage, l belay.Lease) { s.tickAt(l.Execution, hour) },
		"timeout": func(s *stage, l belay.Lease) { s.tickAt(l.Execution, 40*time.Minute) },
		"release": func(s *stage, l belay.Lease) {
			s.do(s.beat(l.Worker))
			s.do(&Release{l.Execution, l.Token, l.Worker, 0})
		},
	}
	for o := belay.OutcomeSucceeded; o <= belay.OutcomeCancelled; o++ {
		if o != belay.OutcomeLost {
			ends[o.String()] = func(s *stage, l belay.Lease) { s.do(s.settle(l, o)) }
		}
	}
	for name, end := range ends {
		for _, p := range []belay.Policy{
			{}, {OnLost: belay.Fail}, {MaxAttempts: 1}, {IdleTimeout: belay.Duration(30 * time.Minute)},
			{RunTimeout: belay.Duration(time.Second)}, {Timeout: belay.Duration(time.Second)},
		} {
			s := newStage(t)
			p.CancelGrace = belay.Duration(40 * time.Minute)
			l := s.run(s.worker("w"), policy(p))
			s.do(s.act(l.Execution, belay.ActionPause))
			s.do(s.act(l.Execution, belay.ActionCancel))
			end(s, l)
			t.Log(name, p)
			s.is(l.Execution, "cancelled")
			if r := s.records[l.Execution]; len(r.letters) != 0 || !r.runs[0].Final || r.execution.Class != 0 {
				t.Errorf("%s: letters %v, run %+v", name, r.letters, *r.runs[0])
			}
		}
	}
}

// tickAt lets time pass and sends a Tick.
func (s *stage) tickAt(id belay.ExecutionID, after time.Duration) {
	s.t.Helper()
	s.pass(after)
	s.do(&Tick{Execution: id})
}

// A second cancel can shorten the grace period but not lengthen it.
func TestCancelAgainOnlyShortensTheGrace(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	cancel := func(d time.Duration) *Act {
		return s.act(l.Execution, belay.ActionCancel, func(c *belay.Control) { c.Grace = belay.Duration(d) })
	}
	s.do(cancel(time.Minute))
	seq := s.row(l.Execution).Seq
	s.do(cancel(hour))
	s.do(cancel(time.Minute))
	if e := s.row(l.Execution); e.CancelBy != s.now.Add(time.Minute) || e.Seq != seq {
		t.Errorf("cancelled by %s, seq %d, was %d", e.CancelBy.Sub(s.now), e.Seq, seq)
	}
	s.do(cancel(time.Second))
	if e := s.row(l.Execution); e.CancelBy != s.now.Add(time.Second) || e.Seq != seq+1 {
		t.Errorf("cancelled by %s, seq %d", e.CancelBy.Sub(s.now), e.Seq)
	}
}

// Children are cancelled with their parent unless their policy exempts them. The cancel reaches one
// level of descendants after the other.
func TestChildrenAreCancelledWithTheirParent(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	root := s.run(w)
	s.submit(s.childOf(root, "a"))
	child := s.win(w)
	grandchild := s.submit(s.childOf(child, "b"))
	free := s.submit(s.childOf(root, "c"), policy(belay.Policy{Abandon: true}))
	s.refused(&CancelChild{child.Execution}, belay.CodeConflict)
	s.do(s.act(root.Execution, belay.ActionCancel))
	// refused, because the grandchild's parent is not being cancelled yet
	s.refused(&CancelChild{grandchild}, belay.CodeConflict)
	s.do(&CancelChild{child.Execution})
	s.do(&CancelChild{child.Execution})
	s.do(&CancelChild{grandchild})
	s.refused(&CancelChild{free}, belay.CodeConflict)
	s.is(child.Execution, "running+cancelling")
	s.is(grandchild, "cancelled")
	s.is(free, "pending")
	s.do(s.settle(root, belay.OutcomeCancelled))
	s.do(s.settle(child, belay.OutcomeSucceeded))
	s.is(child.Execution, "cancelled")
	s.do(s.settle(s.win(w), belay.OutcomeSucceeded))
	s.is(free, "succeeded")
	if e := s.row(root.Execution); e.Open != 0 {
		t.Errorf("%d open children", e.Open)
	}
}

// A parent has a reason (a Parting) to cancel its children when it is cancelled, when it ends and
// when it is reopened. Part notes that no child is left to cancel for this reason, and is accepted
// once for each reason. If the parent starts another child while it is being cancelled, Part is
// accepted again.
func TestAPartingIsNotedOnce(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	root := s.run(w, policy(belay.Policy{MaxAttempts: 1}))
	children := []belay.ExecutionID{s.submit(s.childOf(root, "a"), policy(belay.Policy{Abandon: true}))}
	has := func(want bool, when string) {
		t.Helper()
		parting := s.row(root.Execution).Parting()
		if parting != 0 != want {
			t.Errorf("%s: parting %d", when, parting)
		}
		s.refused(&Part{root.Execution, parting + 4}, belay.CodeConflict)
		if parting == 0 {
			s.refused(&Part{Execution: root.Execution}, belay.CodeConflict)
			return
		}
		seq := s.row(root.Execution).Seq
		s.do(&Part{root.Execution, parting})
		s.refused(&Part{root.Execution, parting}, belay.CodeConflict)
		if e := s.row(root.Execution); e.Seq != seq || e.Parting() != 0 {
			t.Errorf("%s: parted at seq %d, was %d: %d is left", when, e.Seq, seq, e.Parting())
		}
	}
	has(false, "while it goes on")
	s.do(s.act(root.Execution, belay.ActionCancel))
	has(true, "once it is cancelled")
	children = append(children, s.submit(s.childOf(root, "b"), policy(belay.Policy{Abandon: true})))
	has(true, "with another child")
	s.do(s.settle(root, belay.OutcomeCancelled))
	has(true, "at its end")
	s.do(s.act(root.Execution, belay.ActionRetry))
	has(true, "run again")
	for _, id := range children {
		s.do(s.act(id, belay.ActionCancel))
	}
	has(false, "when all have ended")
}

// CancelChild is refused for a root, which has no parent.
func TestCancelChildNeedsAParent(t *testing.T) {
	s := newStage(t)
	s.refused(&CancelChild{s.submit()}, belay.CodeConflict)
	s.refused(&CancelChild{belay.ExecutionID(s.id())}, belay.CodeNotFound)
}

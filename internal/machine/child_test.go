package machine

import (
	"encoding/json"
	"testing"

	"github.com/belaydev/belay"
)

// Guarantee G4 (transitions are atomic): the end of a child and the signal to its parent are
// written in one batch, in whatever state the parent is. The signal wakes a waiting parent, also a
// paused one. A parent that has ended is not changed.
func TestAChildsEndReachesItsParent(t *testing.T) {
	for _, c := range []struct {
		name string
		play func(*stage, belay.Lease)
		want string
		told bool
	}{
		{"running", func(*stage, belay.Lease) {}, "running", true},
		{"waiting", func(s *stage, p belay.Lease) {
			s.do(s.settle(p, belay.OutcomeSuspended))
		}, "waiting(signal due)", true},
		{"sleeping", func(s *stage, p belay.Lease) {
			s.do(s.settle(p, belay.OutcomeSuspended, func(x *belay.Settlement) { x.Wait = hour }))
		}, "waiting(timer due)", true},
		{"paused", func(s *stage, p belay.Lease) {
			s.do(s.settle(p, belay.OutcomeSuspended))
			s.do(s.act(p.Execution, belay.ActionPause))
		}, "paused(waiting due)", true},
		{"pending", func(s *stage, p belay.Lease) {
			s.do(s.settle(p, belay.OutcomeReleased))
		}, "pending(released)", true},
		{"being cancelled", func(s *stage, p belay.Lease) {
			s.do(s.act(p.Execution, belay.ActionCancel))
		}, "running+cancelling", true},
		{"ended", func(s *stage, p belay.Lease) { s.do(s.settle(p, belay.OutcomeSucceeded)) }, "succeeded", false},
	} {
		s := newStage(t)
		w := s.worker("w")
		parent := s.run(w)
		s.submit(s.childOf(parent, "kid"))
		child := s.win(w)
		c.play(s, parent)
		seq := s.row(parent.Execution).Seq
		changes, _ := s.batch(s.settle(child, belay.OutcomeSucceeded))
		t.Log(c.name)
		s.is(parent.Execution, c.want)
		p := s.records[parent.Execution]
		if p.execution.Open != 0 || len(changes.Executions) != 2 {
			t.Errorf("%s: %d open children, %d executions in the commit", c.name, p.execution.Open,
				len(changes.Executions))
		}
		if !c.told {
			if len(p.signals) != 0 || p.execution.Seq != seq {
				t.Errorf("%s: %+v", c.name, p.signals)
			}
			continue
		}
		x := p.signals[0]
		var payload struct{ Execution, State string }
		if err := json.Unmarshal(x.Payload, &payload); err != nil || payload.Execution != child.Execution.String() ||
			payload.State != "succeeded" {
			t.Errorf("%s: payload %s: %v", c.name, x.Payload, err)
		}
		if x.Name != "kid" || x.Child != child.Execution || x.Seq != seq+1 || p.execution.SignalSeq != x.Seq {
			t.Errorf("%s: signal %+v", c.name, *x)
		}
	}
}

// The end of an execution is delivered to its parent and to no other ancestor.
func TestAnEndIsDeliveredToNoGrandparent(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	root := s.run(w)
	s.submit(s.childOf(root, "a"))
	mid := s.win(w)
	s.submit(s.childOf(mid, "b"))
	leaf := s.win(w)
	_, r := s.batch(
		s.settle(root, belay.OutcomeSuspended), s.settle(mid, belay.OutcomeSuspended),
		s.settle(leaf, belay.OutcomeSucceeded))
	for _, r := range r {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	s.is(root.Execution, "waiting(signal)")
	s.is(mid.Execution, "waiting(signal due)")
	mid = s.win(w)
	s.do(s.settle(mid, belay.OutcomeSucceeded))
	s.is(root.Execution, "waiting(signal due)")
	if e := s.row(root.Execution); e.Open != 0 {
		t.Errorf("%d open children", e.Open)
	}
}

// If several children end in one batch, each end is counted and delivered to the parent.
func TestChildrenEndInOneFold(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	parent := s.run(w)
	var ends []Command
	for _, k := range []string{"a", "b", "c"} {
		s.submit(s.childOf(parent, k))
		ends = append(ends, s.settle(s.win(w), belay.OutcomeSucceeded))
	}
	if got := s.row(parent.Execution).Open; got != 3 {
		t.Fatalf("%d open children, want 3", got)
	}
	ends = append(ends, s.settle(parent, belay.OutcomeSuspended)) // the parent has not seen the ends of its children
	s.batch(ends...)
	s.is(parent.Execution, "waiting(signal due)")
	if p := s.records[parent.Execution]; p.execution.Open != 0 || len(p.signals) != 3 {
		t.Errorf("%d open children, %d signals", p.execution.Open, len(p.signals))
	}
}

// The end of a child whose parent was deleted is delivered to no execution; the child still ends.
func TestAChildOutlivesAPrunedParent(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	parent := s.run(w)
	s.submit(s.childOf(parent, "a"), policy(belay.Policy{Abandon: true}))
	child := s.win(w)
	s.do(s.settle(parent, belay.OutcomeSucceeded))
	delete(s.records, parent.Execution)
	s.refused(&CancelChild{child.Execution}, belay.CodeConflict)
	s.do(s.settle(child, belay.OutcomeSucceeded))
	s.is(child.Execution, "succeeded")
}

// Only root executions leave dead letters (guarantee G10): the parent handles a child's failure.
func TestAChildLeavesNoDeadLetter(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	parent := s.run(w)
	s.submit(s.childOf(parent, "a"), policy(belay.Policy{MaxAttempts: 1}))
	child := s.win(w)
	s.do(s.settle(child, belay.OutcomeFailed, failing))
	if r := s.records[child.Execution]; len(r.letters) != 0 || r.execution.Class == 0 {
		t.Errorf("letters %v, %+v", r.letters, *r.execution)
	}
}

// A child belongs to the generation in which its parent started it, and the parent may be reopened.
// If the child had ended before the parent was reopened, its result stays valid. If the child ends
// after a reopening with the same input, its end is delivered, so that the parent can use the
// result. If it ends after a reopening with another input, its end is not delivered, because the
// parent must not use the result. Every end lowers Open, the parent's number of open children.
func TestChildrenOfAnEarlierGeneration(t *testing.T) {
	for _, c := range []struct {
		name  string
		input json.RawMessage
		want  string
		told  int
	}{
		{"same input", nil, "waiting(signal due)", 1},
		{"another input", json.RawMessage(`2`), "waiting(signal)", 0},
	} {
		s := newStage(t)
		w := s.worker("w")
		old := s.run(w, policy(belay.Policy{MaxAttempts: 1}))
		s.submit(s.childOf(old, "a"), policy(belay.Policy{Abandon: true}))
		child := s.win(w)
		s.do(s.settle(old, belay.OutcomeFailed, failing))
		s.do(s.act(old.Execution, belay.ActionRequeue, func(x *belay.Control) { x.Input = c.input }))
		parent := s.win(w)
		s.submit(s.childOf(parent, "a"))
		young := s.win(w)
		if got := s.row(parent.Execution).Open; got != 2 {
			t.Fatalf("%s: %d open children, want 2", c.name, got)
		}
		s.do(s.settle(parent, belay.OutcomeSuspended))
		s.do(s.settle(child, belay.OutcomeSucceeded))
		t.Log(c.name)
		s.is(parent.Execution, c.want)
		if p := s.records[parent.Execution]; p.execution.Open != 1 || len(p.signals) != c.told {
			t.Errorf("%s: %d open children, %d signals", c.name, p.execution.Open, len(p.signals))
		}
		s.do(s.settle(young, belay.OutcomeSucceeded))
		s.is(parent.Execution, "waiting(signal due)")
	}
}

// If a parent is reopened while a child of its earlier generation is open, CancelChild cancels that
// child, because the new generation starts a child of its own. CancelChild refuses to cancel the
// new child.
func TestAnOutlivedChildIsCancelled(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	old := s.run(w, policy(belay.Policy{MaxAttempts: 1}))
	s.submit(s.childOf(old, "a"))
	child := s.win(w)
	s.batch(s.settle(old, belay.OutcomeFailed), s.act(old.Execution, belay.ActionRetry))
	s.do(&CancelChild{child.Execution})
	s.is(child.Execution, "running+cancelling")
	parent := s.win(w)
	s.submit(s.childOf(parent, "a"))
	young := s.win(w)
	s.refused(&CancelChild{young.Execution}, belay.CodeConflict)
	s.do(s.settle(child, belay.OutcomeSucceeded))
	s.is(child.Execution, "cancelled")
}

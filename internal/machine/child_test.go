package machine

import (
	"encoding/json"
	"testing"

	"github.com/belaydev/belay"
)

// G4: a child's end and the signal that tells its parent are one fold, wherever
// the parent stands. It wakes a parent that waits, also one that is paused, and
// leaves one that ended alone.
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

// Each level tells the one above it and no other.
func TestThreeLevels(t *testing.T) {
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

// Children that end in one fold each count and each tell.
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
	ends = append(ends, s.settle(parent, belay.OutcomeSuspended)) // it knows of none of the ends
	s.batch(ends...)
	s.is(parent.Execution, "waiting(signal due)")
	if p := s.records[parent.Execution]; p.execution.Open != 0 || len(p.signals) != 3 {
		t.Errorf("%d open children, %d signals", p.execution.Open, len(p.signals))
	}
}

// A parent that was pruned is told nothing, and its child ends all the same.
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

// Only roots have dead letters (G10): a child's failure is its parent's matter.
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

// Children of an earlier generation: what had finished counts; what ends after
// a reopening with the same input is told, so that it may count; with another
// input it is not, for nothing may be built on it. Each is counted out of Open.
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

// A dependent child that is still open when its parent was reopened is found
// and cancelled: the new generation starts its own.
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

package machine

import (
	"testing"

	"github.com/belaydev/belay"
)

// Only an ended root without open children and without an open dead letter can be deleted. The audit
// names the actor and the reason. A deleted execution cannot be reopened or forked.
func TestDelete(t *testing.T) {
	s, _, id := failedExecution(t)
	s.refused(s.act(id, belay.ActionDelete), belay.CodeConflict) // the dead letter is open
	s.do(&EditLetter{belay.DeadLetterChange{Execution: id, Action: belay.DeadLetterDiscard}})
	seq := s.row(id).Seq
	deletion := s.act(id, belay.ActionDelete)
	r := s.do(deletion)
	e := s.row(id)
	if e.Reason != Forgotten || e.State != belay.Failed || e.Seq != seq+1 || r.Seq != e.Seq || r.Execution == nil {
		t.Errorf("%+v, answered %+v", *e, r)
	}
	a := s.audit[len(s.audit)-1]
	if a.ObjectRef != (ObjectRef{ExecutionObject, id.String()}) || a.Action != "delete" || a.Actor != "ann" ||
		a.Version != e.Seq || a.At != s.now {
		t.Errorf("audit %+v", *a)
	}
	n := len(s.audit)
	if again := s.do(deletion); !again.Replayed || len(s.audit) != n || s.row(id).Seq != e.Seq {
		t.Errorf("repeated: %+v, %d rows of audit", again, len(s.audit)-n)
	}
	s.do(s.act(id, belay.ActionDelete)) // another operation id; the execution is being deleted already
	if len(s.audit) != n {
		t.Errorf("%d rows of audit for an execution that was being deleted", len(s.audit)-n)
	}
	for _, action := range []belay.Action{belay.ActionRetry, belay.ActionRequeue} {
		s.refused(s.act(id, action), belay.CodeConflict)
	}
}

// An execution that has not ended, a child, and an execution with a child that has not ended are not
// deleted.
func TestDeleteIsRefused(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	l := s.run(w)
	s.refused(s.act(l.Execution, belay.ActionDelete), belay.CodeConflict)
	child := s.submit(s.childOf(l, "child"), policy(belay.Policy{Abandon: true}))
	s.refused(s.act(child, belay.ActionDelete), belay.CodeConflict)
	s.do(s.settle(l, belay.OutcomeSucceeded))
	s.refused(s.act(l.Execution, belay.ActionDelete), belay.CodeConflict)
	s.do(s.act(child, belay.ActionCancel))
	s.refused(s.act(child, belay.ActionDelete), belay.CodeConflict)
	s.do(s.act(l.Execution, belay.ActionDelete))
	s.refused(s.act(belay.ExecutionID{9}, belay.ActionDelete), belay.CodeNotFound)
}

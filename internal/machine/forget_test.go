package machine

import (
	"fmt"
	"slices"
	"strings"
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

// The audit has each action of an operator on an execution or its dead letter once, with its reason, also when several
// come in one batch. A repeated, a refused or a useless action, and an action of the system, leave no entry.
func TestActionsOfOperatorsAreAudited(t *testing.T) {
	s, _, id := failedExecution(t)
	discard := &EditLetter{belay.DeadLetterChange{
		Execution: id, Generation: 1, Action: belay.DeadLetterDiscard, Actor: "ann", Note: "old", Op: belay.OpID{7},
	}}
	fork := s.act(id, belay.ActionFork)
	fork.Fork, fork.At, fork.Reason = s.id(), "", "to look at it"
	_, replies := s.batch(discard, fork, s.act(id, belay.ActionRetry), s.act(id, belay.ActionPause),
		s.act(id, belay.ActionPause), s.act(id, belay.ActionDelete))
	s.do(discard)
	if n := len(replies); replies[n-1].Err == nil {
		t.Fatal("an execution that has not ended was deleted")
	}
	var got []string
	for _, a := range s.audit {
		got = append(got, fmt.Sprintf("%s %s %s: %s", a.Actor, a.Action, a.ObjectRef, a.Reason))
	}
	want := []string{
		"ann discard {dead_letter " + id.String() + ".1}: old",
		"ann fork {execution " + id.String() + "}: the fork is " + fork.Fork.String() + "; to look at it",
		"ann retry {execution " + id.String() + "}: because", "ann pause {execution " + id.String() + "}: because",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

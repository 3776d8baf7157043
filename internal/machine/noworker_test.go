package machine

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// An execution that fails without a worker fails only while it is due: not before its due time, not
// while it is paused, and not if a worker has claimed it since the engine read it. A suspended
// execution fails too when its wait is over.
func TestAnExecutionFailsWithoutAWorkerOnlyWhileItIsDue(t *testing.T) {
	s := newStage(t)
	alone := policy(belay.Policy{OnNoWorker: belay.FailNoWorker})
	w := s.worker("w", ttl(24*hour))
	fail := func(id belay.ExecutionID) *NoWorker { return &NoWorker{id, s.row(id).Seq} }

	late := s.submit(alone, func(x *belay.Submission) { x.DueAt = s.now.Add(hour).Time() })
	s.refused(fail(late), belay.CodeConflict)
	s.pass(time.Hour)
	s.do(fail(late))
	s.is(late, "failed")
	e := s.row(late)
	if e.Message != "no workers available" || e.FailedBy != belay.FailedByDispatcher {
		t.Errorf("it failed with %q, by %s", e.Message, e.FailedBy)
	}
	s.do(s.act(late, belay.ActionRetry))
	if e := s.row(late); e.FailedBy != 0 {
		t.Errorf("run again, it is still ended by %s", e.FailedBy)
	}
	s.do(s.act(late, belay.ActionPause))
	s.refused(fail(late), belay.CodeConflict)
	s.do(s.act(late, belay.ActionCancel))

	id := s.submit(alone)
	seen := fail(id)
	l := s.win(w)
	s.refused(seen, belay.CodeConflict)
	s.do(s.settle(l, belay.OutcomeSuspended, func(x *belay.Settlement) { x.Wait = hour }))
	s.refused(fail(id), belay.CodeConflict)
	s.pass(time.Hour)
	s.do(fail(id))
	s.is(id, "failed")
}

// Rule: the only values of OnNoWorker are wait, fail and the empty string, which means wait. An
// external execution never waits for a worker, so its OnNoWorker cannot be fail.
func TestSubmissionsWithAWrongOnNoWorkerAreRefused(t *testing.T) {
	s := newStage(t)
	for _, x := range []belay.Submission{
		{Policy: belay.Policy{OnNoWorker: belay.FailNoWorker}, External: true},
		{Policy: belay.Policy{OnNoWorker: "stop"}},
	} {
		x.ID, x.Workflow = belay.ExecutionID(s.id()), "job"
		s.refused(&Submit{Submission: x}, belay.CodeInvalid)
	}
}

package machine

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// A pause of a running execution takes effect when the run ends, unless the execution ends with the
// run. The run's outcome decides the state to which resume returns.
func TestPauseARunningExecution(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*stage, belay.Lease)
		want string
		then string // after resume
	}{
		"released": {func(s *stage, l belay.Lease) {
			s.do(s.settle(l, belay.OutcomeReleased))
		}, "paused(pending)", "pending(released)"},
		"preempted": {func(s *stage, l belay.Lease) {
			s.do(s.settle(l, belay.OutcomePreempted))
		}, "paused(pending)", "pending(preempted)"},
		"failed": {func(s *stage, l belay.Lease) {
			s.do(s.settle(l, belay.OutcomeFailed))
		}, "paused(pending)", "pending(retry later)"},
		"suspended": {func(s *stage, l belay.Lease) {
			s.do(s.settle(l, belay.OutcomeSuspended))
		}, "paused(waiting)", "waiting(signal)"},
		"lost": {func(s *stage, l belay.Lease) { s.lose(l) }, "paused(pending)", "pending(lost)"},
		"stolen": {func(s *stage, l belay.Lease) {
			s.do(s.act(l.Execution, belay.ActionSteal))
		}, "paused(pending)", "pending(released)"},
		"succeeded": {func(s *stage, l belay.Lease) { s.do(s.settle(l, belay.OutcomeSucceeded)) }, "succeeded", ""},
	} {
		s := newStage(t)
		l := s.run(s.worker("w"))
		s.do(s.act(l.Execution, belay.ActionPause))
		s.do(s.save(l, belay.KindStep, "goes on until its next safe point"))
		c.end(s, l)
		t.Log(name)
		s.is(l.Execution, c.want)
		if r := s.do(s.claims(s.worker("w2"), 5)); len(r.Claims) != 0 {
			t.Errorf("%s: claimed while paused", name)
		}
		if c.then != "" {
			s.do(s.act(l.Execution, belay.ActionResume))
			s.is(l.Execution, c.then)
		}
	}
}

// If an operator pauses a running execution and resumes it before the run has ended, the pause has
// no effect.
func TestResumeBeforeTheRunPaused(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	s.do(s.act(l.Execution, belay.ActionPause))
	s.do(s.act(l.Execution, belay.ActionResume))
	s.do(s.settle(l, belay.OutcomeReleased))
	s.is(l.Execution, "pending(released)")
}

// Pausing a scheduled execution takes it back from its worker, which cannot accept it any more.
// No attempt is counted.
func TestPauseAScheduledExecution(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	id := s.submit()
	r := s.do(&Schedule{Execution: id, Worker: w, Secret: belay.Secret{1}})
	s.do(s.act(id, belay.ActionPause))
	s.is(id, "paused(pending)")
	s.refused(&Accept{w, id, r.Execution.Token, 1}, belay.CodeConflict)
	s.do(s.act(id, belay.ActionResume))
	s.is(id, "pending(released)")
}

// While an execution is paused, it keeps its signals, which wake it after resume, and its timers
// and deadlines continue.
func TestTimeAndSignalsGoOnWhilePaused(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(24*time.Hour))
	wait := func(p belay.Policy, d time.Duration) belay.ExecutionID {
		l := s.run(w, policy(p))
		s.do(s.settle(l, belay.OutcomeSuspended, func(x *belay.Settlement) { x.Wait = d }))
		s.do(s.act(l.Execution, belay.ActionPause))
		return l.Execution
	}
	signalled, timer, deadline := wait(belay.Policy{}, 0), wait(belay.Policy{}, hour),
		wait(belay.Policy{Timeout: belay.Duration(hour)}, 0)
	seq := s.do(s.signal(signalled, "go")).Seq
	s.pass(hour)
	s.do(s.act(signalled, belay.ActionResume))
	s.is(signalled, "waiting(signal due)")
	s.do(s.act(timer, belay.ActionResume))
	s.is(timer, "waiting(timer due)")
	s.do(&Tick{Execution: deadline})
	s.is(deadline, "failed")
	l := s.win(w) // the signalled execution, which was due first
	if l.Execution != signalled || s.row(signalled).SignalSeq != seq {
		t.Errorf("won %s, want %s", l.Execution, signalled)
	}
	s.do(s.save(l, belay.KindWait, "go"))
}

// The start timeout also runs during a pause: the execution fails in the pause, and not only after
// a resume.
func TestStartTimeoutCountsWhilePaused(t *testing.T) {
	s := newStage(t)
	id := s.submit(policy(belay.Policy{StartTimeout: belay.Duration(time.Minute)}))
	s.do(s.act(id, belay.ActionPause))
	if got := s.row(id).CheckAt; got != s.now.Add(time.Minute) {
		t.Errorf("looked at again at %d", got)
	}
	s.tickAt(id, time.Minute)
	s.is(id, "failed")
}

// A repeated pause or resume is no error and adds no event.
func TestPauseAndResumeAgain(t *testing.T) {
	s := newStage(t)
	id := s.submit()
	s.do(s.act(id, belay.ActionResume))
	s.do(s.act(id, belay.ActionPause))
	s.do(s.act(id, belay.ActionPause))
	if got := s.row(id).Seq; got != 2 {
		t.Errorf("seq %d after one pause, want 2", got)
	}
	v := View(s.records[id].history())
	if v.Reason == nil || v.Reason.Code != "paused" {
		t.Errorf("reason %+v", v.Reason)
	}
}

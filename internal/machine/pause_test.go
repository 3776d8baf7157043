package machine

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// A running execution pauses when its run gives it back, however it does, and
// the run's outcome says where it goes on.
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

// A pause that comes too late for the run it meant is over with the run.
func TestResumeBeforeTheRunPaused(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	s.do(s.act(l.Execution, belay.ActionPause))
	s.do(s.act(l.Execution, belay.ActionResume))
	s.do(s.settle(l, belay.OutcomeReleased))
	s.is(l.Execution, "pending(released)")
}

// Pausing what is scheduled takes it back from its worker, who cannot accept it
// any more, and charges nothing.
func TestPauseAScheduledExecution(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	id := s.submit()
	r := s.do(&Schedule{Execution: id, Worker: w, Secret: belay.Secret{1}})
	s.do(s.act(id, belay.ActionPause))
	s.is(id, "paused(pending)")
	s.refused(&Accept{w, id, r.Execution.Token}, belay.CodeConflict)
	s.do(s.act(id, belay.ActionResume))
	s.is(id, "pending(released)")
}

// While paused signals are kept and wake it at the end, and its timers and
// deadlines go on.
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
	l := s.win(w) // the one that was due first: the signal's
	if l.Execution != signalled || s.row(signalled).SignalSeq != seq {
		t.Errorf("won %s, want %s", l.Execution, signalled)
	}
	s.do(s.save(l, belay.KindWait, "go"))
}

// The time that nobody starts it in counts while paused, so that resuming does
// not spring a deadline long past.
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

// Doing what is already done is no error and no event.
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

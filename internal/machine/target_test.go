package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

const charge = belay.GateID("target:payments:charge")

// calls sends a call of the target by a step of the run.
func (s *stage) calls(l belay.Lease, step string, o belay.Outcome) belay.TargetAnswer {
	s.t.Helper()
	return s.settled(&CallTarget{belay.TargetCall{Lease: l, Target: charge.Name(), Step: step, Outcome: o}}).Target
}

// opened makes five calls of the target fail.
func (s *stage) opened(l belay.Lease) {
	s.t.Helper()
	for n := range breakerFailures {
		if a := s.calls(l, "pay", 0); !a.Open || a.Probe {
			s.t.Fatalf("call %d of a closed breaker: %+v", n, a)
		}
		s.calls(l, "pay", belay.OutcomeFailed)
	}
}

func (s *stage) breaker(id belay.GateID) Breaker {
	s.t.Helper()
	g, err := ReadGate(s.objects[GateRef(id)])
	if err != nil || g.Breaker == nil {
		s.t.Fatalf("%s has no breaker: %v", id, err)
	}
	return *g.Breaker
}

// meets ends a run because a step met the open circuit breaker of the target.
func (s *stage) meets(l belay.Lease) {
	s.t.Helper()
	s.settled(s.settle(l, belay.OutcomeFailed, func(c *belay.Settlement) {
		c.Failure = &belay.Failure{Class: belay.ClassCircuitOpen, Message: "it is open", Target: charge.Name()}
	}))
}

// Rule: five failed calls within a minute open the circuit breaker. It then refuses calls for 30 s,
// and after that lets one step at a time through as a probe. If a probe sends its request again
// because the reply was lost, it still counts as one probe. Two probes that succeed close the
// breaker.
func TestAStepAsksTheBreaker(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w", ttl(time.Hour)))
	s.opened(l)
	if a := s.calls(l, "pay", 0); a.Open || a.Why == "" || a.RetryAfter != breakerOpenFor {
		t.Fatalf("an open breaker answers %+v", a)
	}
	s.pass(breakerOpenFor)
	for range 2 {
		if a := s.calls(l, "a", 0); !a.Open || !a.Probe {
			t.Fatalf("the probe gets %+v", a)
		}
	}
	if a := s.calls(l, "b", 0); a.Open {
		t.Fatal("two probes run")
	}
	s.calls(l, "a", belay.OutcomeReleased) // the call failed for a reason for which the target is not to blame
	if b := s.breaker(charge); b.State != BreakerHalfOpen || b.Successes != 0 || len(b.Probes) != 0 {
		t.Fatalf("after a probe without result it is %+v", b)
	}
	s.calls(l, "b", 0)
	s.calls(l, "b", belay.OutcomeSucceeded)
	s.calls(l, "b", belay.OutcomeSucceeded) // a repetition, because the reply was lost
	if b := s.breaker(charge); b.State != BreakerHalfOpen || b.Successes != 1 {
		t.Fatalf("after one probe it is %+v", b)
	}
	s.calls(l, "c", 0)
	s.calls(l, "c", belay.OutcomeSucceeded)
	if b := s.breaker(charge); b.State != BreakerClosed || b.Failures != 0 {
		t.Fatalf("after two probes it is %+v", b)
	}
}

// Rule: a probe that fails opens the breaker again. The breaker ignores results that arrive after
// that. If a probe does not report its end in time, the breaker lets another probe through. Probes
// that never report their end do not keep their places for ever.
func TestAProbeOfAStepFails(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w", ttl(time.Hour)))
	s.opened(l)
	s.pass(breakerOpenFor)
	s.calls(l, "a", 0)
	s.calls(l, "a", belay.OutcomeFailed)
	s.calls(l, "a", belay.OutcomeSucceeded)
	b := s.breaker(charge)
	if b.State != BreakerOpen || b.Successes != 0 || b.NextRetryAt != s.now.Add(2*breakerOpenFor) {
		t.Fatalf("it is %+v", b)
	}
	s.pass(2 * breakerOpenFor)
	for i := range 2 * breakerProbesMax {
		if a := s.calls(l, fmt.Sprint("lost ", i), 0); !a.Open || !a.Probe {
			t.Fatalf("beside %d slow probes the next call gets %+v", i, a)
		}
		if a := s.calls(l, "another", 0); a.Open {
			t.Fatalf("another call may begin at once beside %d probes", i+1)
		}
		if b := s.breaker(charge); len(b.Probes) > breakerProbesMax {
			t.Fatalf("it is %+v", b)
		}
		s.pass(breakerOpenMax)
	}
	s.calls(l, fmt.Sprint("lost ", 2*breakerProbesMax-1), belay.OutcomeSucceeded)
	if b := s.breaker(charge); b.Successes != 1 {
		t.Fatalf("after a slow probe that succeeded it is %+v", b)
	}
}

// Rule: an execution whose step met an open breaker waits at the target's gate, and no attempt is
// counted. It continues as soon as the breaker is half open or closed. While the breaker is half
// open, each check of the waiting executions lets at most as many of them through as probes may
// run.
func TestAStepWaitsForItsTarget(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	first := s.run(w, policy(belay.Policy{MaxAttempts: 1}))
	s.opened(first)
	var ids []belay.ExecutionID
	for range 9 {
		ids = append(ids, s.submit(policy(belay.Policy{MaxAttempts: 1})))
	}
	for _, c := range s.settled(s.claims(w, 9)).Claims {
		s.meets(leaseOf(&c.Execution))
	}
	if n := len(s.parked(charge)); n != 9 {
		t.Fatalf("%d of 9 wait for the target", n)
	}
	for range 29 {
		s.pass(time.Second)
		s.sweepGates()
	}
	if won := s.all(w); len(won) > 0 {
		t.Fatalf("%d runs began while the breaker was open", len(won))
	}
	s.pass(time.Second)
	s.sweepGates()
	var won []belay.Lease
	for n := range breakerSuccesses {
		more := s.all(w)
		if len(more) != breakerProbes {
			t.Fatalf("%d runs began to try the target", len(more))
		}
		if a := s.calls(more[0], "pay", 0); !a.Probe {
			t.Fatalf("run %d gets %+v", n, a)
		}
		s.calls(more[0], "pay", belay.OutcomeSucceeded)
		won = append(won, more...)
	}
	s.sweepGates()
	if won = append(won, s.all(w)...); len(won) != 9 {
		t.Fatalf("%d of 9 continued after the target was back", len(won))
	}
	for _, id := range ids {
		if e := s.row(id); e.Attempts != 0 || e.State != belay.Running {
			t.Errorf("%s is %s after %d attempts", id, e.State, e.Attempts)
		}
	}
}

// Rule: if a run reports an open circuit although the breaker lets calls through again, the
// execution does not wait at the target's gate. It is due again after a few seconds, so that an
// owner that always reports an open circuit does not cause one run after the other without a pause.
func TestAnOpenTargetKeepsNoStep(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	s.meets(l)
	if e := s.row(l.Execution); e.Gate != "" || e.State != belay.Pending || e.DueAt != s.now.Add(circuitWait) {
		t.Errorf("it is %+v", *e)
	}
}

// Rule: a paused target refuses the calls of steps until the pause ends.
func TestAPausedTargetRefusesCalls(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	l := s.run(w)
	s.do(s.set(charge, belay.GatePause, func(c *belay.GateChange) { c.Until = s.now.Add(time.Minute).Time() }))
	if a := s.calls(l, "pay", 0); a.Open || a.RetryAfter != time.Minute {
		t.Fatalf("a paused target answers %+v", a)
	}
	s.meets(l)
	s.pass(time.Minute)
	s.sweepGates()
	if won := s.all(w); len(won) != 1 {
		t.Fatalf("%d runs began after the pause", len(won))
	}
}

// Rule: only the owner of a run may ask a breaker and report to it, so a run that is over cannot
// open a breaker. The target must be a valid name, and only a failure of the class circuit_open may
// name a target.
func TestStrangersChangeNoBreaker(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	call := func(change func(*belay.TargetCall)) *CallTarget {
		c := belay.TargetCall{Lease: l, Target: "x", Step: "pay", Outcome: belay.OutcomeFailed}
		change(&c)
		return &CallTarget{c}
	}
	s.refused(call(func(c *belay.TargetCall) { c.Lease.Secret[0]++ }), belay.CodeLeaseLost)
	for _, name := range []string{"", "a\x00b", "a\nb", fmt.Sprintf("%0*d", belay.MaxName+1, 0), "\xff"} {
		s.refused(call(func(c *belay.TargetCall) { c.Target = name }), belay.CodeInvalid)
	}
	s.refused(call(func(c *belay.TargetCall) { c.Step = "a\x00b" }), belay.CodeInvalid)
	s.refused(call(func(c *belay.TargetCall) { c.Outcome = belay.OutcomeLost }), belay.CodeInvalid)
	for _, f := range []belay.Failure{
		{Class: belay.ClassTransient, Target: "x"}, {Class: belay.ClassCircuitOpen, Target: "a\x00b"},
	} {
		s.refused(s.settle(l, belay.OutcomeFailed, func(c *belay.Settlement) { c.Failure = &f }), belay.CodeInvalid)
	}
	s.do(s.settle(l, belay.OutcomeSucceeded))
	s.refused(call(func(*belay.TargetCall) {}), belay.CodeLeaseLost)
}

// Rule: if the submission and a step of an execution name the same target, and the half-open
// breaker has let the run through as a probe, then the call of the step is this probe: the step may
// call the target at once, its result counts once, and no further probe runs at the same time.
func TestAStepOfAProbeIsTheProbe(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	other := s.run(w)
	s.opened(other)
	for range 9 {
		s.submit(target(charge.Name()))
	}
	if won := s.all(w); len(won) > 0 {
		t.Fatalf("%d runs began at an open breaker", len(won))
	}
	s.pass(breakerOpenFor)
	s.sweepGates()
	won := s.all(w)
	if len(won) == 0 {
		t.Fatal("no run began to try the target")
	}
	for n, l := range won {
		if a := s.calls(l, "pay", 0); !a.Open || !a.Probe {
			t.Fatalf("the step of probe %d gets %+v", n, a)
		}
		if a := s.calls(other, "pay", 0); a.Open {
			t.Fatalf("another step may call the target beside the step of probe %d", n)
		}
	}
	s.sweepGates()
	if more := s.all(w); len(more) > 0 {
		t.Fatalf("%d runs began beside the probes", len(more))
	}
	s.calls(won[0], "pay", belay.OutcomeSucceeded)
	s.settled(s.settle(won[0], belay.OutcomeSucceeded))
	if b := s.breaker(charge); b.State != BreakerHalfOpen || b.Successes != 1 {
		t.Errorf("after one probe it is %+v", b)
	}
}

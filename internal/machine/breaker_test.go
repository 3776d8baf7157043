package machine

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: five failures within a minute open the circuit breaker of a target. While it is open, no
// execution that names the target starts, and no attempt is counted for such an execution. After 30
// s the breaker lets one probe at a time through; when two probes have succeeded, it lets all
// executions through.
func TestABreakerKeepsWorkFromADeadTarget(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	gate := belay.GateID("target:payments:charge")
	var ids []belay.ExecutionID
	for range 12 {
		ids = append(ids, s.submit(target("payments:charge"), policy(belay.Policy{MaxAttempts: 3})))
	}
	calls := 0
	try := func(o belay.Outcome, slots int) {
		t.Helper()
		for _, c := range s.settled(s.claims(w, slots)).Claims {
			calls++
			s.settled(s.settle(leaseOf(&c.Execution), o))
		}
	}
	for range 5 {
		try(belay.OutcomeFailed, 1)
	}
	breaker := func() Breaker {
		t.Helper()
		g, err := ReadGate(s.objects[GateRef(gate)])
		if err != nil || g.Breaker == nil {
			t.Fatalf("there is no breaker: %v", err)
		}
		return *g.Breaker
	}
	if b := breaker(); b.State != BreakerOpen || b.NextRetryAt != s.now.Add(breakerOpenFor) {
		t.Fatalf("after five failures it is %+v", b)
	}
	try(belay.OutcomeFailed, 10)
	if calls != 5 || len(s.parked(gate)) < 7 {
		t.Fatalf("%d calls, and %d are parked", calls, len(s.parked(gate)))
	}
	// each probe fails and doubles the wait, up to 300 s
	for _, wait := range []time.Duration{30, 60, 120, 240, 300, 300} {
		s.pass(wait*time.Second - time.Millisecond)
		s.sweepGates()
		if try(belay.OutcomeFailed, 10); breaker().State != BreakerOpen {
			t.Fatalf("it lets a probe through in less than %d s", wait)
		}
		s.pass(time.Millisecond)
		s.sweepGates()
		if n := len(s.parked(gate)); n > 11 {
			t.Fatalf("%d are parked", n)
		}
		try(belay.OutcomeFailed, 10)
		if b := breaker(); b.State != BreakerOpen {
			t.Fatalf("after failed probes it is %+v", b)
		}
	}
	if calls != 5+6 {
		t.Errorf("%d calls reached the target", calls)
	}
	s.pass(breakerOpenMax)
	for range 20 {
		s.sweepGates()
		try(belay.OutcomeSucceeded, 10)
		s.pass(time.Second)
	}
	if b := breaker(); b.State != BreakerClosed {
		t.Errorf("it is %+v", b)
	}
	for _, id := range ids {
		if e := s.row(id); e.State != belay.Succeeded {
			t.Errorf("%s is %s after %d attempts, gate %q", id, e.State, e.Attempts, e.Gate)
		}
	}
}

// Rule: if a target is down and each of five slots takes another execution as soon as a call has
// failed, at most ten calls reach the target in the first 65 s: five calls that fail, four calls
// that run when the fifth fails, and one probe.
func TestFiveSlotsCallADeadTargetTenTimes(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	for range 50 {
		s.submit(target("x"))
	}
	var running []belay.Lease
	calls := 0
	for began := s.now; s.now < began.Add(65*time.Second); s.pass(100 * time.Millisecond) {
		s.sweepGates()
		if len(running) > 0 {
			s.settled(s.settle(running[0], belay.OutcomeFailed))
			running = running[1:]
		}
		for _, c := range s.settled(s.claims(w, 5-len(running))).Claims {
			calls++
			running = append(running, leaseOf(&c.Execution))
		}
	}
	if calls != 10 {
		t.Errorf("%d calls", calls)
	}
}

// Rule: the commit that ends a failed run also counts the failure at the circuit breaker. So a
// later claim finds the breaker open if that failure opens it.
func TestAFailureCountsInTheCommitOfItsRun(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	for range 2 * breakerFailures {
		s.submit(target("x"))
	}
	commands := make([]Command, 0, breakerFailures+1)
	for _, c := range s.settled(s.claims(w, breakerFailures)).Claims {
		commands = append(commands, s.settle(leaseOf(&c.Execution), belay.OutcomeFailed))
	}
	_, replies := s.batch(append(commands, s.claims(w, breakerFailures))...)
	if won := replies[breakerFailures].Claims; len(won) > 0 {
		t.Errorf("%d runs began at a target of which %d calls have failed", len(won), breakerFailures)
	}
	for i, r := range replies[:breakerFailures] {
		for _, f := range r.Follow {
			if o, ok := f.(*Outcome); ok {
				t.Errorf("the failure %d is counted later, by %+v", i, *o)
			}
		}
	}
}

// Rule: the outcomes of runs do not change a state of the breaker that an operator has forced,
// until the operator makes the breaker automatic again.
func TestAForcedBreakerStays(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	gate := belay.GateID("target:x")
	s.do(s.set(gate, belay.GateForceOpen))
	id := s.submit(target("x"))
	s.pass(30 * time.Minute)
	if won := s.all(w); len(won) > 0 || s.row(id).Gate != gate {
		t.Fatalf("it started: %v", won)
	}
	s.sweepGates()
	if s.row(id).Gate != gate {
		t.Fatal("time let it through")
	}
	forced := func() Breaker {
		t.Helper()
		g, err := ReadGate(s.objects[GateRef(gate)])
		if err != nil || g.Breaker == nil {
			t.Fatalf("there is no breaker: %v", err)
		}
		return *g.Breaker
	}
	opened := forced().OpenedAt
	s.do(s.set(gate, belay.GateForceOpen, func(c *belay.GateChange) { c.Actor, c.Reason = "bob", "still down" }))
	if b := forced(); b.By != "bob" || b.Reason != "still down" || b.OpenedAt != opened {
		t.Errorf("opened again, it is %+v; it was opened at %s", b, opened.Time())
	}
	s.settled(s.set(gate, belay.GateForceClosed))
	for range 8 {
		l := s.run(w, target("x"))
		s.settled(s.settle(l, belay.OutcomeFailed))
	}
	s.settled(s.set(gate, belay.GateAutomatic))
	if b := forced(); b.By != "" || b.Reason != "" {
		t.Errorf("the operator stays on a breaker that works by itself: %+v", b)
	}
	for i := range 6 {
		s.pass(time.Second)
		if leases := s.all(w); len(leases) > 0 {
			s.settled(s.settle(leases[0], belay.OutcomeFailed, func(c *belay.Settlement) {
				c.Failure = &belay.Failure{Class: belay.ClassPermanent, Message: "a bad request"}
			}))
		} else if i == 0 {
			t.Fatal("nothing was claimed")
		}
	}
	if b := forced(); b.State != BreakerClosed {
		t.Errorf("failures that are not the target's opened it: %+v", b)
	}
}

// Rule: a run that ends because a circuit breaker is open does not count as an attempt.
func TestAnOpenCircuitIsNotCharged(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"), policy(belay.Policy{MaxAttempts: 1}))
	s.do(s.settle(l, belay.OutcomeFailed, func(c *belay.Settlement) {
		c.Failure = &belay.Failure{Class: belay.ClassCircuitOpen, Message: "payments:charge is down"}
	}))
	if e := s.row(l.Execution); e.State != belay.Pending || e.Attempts != 0 || e.DueAt != s.now.Add(circuitWait) {
		t.Errorf("it is %+v", *e)
	}
}

// Rule: if an execution is being cancelled and its run ends because a circuit breaker is open, the
// execution ends as cancelled and is not due again.
func TestACancelCountsAtAnOpenCircuit(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	s.do(s.act(l.Execution, belay.ActionCancel))
	s.do(s.settle(l, belay.OutcomeFailed, func(c *belay.Settlement) {
		c.Failure = &belay.Failure{Class: belay.ClassCircuitOpen, Message: "payments:charge is down"}
	}))
	if e := s.row(l.Execution); e.State != belay.Cancelled || e.DueAt != 0 {
		t.Errorf("it is %+v", *e)
	}
}

package machine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// Rule: a gate lets executions through, and then its circuit breaker opens again or an operator
// pauses the gate. Then the executions start no run, and wait at the gate again.
func TestAGateThatShutsStopsWhatItHasLetThrough(t *testing.T) {
	for _, c := range []struct {
		name string
		gate belay.GateID
		with func(*belay.Submission)
		shut func(*stage)
	}{
		{"a probe fails", "target:x", target("x"), func(s *stage) {
			s.do(&Outcome{Target: "x", Failed: true, Probe: true})
		}},
		{"a target is paused", "target:x", target("x"), func(s *stage) { s.do(s.set("target:x", belay.GatePause)) }},
		{"a limit is paused", "limit:x", limit("x", 1), func(s *stage) { s.do(s.set("limit:x", belay.GatePause)) }},
		{"a rate is paused", "rate:x", rate("x", 1, time.Second), func(s *stage) {
			s.do(s.set("rate:x", belay.GatePause))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			w := s.worker("w", ttl(time.Hour))
			s.do(s.set(c.gate, belay.GatePause))
			id := s.submit(c.with)
			s.all(w)
			if c.gate == "target:x" {
				for range breakerFailures {
					s.do(&Outcome{Target: "x", Failed: true})
				}
				s.pass(breakerOpenFor)
			}
			s.settled(s.set(c.gate, belay.GateResume))
			s.sweepGates()
			if e := s.row(id); e.AdmitBy == 0 || e.Places == 0 {
				t.Fatalf("it was not let through: %+v", *e)
			}
			c.shut(s)
			if won := s.all(w); len(won) > 0 {
				t.Errorf("its run began")
			}
			if e := s.row(id); e.Gate != c.gate || e.Places != 0 {
				t.Errorf("it waits at %q with the places %b", e.Gate, e.Places)
			}
		})
	}
}

// Rule: an execution that waits for its target has no unused place in another gate, and a probe does
// not wait at another gate.
func TestAnExecutionWaitsForItsTargetWithoutPlaces(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	l := s.run(w, limit("x", 1))
	both := s.submit(limit("x", 1), target("t"))
	s.all(w)
	s.settled(s.settle(l, belay.OutcomeSucceeded))
	if e := s.row(both); e.Places != PlaceLimit {
		t.Fatalf("the limit did not let it through: %+v", *e)
	}
	for range breakerFailures {
		s.do(&Outcome{Target: "t", Failed: true})
	}
	other := s.submit(limit("x", 1))
	won := executionsOf(s.all(w))
	if e := s.row(both); e.Gate != "target:t" || e.Places != 0 {
		t.Errorf("it waits at %q with the places %b", e.Gate, e.Places)
	}
	if cmp.Diff([]belay.ExecutionID{other}, won) != "" {
		t.Errorf("the next execution of the limit did not start: %v", won)
	}
	s.pass(breakerOpenFor)
	s.sweepGates()
	if e := s.row(both); e.Places != PlaceTarget {
		t.Fatalf("it is no probe: %+v", *e)
	}
	s.all(w)
	if e := s.row(both); e.Gate != "limit:x" || e.Places != 0 {
		t.Errorf("it waits at %q with the places %b", e.Gate, e.Places)
	}
}

// Rule: only a running probe can be slow, and every new probe has the full time until it is slow.
func TestOnlyARunningProbeIsSlow(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	failures(breakerFailures, (*stage).halfOpen)(s, w)
	breaker := func() *Breaker {
		t.Helper()
		g, err := ReadGate(s.objects[GateRef("target:x")])
		if err != nil {
			t.Fatal(err)
		}
		return g.Breaker
	}
	for _, e := range s.parked("target:x") { // cancels the waiting executions, so that no further probe begins
		s.settled(s.act(e.ID, belay.ActionCancel))
	}
	won := s.all(w)
	if len(won) != breakerProbes {
		t.Fatalf("%d probes started", len(won))
	}
	s.settled(s.settle(won[0], belay.OutcomeReleased))
	s.pass(breakerOpenFor)
	s.sweepGates()
	if b := breaker(); b.State != BreakerHalfOpen {
		t.Fatalf("probes that had ended have opened it: %+v", *b)
	}
	s.all(w)
	s.sweepGates()
	if won = s.all(w); len(won) != breakerProbes {
		t.Fatalf("%d probes started again", len(won))
	}
	s.settled(s.settle(won[0], belay.OutcomeReleased))
	s.pass(breakerOpenFor - time.Second)
	s.all(w)
	s.sweepGates()
	if again := s.all(w); len(again) != 1 {
		t.Fatalf("%d probes started after the first", len(again))
	}
	s.pass(time.Second)
	s.sweepGates()
	if b := breaker(); b.State != BreakerHalfOpen || b.Slow != 0 {
		t.Errorf("a probe of one second is slow: %+v", *b)
	}
}

// Rule: a probe has no time limit. When it is slow, the breaker lets another probe through while
// the slow probe still runs. The time until the next probe doubles each time, and at most five
// probes run. A slow probe that succeeds counts as a success.
func TestASlowProbeKeepsNoOtherFromTheTarget(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	failures(breakerFailures, (*stage).halfOpen)(s, w)
	for range 8 {
		s.submit(target("x"))
	}
	breaker := func() *Breaker {
		t.Helper()
		g, err := ReadGate(s.objects[GateRef("target:x")])
		if err != nil {
			t.Fatal(err)
		}
		return g.Breaker
	}
	probes := s.all(w)
	for n, wait := range []time.Duration{30, 60, 120, 240, 300, 300} {
		s.pass(wait*time.Second - time.Millisecond)
		if s.sweepGates(); len(s.all(w)) > 0 {
			t.Fatalf("probe %d begins after less than %d s", n+2, wait)
		}
		s.pass(time.Millisecond)
		s.sweepGates()
		probes = append(probes, s.all(w)...)
		if want := min(n+2, breakerProbesMax); len(probes) != want {
			t.Fatalf("%d probes run, want %d", len(probes), want)
		}
	}
	s.settled(s.settle(probes[0], belay.OutcomeSucceeded))
	s.sweepGates()
	if b, more := breaker(), s.all(w); b.State != BreakerHalfOpen || b.Successes != 1 || len(more) != 1 {
		t.Fatalf("after a slow probe %d begin, and the breaker is %+v", len(more), *b)
	}
	s.settled(s.settle(probes[1], belay.OutcomeSucceeded))
	if b := breaker(); b.State != BreakerClosed {
		t.Errorf("after two slow probes it is %+v", *b)
	}
}

// Rule: a probe that still runs when the breaker opens again counts as slow. So when the breaker is
// half open the next time, it lets another probe through.
func TestAProbeOutlivesItsBreaker(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	failures(breakerFailures, (*stage).halfOpen)(s, w)
	for range 3 {
		s.submit(target("x"))
	}
	first := s.all(w)
	s.pass(breakerOpenFor)
	s.sweepGates()
	second := s.all(w)
	if len(first) != 1 || len(second) != 1 {
		t.Fatalf("%d and %d probes run", len(first), len(second))
	}
	s.settled(s.settle(second[0], belay.OutcomeFailed))
	s.pass(breakerOpenMax)
	s.sweepGates()
	if more := s.all(w); len(more) != 1 {
		t.Errorf("%d probes begin beside the first", len(more))
	}
}

// Rule: an execution sets the terms of a gate that has no terms (limit or rate) only when it starts
// or waits there. A refused Lock sets no terms for the commands after it in the same batch.
func TestARefusedLockSetsNoTerms(t *testing.T) {
	s := newStage(t)
	s.do(s.set("rate:r", belay.GatePause))
	joined := s.submission(rate("r", 5, time.Second), func(b *belay.Submission) { b.External = true })
	joined.Joined = true
	s.do(joined)
	_, replies := s.batch(s.lock(belay.WorkerID(s.id()), joined.ID), s.set("rate:r", belay.GateResume))
	if belay.CodeOf(replies[0].Err) != belay.CodeConflict || replies[1].Err != nil {
		t.Fatalf("the lock got %v, and the resume %v", replies[0].Err, replies[1].Err)
	}
	if g, err := ReadGate(s.objects[GateRef("rate:r")]); err != nil || g.Rate != nil {
		t.Errorf("the rate is %+v, %v", g.Rate, err)
	}
}

// Rule: an execution that waits for its limit keeps no token of a rate. Otherwise two executions
// could wait for each other for ever: one execution has the place of the limit and waits for the
// token, the other has the token and waits for the place.
func TestAnExecutionWaitsForItsLimitWithoutAToken(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	both := func(b *belay.Submission) { limit("x", 1)(b); rate("r", 1, time.Second)(b) }
	s.do(s.set("rate:r", belay.GatePause))
	id := s.submit(both)
	s.all(w)
	l := s.run(w, limit("x", 1))
	s.settled(s.set("rate:r", belay.GateResume))
	if e := s.row(id); e.Places != PlaceRate {
		t.Fatalf("the rate did not let it through: %+v", *e)
	}
	s.all(w)
	if e := s.row(id); e.Gate != "limit:x" || e.Places != 0 {
		t.Errorf("it waits at %q with the places %b", e.Gate, e.Places)
	}
	s.settled(s.settle(l, belay.OutcomeSucceeded))
	if won := executionsOf(s.all(w)); cmp.Diff([]belay.ExecutionID{id}, won) != "" {
		t.Errorf("then %v started, want %s", won, id)
	}
}

// Rule: a rate whose time is no whole number of microseconds is not exceeded.
func TestTheTimeOfATokenIsRoundedUp(t *testing.T) {
	r := &Rate{Named: &Pace{1, belay.Duration(time.Second + time.Nanosecond)}}
	if got := r.each(); got != Time(1_000_001) {
		t.Errorf("a token comes in %d µs", got)
	}
}

// Rule: the time since which workers may claim an execution is its due time. While the execution
// waits at a gate that it names, this time is now; afterwards it is the time when the gate let the
// execution through.
func TestSinceWhenAnExecutionIsClaimable(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	id := s.submit()
	due := s.now
	s.pass(time.Minute)
	if at := s.row(id).Claimable(s.now); at != due {
		t.Errorf("without a gate it is claimable since %d, want %d", at, due)
	}
	s.all(w)
	first := s.run(w, limit("x", 1))
	id = s.submit(limit("x", 1))
	s.all(w)
	s.pass(time.Minute)
	if at := s.row(id).Claimable(s.now); at != s.now {
		t.Errorf("while it waits at a gate it is claimable since %d, want %d", at, s.now)
	}
	s.settled(s.settle(first, belay.OutcomeSucceeded))
	through := s.now
	s.pass(time.Second)
	if at := s.row(id).Claimable(s.now); at != through {
		t.Errorf("after the gate let it through it is claimable since %d, want %d", at, through)
	}
	s.pass(time.Second)
	s.settled(&Tick{Execution: id})
	if e := s.row(id); e.AdmitBy != 0 || e.Claimable(s.now) != through {
		t.Errorf("when it has lost its place it is claimable since %d, want %d", e.Claimable(s.now), through)
	}
}

// Rule: a store counts the executions that wait at a gate only up to a limit. If a batch cancels
// that many waiting executions, the gate still plans its next check, which lets one of the
// remaining executions through.
func TestAGateIsCheckedAgainAfterManyOfItsLineWereCancelled(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	holder := s.run(w, limit("x", 1))
	var line []belay.ExecutionID
	for range MaxHeads + 20 {
		line = append(line, s.submit(limit("x", 1)))
	}
	s.settled(s.claims(w, len(line)))
	s.do(s.settle(holder, belay.OutcomeSucceeded)) // the Admit that follows comes in the next batch
	batch := make([]Command, 0, len(line))
	for _, id := range line[:MaxHeads+1] {
		batch = append(batch, s.act(id, belay.ActionCancel))
	}
	s.batch(append(batch, &Admit{Gate: "limit:x", Heads: 1})...)
	s.pass(lineLook)
	s.sweepGates()
	if e := s.row(line[MaxHeads+1]); e.Gate != "" || e.Places != PlaceLimit {
		t.Errorf("it still waits at a gate that is open: %+v", *e)
	}
}

// Rule: an Admit lets all loaded executions through for which there is room. So if several
// executions leave a gate in one batch, one Admit is enough. If the gate has room left after it,
// another Admit follows, for as many executions as there is room for.
func TestAdmitsFollowOnlyIfThereIsRoom(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	for range 9 {
		s.submit(limit("x", 3))
	}
	won := s.all(w)
	if len(won) != 3 {
		t.Fatalf("%d were claimed", len(won))
	}
	var admits []Command
	for _, l := range won {
		admits = append(admits, s.do(s.settle(l, belay.OutcomeSucceeded)).Follow...)
	}
	_, replies := s.batch(admits...)
	for i, r := range replies {
		if r.Err != nil || len(r.Follow) > 0 {
			t.Errorf("reply %d: %+v", i, r)
		}
	}
	if held, _ := s.held("limit:x"); len(held) != 3 {
		t.Errorf("%d have a place", len(held))
	}
	s.do(s.set("limit:x", belay.GateSetLimit, func(c *belay.GateChange) { c.Max = 5 }))
	want := []Command{&Admit{Gate: "limit:x", Heads: 1}}
	if r := s.do(want[0]); cmp.Diff(want, r.Follow) != "" {
		t.Errorf("one of two places was given out; %+v follows", r.Follow)
	}
}

// Rule: the members of a limit (the executions that name it) are counted only as far as a batch
// needs their number. A batch that ends some members still counts the others: for a submission with
// when_full "reject", and when an operator unsets the limit, which must not make the gate forget
// the terms of its members.
func TestMembersAreCountedAsFarAsABatchNeedsThem(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	var ids []belay.ExecutionID
	for range 6 {
		ids = append(ids, s.submit(limit("x", 4)))
	}
	need := NeedOf([]Command{
		s.claims(w, 1), &Admit{Gate: "limit:x", Heads: 1}, s.settle(s.win(w), belay.OutcomeSucceeded),
		s.submission(limit("x", 4)),
	})
	if more := need.Further(s.load(&need)); more.CountMembers != 0 {
		t.Errorf("a batch that submits, starts and ends executions counts %d members", more.CountMembers)
	}
	rejected := func() *Submit { return s.submission(limit("x", 4), full(belay.RejectWhenFull)) }
	_, replies := s.batch(
		s.act(ids[1], belay.ActionCancel), rejected(), s.act(ids[2], belay.ActionCancel), rejected(),
		s.act(ids[3], belay.ActionCancel), rejected(), rejected(),
	)
	for i, refused := range []bool{1: true, 3: true, 6: true} {
		if err := replies[i].Err; (err != nil) != refused || refused && belay.CodeOf(err) != belay.CodeConflict {
			t.Errorf("command %d: %v", i, err)
		}
	}
	s.do(s.set("limit:x", belay.GateSetLimit, func(c *belay.GateChange) { c.Max = 7 }))
	_, replies = s.batch(s.act(ids[4], belay.ActionCancel), s.set("limit:x", belay.GateUnsetLimit))
	if err := replies[1].Err; err != nil {
		t.Fatal(err)
	}
	s.refused(s.submission(limit("x", 9)), belay.CodeConflict)
}

package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: the first submission that names a limit sets its max. A submission with another max is
// refused and changes nothing, even if all executions of the limit have ended; the refusal names
// the limit and the command that changes it. If an operator sets a limit, the operator's value
// applies to all submissions.
func TestTheFirstSubmissionSetsALimit(t *testing.T) {
	s := newStage(t)
	first := s.submit(limit("x y", 3))
	check := func() {
		t.Helper()
		for _, other := range []int{2, 4, belay.MaxConcurrency} {
			for _, when := range []belay.WhenFull{belay.WaitWhenFull, belay.RejectWhenFull, belay.ReplaceWhenFull} {
				if other > MaxHeads && when == belay.ReplaceWhenFull {
					continue
				}
				err := s.refused(s.submission(limit("x y", other), full(when)), belay.CodeConflict)
				want := fmt.Sprintf("allows 3, not %d; an operator can change it: belay limits set 'x y' %d", other,
					other)
				if !strings.Contains(err.Message, want) {
					t.Errorf("refused with %q, want %q in it", err.Message, want)
				}
			}
		}
	}
	check()
	s.settled(s.act(first, belay.ActionCancel))
	check() // all executions of the limit have ended
	s.do(s.set("limit:x y", belay.GateSetLimit, func(c *belay.GateChange) { c.Max = 1 }))
	s.submit(limit("x y", 9))
	s.refused(s.submission(limit("x y", 9), full(belay.RejectWhenFull)), belay.CodeConflict)
	last := s.submission(limit("x y", 3), full(belay.ReplaceWhenFull))
	s.settled(last)
	// an execution of the limit has not ended, so the first terms apply again
	s.do(s.set("limit:x y", belay.GateUnsetLimit))
	check()
	s.settled(s.act(last.ID, belay.ActionCancel))
	// no execution names the limit any more, so the next submission sets its terms
	s.do(s.set("limit:x y", belay.GateUnsetLimit))
	s.submit(limit("x y", 2))
	s.refused(s.submission(limit("x y", 3)), belay.CodeConflict)
}

// Rule: the first submission that names a rate sets its terms, as with a limit.
func TestTheFirstSubmissionSetsARate(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(24*time.Hour))
	s.submit(rate("api", 2, time.Minute))
	check := func() {
		t.Helper()
		for _, other := range []func(*belay.Submission){
			rate("api", 1, time.Minute), rate("api", belay.MaxRate, time.Minute), rate("api", 2, time.Second),
			rate("api", 2, time.Hour),
		} {
			err := s.refused(s.submission(other), belay.CodeConflict)
			if !strings.Contains(err.Message, `allows 2 in 1m0s, not `) ||
				!strings.Contains(err.Message, "; an operator can change it: belay rates set api ") {
				t.Errorf("refused with %q", err.Message)
			}
		}
	}
	check()
	if won := s.all(w); len(won) != 1 {
		t.Fatalf("%d runs began", len(won))
	}
	check() // the terms stay although no execution waits at the rate
	s.do(s.set("rate:api", belay.GateUnsetRate))
	check() // the terms stay, because a gate that forgot its rate would have the taken token again
	s.do(s.set("rate:api", belay.GateSetRate, func(c *belay.GateChange) { c.Max, c.Per = 1, within(time.Hour) }))
	s.submit(rate("api", belay.MaxRate, time.Second))
	s.pass(time.Hour)
	s.all(w)
	s.pass(time.Hour)
	s.do(s.set("rate:api", belay.GateUnsetRate))
	s.submit(rate("api", 7, time.Second))
	s.refused(s.submission(rate("api", 2, time.Minute)), belay.CodeConflict)
}

// Rule: a submission with a limit and a rate that is refused because of one of them does not set the
// terms of the other.
func TestARefusedSubmissionSetsNoTerms(t *testing.T) {
	s := newStage(t)
	s.submit(limit("x", 1), rate("r", 1, time.Second))
	s.refused(s.submission(limit("x", 2), rate("new", 1, time.Second)), belay.CodeConflict)
	s.refused(s.submission(limit("new", 1), rate("r", 2, time.Second)), belay.CodeConflict)
	s.refused(s.submission(limit("x", 1), full(belay.RejectWhenFull), rate("new", 1, time.Second)), belay.CodeConflict)
	s.submit(limit("new", 5), rate("new", 5, time.Minute))
}

// Rule: a submission in a transaction of its application does not lock gates, so its terms are not
// checked. The terms that are there already apply to it.
func TestAJoinedSubmissionKeepsTheTerms(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	s.submit(limit("x", 1), rate("r", 1, time.Hour))
	joined := s.submission(limit("x", belay.MaxConcurrency), rate("r", belay.MaxRate, time.Millisecond))
	joined.Joined = true
	s.do(joined)
	if won := s.all(w); len(won) != 1 {
		t.Errorf("%d runs began", len(won))
	}
	for _, id := range []belay.GateID{"limit:x", "rate:r"} {
		g, err := ReadGate(s.objects[GateRef(id)])
		if err != nil || g.Limit != nil && g.Limit.max() != 1 || g.Rate != nil && g.Rate.pace().Max != 1 {
			t.Errorf("%s has %+v %+v, %v", id, g.Limit, g.Rate, err)
		}
	}
}

// Rule: the cancels that a submission with when_full "replace" orders are written with the
// submission. If they are lost, the gate's next check repeats them. An execution that was cancelled
// and reopened is not cancelled again.
func TestLostCancelsOfReplacedExecutionsAreRepeated(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	running, waits := s.run(w, limit("x", 2)), s.submit(limit("x", 2))
	s.do(s.submission(limit("x", 2), full(belay.ReplaceWhenFull))) // the cancel that follows is lost
	lost := s.submission(limit("x", 2), full(belay.ReplaceWhenFull))
	s.do(lost)
	s.sweepGates()
	if e := s.row(running.Execution); e.CancelBy != 0 {
		t.Fatalf("it is cancelled too early: %+v", *e)
	}
	s.pass(lineLook)
	s.submit(limit("x", 2)) // this submission does not delay the check of the gate
	s.sweepGates()
	if e := s.row(running.Execution); e.CancelBy == 0 {
		t.Errorf("the running execution goes on: %+v", *e)
	}
	if e := s.row(waits); e.State != belay.Cancelled || e.Seq != 2 {
		t.Errorf("the waiting execution goes on: %+v", *e)
	}
	s.do(s.act(waits, belay.ActionRetry))
	s.do(&CancelReplaced{"limit:x", waits})
	s.pass(lineLook)
	s.sweepGates()
	if e := s.row(waits); e.State != belay.Pending {
		t.Errorf("the reopened execution is %s", e.State)
	}
	if e := s.row(lost.ID); e.State != belay.Pending {
		t.Errorf("the newest execution is %s", e.State)
	}
}

// Rule: if a replaced execution ends before it is cancelled, it keeps its state, and the gate no
// longer names it as an execution to cancel.
func TestAReplacedExecutionMayEndFirst(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"), limit("x", 1))
	r := s.do(s.submission(limit("x", 1), full(belay.ReplaceWhenFull)))
	s.do(s.settle(l, belay.OutcomeSucceeded))
	s.follow(r)
	if g, err := ReadGate(s.objects[GateRef("limit:x")]); err != nil || g.Replaced != nil {
		t.Errorf("the gate still orders %+v, %v", g.Replaced, err)
	}
	if e := s.row(l.Execution); e.State != belay.Succeeded {
		t.Errorf("it is %s", e.State)
	}
}

// Rule: a gate names at most maxReplaced executions that are to be cancelled. A submission that
// would add more is refused and may be repeated when some of them are cancelled.
func TestReplacementsAreBounded(t *testing.T) {
	s := newStage(t)
	var commands []Command
	for n := range maxReplaced + 2 {
		c := s.submission(limit("x", 1), full(belay.ReplaceWhenFull))
		c.ID = belay.ExecutionID{0: 1, 6: 0x70, 8: 0x80, 13: 1, 14: byte(n >> 8), 15: byte(n)}
		commands = append(commands, c)
	}
	_, replies := s.batch(commands...)
	var follow []Command
	for i, r := range replies {
		if refused := belay.CodeOf(r.Err) == belay.CodeRateLimited; refused != (i > maxReplaced) {
			t.Fatalf("submission %d: %v", i, r.Err)
		}
		follow = append(follow, r.Follow...)
	}
	if len(follow) != maxReplaced {
		t.Errorf("%d commands follow", len(follow))
	}
	s.batch(follow...)
	s.settled(s.submission(limit("x", 1), full(belay.ReplaceWhenFull)))
	if _, members := s.held("limit:x"); len(members) != 1 {
		t.Errorf("%d executions have not ended", len(members))
	}
}

package machine

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Guarantee G8 (retries obey the policy): the wait after the n-th failure is base·2^(n-1), capped,
// plus up to a quarter.
func TestBackoff(t *testing.T) {
	p := belay.Policy{BackoffBase: belay.Duration(time.Second), BackoffCap: belay.Duration(30 * time.Second)}
	most := belay.Policy{BackoffBase: 1, BackoffCap: math.MaxInt64}
	for _, c := range []struct {
		p    belay.Policy
		n    int
		want time.Duration
	}{
		{p, 1, time.Second}, {p, 2, 2 * time.Second}, {p, 5, 16 * time.Second}, {p, 6, 30 * time.Second},
		{p, 1 << 30, 30 * time.Second},
		{belay.Policy{}, 1, time.Second}, {belay.Policy{}, 99, 30 * time.Second},
		{belay.Policy{BackoffBase: belay.Duration(hour)}, 1, 30 * time.Second},
		{most, 1, 1}, {most, 11, 1024}, {most, 63, 1 << 62}, {most, 64, math.MaxInt64}, {most, 1 << 30, math.MaxInt64},
	} {
		if got := Backoff(c.p, c.n, 0); got != c.want {
			t.Errorf("%+v: wait %d is %d, want %d", c.p, c.n, got, c.want)
		}
		for _, jitter := range []float64{0.1, 0.5, 0.999999} {
			got := Backoff(c.p, c.n, jitter)
			if got < c.want || float64(got) > float64(c.want)*1.25 {
				t.Errorf("%+v: wait %d with jitter %v is %d, not within a quarter above %d", c.p, c.n, jitter, got,
					c.want)
			}
		}
	}
}

// Guarantee G8 (retries obey the policy): no claim wins a failed execution before its backoff is
// over, each failure counts as one attempt, and the last one ends the execution with a dead letter.
func TestRetriesWaitForTheirBackoff(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	id := s.submit(policy(belay.Policy{MaxAttempts: 4}))
	for n, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		l := s.win(w)
		if got := s.row(id).Attempts; got != n {
			t.Fatalf("run %d begins after %d attempts", n+1, got)
		}
		c := s.settle(l, belay.OutcomeFailed, failing)
		c.Jitter = 0
		s.do(c)
		s.pass(wait - time.Microsecond)
		if r := s.do(s.claims(w, 5)); len(r.Claims) != 0 {
			t.Fatalf("claimed %s before its time", time.Microsecond)
		}
		s.pass(time.Microsecond)
	}
	s.do(s.settle(s.win(w), belay.OutcomeTimedOut))
	s.is(id, "failed")
	if d := s.records[id].letters; len(d) != 1 || d[0].Reason != "timeout" || d[0].Token != 4 {
		t.Errorf("dead letters %+v", d)
	}
}

// RetryAfter can only lengthen the backoff.
func TestRetryAfterIsAMinimum(t *testing.T) {
	for _, c := range []struct{ ask, want time.Duration }{{0, time.Second}, {time.Millisecond, time.Second},
		{time.Minute, time.Minute}} {
		s := newStage(t)
		l := s.run(s.worker("w"))
		f := s.settle(l, belay.OutcomeFailed, func(x *belay.Settlement) { x.RetryAfter = c.ask })
		f.Jitter = 0
		s.do(f)
		if got := s.row(l.Execution).DueAt.Sub(s.now); got != c.want {
			t.Errorf("asked for %s, due in %s, want %s", c.ask, got, c.want)
		}
	}
}

// If a run ends as released or preempted, no attempt is counted and the execution is due at once.
func TestHandingBackIsNotCharged(t *testing.T) {
	for _, o := range []belay.Outcome{belay.OutcomeReleased, belay.OutcomePreempted} {
		s := newStage(t)
		w := s.worker("w")
		l := s.run(w, policy(belay.Policy{MaxAttempts: 1}))
		for range 5 {
			s.do(s.settle(l, o))
			l = s.win(w)
		}
		if e := s.row(l.Execution); e.Attempts != 0 || e.Losses != 0 {
			t.Errorf("%s is charged: %+v", o, *e)
		}
	}
}

// A worker reports the class of a failure, and the class decides whether the execution is retried. If
// the worker reports ClassLost or an unknown class, the failure gets ClassTransient.
func TestFailureClasses(t *testing.T) {
	for _, c := range []struct {
		outcome belay.Outcome
		class   belay.Class
		want    belay.Class
		letter  string // the reason of the dead letter if one attempt is allowed
	}{
		{belay.OutcomeFailed, 0, belay.ClassTransient, "max_retries"},
		{belay.OutcomeFailed, belay.ClassTransient, belay.ClassTransient, "max_retries"},
		{belay.OutcomeFailed, belay.ClassPermanent, belay.ClassPermanent, "permanent_error"},
		{belay.OutcomeFailed, belay.ClassTimeout, belay.ClassTimeout, "timeout"},
		{belay.OutcomeFailed, belay.ClassLost, belay.ClassTransient, "max_retries"},
		{belay.OutcomeFailed, 99, belay.ClassTransient, "max_retries"},
		{belay.OutcomeTimedOut, belay.ClassPermanent, belay.ClassTimeout, "timeout"},
	} {
		s := newStage(t)
		l := s.run(s.worker("w"), policy(belay.Policy{MaxAttempts: 1}))
		s.do(s.settle(l, c.outcome, func(x *belay.Settlement) {
			x.Failure = &belay.Failure{Class: c.class, Message: "m"}
		}))
		r := s.records[l.Execution]
		if r.execution.Class != c.want || r.execution.Message != "m" || r.letters[0].Reason != c.letter ||
			r.runs[0].Class != c.want {
			t.Errorf("%s as %s: %+v, letter %s", c.outcome, c.class, *r.execution, r.letters[0].Reason)
		}
	}
}

// Messages and stacks are shortened to their limits and cleaned of characters that would disturb
// a terminal.
func TestFailuresAreClipped(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"), policy(belay.Policy{MaxAttempts: 1}))
	s.do(s.settle(l, belay.OutcomeFailed, func(x *belay.Settlement) {
		x.Failure = &belay.Failure{
			Message: "a\x1b[31m\xff" + strings.Repeat("ü", 4<<10), Stack: strings.Repeat("x\n", 16<<10),
		}
	}))
	v := View(s.records[l.Execution].history())
	if m := v.Error.Message; len(m) > 4<<10 || len(m) < 4<<10-4 || strings.ContainsRune(m, 0x1b) ||
		!strings.HasPrefix(m, "a[31m\uFFFD") || !strings.HasSuffix(m, "ü…") {
		t.Errorf("message of %d bytes: %q … %q", len(m), m[:12], m[len(m)-8:])
	}
	if n := len(v.Error.Stack); n > 16<<10 || n < 16<<10-4 {
		t.Errorf("stack of %d bytes", n)
	}
}

// A failed run may have an output. The execution shows this output if that run was its last.
func TestOutputOfAFailedRunIsKept(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w, policy(belay.Policy{MaxAttempts: 2}))
	out := func(x *belay.Settlement) { x.Output = json.RawMessage(`"salvaged"`) }
	s.do(s.settle(l, belay.OutcomeFailed, out))
	if v := View(s.records[l.Execution].history()); v.Output != nil {
		t.Errorf("the output of a run that is retried is shown: %s", v.Output)
	}
	s.pass(time.Minute)
	w = s.worker("w2")
	s.do(s.settle(s.win(w), belay.OutcomeFailed, out))
	shown := func(where string) {
		t.Helper()
		if v := View(s.records[l.Execution].history()); string(v.Output) != `"salvaged"` {
			t.Errorf("%s: output %s", where, v.Output)
		}
	}
	shown("failed")
	s.do(s.act(l.Execution, belay.ActionFork))
	shown("forked afterwards")
	s.do(s.act(l.Execution, belay.ActionRetry))
	s.do(s.act(l.Execution, belay.ActionCancel))
	if v := View(s.records[l.Execution].history()); v.Output != nil {
		t.Errorf("cancelled before it ran again, it shows the output of the generation before: %s", v.Output)
	}
}

func TestCostAddsUp(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	save := s.save(l, belay.KindStep, "a")
	save.CostTokens = 5
	s.do(save)
	s.do(s.settle(l, belay.OutcomeReleased, func(x *belay.Settlement) { x.CostTokens = 7 }))
	if got := s.row(l.Execution).Cost; got != 12 {
		t.Errorf("cost %d, want 12", got)
	}
	l = s.win(l.Worker)
	s.do(s.settle(l, belay.OutcomeReleased, func(x *belay.Settlement) { x.CostTokens = belay.MaxCost }))
	if got := s.row(l.Execution).Cost; got != belay.MaxCost {
		t.Errorf("the cost wrapped around to %d", got)
	}
}

// A cost is charged to the execution that reports it and to all its ancestors at once, whether they
// run, wait or have ended; a repetition is charged to none of them again.
func TestCostsAreChargedToAncestors(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	root := s.run(w)
	child := s.run(w, s.childOf(root, "c"), policy(belay.Policy{Abandon: true}))
	grandchild := s.run(w, s.childOf(child, "g"), policy(belay.Policy{Abandon: true}))
	costs := func(want ...belay.Cost) {
		t.Helper()
		for i, l := range []belay.Lease{root, child, grandchild} {
			if got := s.row(l.Execution).Cost; got != want[i] {
				t.Errorf("execution %d costs %s, want %s", i, got, want[i])
			}
		}
	}
	save := s.save(grandchild, belay.KindStep, "a")
	save.CostTokens = 5
	s.do(save)
	again := *save
	again.Repeat = true
	s.do(&again)
	costs(5, 5, 5)
	s.do(s.settle(child, belay.OutcomeSuspended, func(x *belay.Settlement) { x.CostTokens = 20 }))
	costs(25, 25, 5)
	s.do(s.settle(root, belay.OutcomeSucceeded, func(x *belay.Settlement) { x.CostTokens = 300 }))
	s.do(s.settle(grandchild, belay.OutcomeSucceeded, func(x *belay.Settlement) { x.CostTokens = 4000 }))
	costs(4325, 4025, 4005)
}

// The sum of an operation with a cost of whole tokens is the sum that servers without fractions
// compute, because a repetition may reach either. Different costs have different sums.
func TestSumsOfCosts(t *testing.T) {
	before := contentOf("x").int(12).sum()
	if contentOf("x").cost(belay.CostOf(12)).sum() != before {
		t.Error("12 tokens have another sum than before")
	}
	seen := make(map[OpSum]belay.Cost)
	for _, c := range []belay.Cost{
		0, 1, 12, 9_999, 10_000, 10_001, 120_000, 120_001, belay.MaxCost, belay.MaxCost - 5807,
	} {
		sum := contentOf("x").cost(c).sum()
		if other, ok := seen[sum]; ok {
			t.Errorf("%s and %s have the same sum", c, other)
		}
		seen[sum] = c
	}
}

func TestInvalidSettlementsAreRefused(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	for name, change := range map[string]func(*belay.Settlement){
		"no outcome":           func(x *belay.Settlement) { x.Outcome = 0 },
		"lost":                 func(x *belay.Settlement) { x.Outcome = belay.OutcomeLost },
		"unknown":              func(x *belay.Settlement) { x.Outcome = 99 },
		"negative retry_after": func(x *belay.Settlement) { x.RetryAfter = -1 },
		"negative wait":        func(x *belay.Settlement) { x.Wait = -1 },
		"negative cost":        func(x *belay.Settlement) { x.CostTokens = -1 },
		"output is not JSON":   func(x *belay.Settlement) { x.Output = json.RawMessage(`{`) },
	} {
		t.Log(name)
		s.refused(s.settle(l, belay.OutcomeSucceeded, change), belay.CodeInvalid)
	}
	s.refused(s.settle(l, belay.OutcomeSucceeded, func(x *belay.Settlement) {
		x.Output = json.RawMessage(`"` + strings.Repeat("x", belay.MaxPayload) + `"`)
	}), belay.CodePayloadTooLarge)
	s.is(l.Execution, "running")
}

package machine

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

var tabulate = flag.Bool("tabulate", false, "print the table of gates with the results of the present code")

// gateSituation is the state of a gate before a command. If the gate has a line, two executions
// wait in it, except in "missing".
type gateSituation struct {
	name, what string
	gate       belay.GateID
	set        func(s *stage, w belay.WorkerID)
}

// filled submits n executions and claims all that the gates let through; the others wait in line.
func filled(n int, with ...func(*belay.Submission)) func(*stage, belay.WorkerID) {
	return func(s *stage, w belay.WorkerID) {
		for range n {
			s.submit(with...)
		}
		s.all(w)
	}
}

func failures(n int, then ...func(*stage)) func(*stage, belay.WorkerID) {
	return func(s *stage, w belay.WorkerID) {
		for range n {
			s.do(&Outcome{Target: "x", Failed: true})
		}
		filled(2, target("x"))(s, w)
		for _, f := range then {
			f(s)
		}
	}
}

func (s *stage) halfOpen() {
	s.pass(breakerOpenFor)
	s.sweepGates()
}

var gateSituations = []gateSituation{
	{"missing", "no execution names it, and no operator has set it", "limit:x", func(*stage, belay.WorkerID) {}},
	{"limit/room", "one of two places is taken", "limit:x", filled(1, limit("x", 2))},
	{"limit/full", "its place is taken", "limit:x", filled(3, limit("x", 1))},
	{"limit/left", "a run gave its place back, and no execution was let through yet", "limit:x",
		func(s *stage, w belay.WorkerID) {
			l := s.run(w, limit("x", 1))
			filled(2, limit("x", 1))(s, w)
			s.do(s.settle(l, belay.OutcomeSucceeded))
		}},
	{"limit/replaced", "a second ago a submission replaced the execution that has its place", "limit:x",
		func(s *stage, w belay.WorkerID) {
			filled(1, limit("x", 1))(s, w)
			s.do(s.submission(limit("x", 1), full(belay.ReplaceWhenFull)))
			s.pass(lineLook)
		}},
	{"rate/empty", "its token was taken", "rate:x", filled(3, rate("x", 1, time.Second))},
	{"rate/full", "a token has come since", "rate:x", func(s *stage, w belay.WorkerID) {
		filled(3, rate("x", 1, time.Second))(s, w)
		s.pass(time.Second)
	}},
	{"target/missing", "its breaker never saw a failure", "target:x", filled(2, target("x"))},
	{"target/failing", "its breaker is closed and has counted four failures", "target:x", failures(4)},
	{"target/open", "its breaker is open", "target:x", failures(5)},
	{"target/over", "its breaker has been open for its time", "target:x",
		failures(5, func(s *stage) { s.pass(breakerOpenFor) })},
	{"target/half-open", "a probe was let through", "target:x", failures(5, (*stage).halfOpen)},
	{"target/one-passed", "one of two probes has succeeded", "target:x", failures(5, (*stage).halfOpen, func(s *stage) {
		s.do(&Outcome{Target: "x", Probe: true})
	})},
	{"target/slow", "its probe is slow", "target:x", failures(5, (*stage).halfOpen, func(s *stage) {
		s.pass(breakerOpenFor)
	})},
	{"target/forced", "an operator has opened its breaker", "target:x", func(s *stage, w belay.WorkerID) {
		s.do(s.set("target:x", belay.GateForceOpen))
		filled(2, target("x"))(s, w)
	}},
	{"target/paused", "an operator has paused it", "target:x", func(s *stage, w belay.WorkerID) {
		s.do(s.set("target:x", belay.GatePause))
		filled(2, target("x"))(s, w)
	}},
	{"queue/missing", "an operator never changed it", "queue:default", func(*stage, belay.WorkerID) {}},
	{"queue/paused", "it is paused until an operator ends it", "queue:default", func(s *stage, _ belay.WorkerID) {
		s.do(s.set("queue:default", belay.GatePause))
	}},
	{"queue/over", "it was paused until a moment that is over", "queue:default", func(s *stage, _ belay.WorkerID) {
		second := func(c *belay.GateChange) { c.Until = s.now.Add(time.Second).Time() }
		s.do(s.set("queue:default", belay.GatePause, second))
		s.pass(time.Second)
	}},
	{"queue/limited", "one run takes its only place", "queue:default", func(s *stage, w belay.WorkerID) {
		s.do(s.set("queue:default", belay.GateSetLimit, func(c *belay.GateChange) { c.Max = 1 }))
		filled(2)(s, w)
	}},
}

// gateDeal is a command of the table.
type gateDeal struct {
	name string
	make func(*stage, belay.GateID) Command
}

// gateDeals are the commands of the table, one block of rows for each.
var gateDeals = []gateDeal{
	{"admit", func(_ *stage, id belay.GateID) Command { return &Admit{Gate: id, Heads: MaxHeads} }},
	{"admit one", func(_ *stage, id belay.GateID) Command { return &Admit{Gate: id, Heads: 1} }},
	{"cancel replaced", func(s *stage, id belay.GateID) Command {
		c := &CancelReplaced{Gate: id}
		if o := s.objects[GateRef(id)]; o != nil {
			if g, err := ReadGate(o); err == nil && g.Replaced != nil {
				c.Execution = slices.Collect(maps.Keys(g.Replaced.By))[0]
			}
		}
		return c
	}},
	{"a run fails", func(_ *stage, id belay.GateID) Command { return &Outcome{Target: id.Name(), Failed: true} }},
	{"a probe fails", func(_ *stage, id belay.GateID) Command {
		return &Outcome{Target: id.Name(), Failed: true, Probe: true}
	}},
	{"a probe succeeds", func(_ *stage, id belay.GateID) Command { return &Outcome{Target: id.Name(), Probe: true} }},
	{"a step begins a call", callOf(0)},
	{"a call of a step fails", callOf(belay.OutcomeFailed)},
	{"a call of a step succeeds", callOf(belay.OutcomeSucceeded)},
	{"pause", change(belay.GatePause)},
	{"resume", change(belay.GateResume)},
	{"limit", change(belay.GateSetLimit)},
	{"unlimit", change(belay.GateUnsetLimit)},
	{"rate", change(belay.GateSetRate)},
	{"unrate", change(belay.GateUnsetRate)},
	{"open", change(belay.GateForceOpen)},
	{"close", change(belay.GateForceClosed)},
	{"auto", change(belay.GateAutomatic)},
	{"explode", change("explode")},
}

// callOf makes the call of a target by a step. The submission of the step's execution names no
// gate. If the call reports an outcome, callOf first sends the begin of the call in the same
// situation.
func callOf(o belay.Outcome) func(*stage, belay.GateID) Command {
	return func(s *stage, id belay.GateID) Command {
		c := belay.TargetCall{Target: id.Name(), Step: "pay"}
		if id.Kind() == belay.GateTarget {
			execution := s.submit()
			s.do(s.lock(belay.WorkerID(s.id()), execution))
			c.Lease = leaseOf(s.row(execution))
			s.do(&CallTarget{c})
		}
		c.Outcome = o
		return &CallTarget{c}
	}
}

func change(a belay.GateAction) func(*stage, belay.GateID) Command {
	return func(s *stage, id belay.GateID) Command {
		return s.set(id, a, func(c *belay.GateChange) { c.Max, c.Per = 3, within(time.Minute) })
	}
}

// TestEveryGateCommandInEverySituation compares the rules with the table in testdata/gates.txt.
func TestEveryGateCommandInEverySituation(t *testing.T) {
	rules := readRules(t, "testdata/gates.txt")
	for _, d := range slices.Concat(gateDeals, resourceDeals) {
		t.Run(d.name, func(t *testing.T) {
			block := rules.block(t, d.name)
			if *tabulate {
				fmt.Printf("\n%s\n", d.name)
			}
			for _, at := range slices.Concat(gateSituations, resourceSituations) {
				s := newStage(t)
				w := s.worker("w", ttl(time.Hour))
				at.set(s, w)
				c := d.make(s, at.gate)
				switch c.(type) {
				case *Outcome, *CallTarget:
					if at.gate.Kind() != belay.GateTarget {
						continue
					}
				case *BeginSwap, *EndSwap, *AskHolders, *Yield:
					if at.gate != gpu {
						continue
					}
				}
				changes, replies := s.batch(c)
				got := gateOutcome(s, at.gate, changes, replies[0])
				if *tabulate {
					fmt.Printf("    %-34s → %s\n", at.name, got)
				}
				want, ok := block.find(at.name)
				switch {
				case !ok:
					t.Errorf("the table does not say what %q does to %s: %s", d.name, at.name, got)
				case got != want:
					t.Errorf("%s\n got %s\nwant %s", at.name, got, want)
				}
			}
			block.unused(t)
		})
	}
	rules.done(t)
}

// gateOutcome describes a gate after a command, or why the command was refused.
func gateOutcome(s *stage, id belay.GateID, c *Changes, r Reply) string {
	var e *belay.Error
	switch {
	case errors.As(r.Err, &e) && c.Empty():
		return "! " + string(e.Code)
	case r.Replayed && c.Empty():
		return "= already"
	case r.Target != (belay.TargetAnswer{}) && c.Empty():
		return answered(r.Target)
	case c.Empty() && len(r.Follow) == 0:
		return "="
	}
	o := s.objects[GateRef(id)]
	if o == nil {
		return "none"
	}
	g, err := ReadGate(o)
	if err != nil {
		return err.Error()
	}
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if g.Pause != nil {
		add("paused")
	}
	if l := g.Limit; l != nil {
		add("limit %d", l.max())
	}
	if r := g.Rate; r != nil {
		add("rate %d/%s", r.pace().Max, r.pace().Per.D())
	}
	if b := g.Breaker; b != nil {
		add("%s", b.State)
		if b.Forced {
			add("forced")
		}
		if b.Failures > 0 && b.State == BreakerClosed {
			add("%d failures", b.Failures)
		}
		if b.Successes > 0 {
			add("%d passed", b.Successes)
		}
	}
	if g.Replaced != nil {
		add("replaced %d", len(g.Replaced.By))
	}
	resourceParts(s, g.Resource, add)
	held, _ := s.held(id)
	if len(held) > 0 {
		add("held %d", len(held))
	}
	if n := len(s.parked(id)); n > 0 {
		add("line %d", n)
	}
	if o.NextAt != 0 {
		add("next in %s", o.NextAt.Sub(s.now))
	}
	for _, a := range c.Audit {
		add("audit %s", a.Action)
	}
	if r.Target != (belay.TargetAnswer{}) {
		add("%s", answered(r.Target))
	}
	if len(r.Follow) > 0 {
		switch c := r.Follow[0].(type) {
		case *CancelReplaced:
			add("cancel")
		case *Admit:
			add("admit%s", strings.Join(append([]string{""}, c.Modes...), " "))
		default:
			add("%s", strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", c), "*machine.")))
		}
	}
	if len(parts) == 0 {
		return "none of its parts"
	}
	return strings.Join(parts, ", ")
}

// answered describes the answer that a step gets before a call.
func answered(a belay.TargetAnswer) string {
	switch {
	case a.Probe:
		return "= a probe"
	case a.Open:
		return "= lets it through"
	case a.RetryAfter > 0:
		return fmt.Sprintf("= refuses it for %s", a.RetryAfter)
	}
	return "= refuses it"
}

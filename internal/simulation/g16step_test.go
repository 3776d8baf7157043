package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// breakerState is the state of a target's gate after the commit c, until the next state.
type breakerState struct {
	c      *commit
	gate   machine.Gate
	orders int // the number of changes by operators in the commit
}

// targetStates has the states of the gates of targets, in the order of the commits.
type targetStates map[belay.GateID][]breakerState

// enter reads one commit.
func (t targetStates) enter(g *gateRows, c *commit) {
	for _, r := range g.fresh {
		if r.id.Kind() == belay.GateTarget && r.wrote == c {
			t[r.id] = append(t[r.id], breakerState{c, r.now, r.orders})
		}
	}
}

// g16probes checks the probes of a target that begin with the commit: the circuit breaker is half
// open, and no other probe has begun within the last 30 s.
func (f *finding) g16probes(r *gateRow, c *commit) {
	if r.id.Kind() != belay.GateTarget {
		return
	}
	was := r.probes
	r.probes = make(map[string]machine.Time)
	begins := false
	enter := func(name, takenOver string) {
		since, running := was[name]
		if !running {
			since, running = was[takenOver]
		}
		if !running {
			since, begins = c.at, true
		}
		r.probes[name] = since
	}
	for id, held := range r.places {
		if held {
			enter(id.String(), "")
		}
	}
	if isHalfOpen(&r.now) {
		for _, p := range r.now.Breaker.Probes {
			enter(nameOf(p.Execution, p.Token, p.Step), p.Execution.String())
		}
	}
	if isHalfOpen(&r.was) && isHalfOpen(&r.now) { // a step's probe runs until its end was reported
		for name, since := range was {
			_, still := r.probes[name]
			fresh := c.at < since.Add(slowAfter)
			if !still && fresh && strings.Contains(name, "/") && !f.reported(name, since, c) {
				r.probes[name] = since
			}
		}
	}
	if !begins || r.orders > 0 {
		return
	}
	f.OK()
	fresh := 0
	for _, since := range r.probes {
		if c.at < since.Add(slowAfter) {
			fresh++
		}
	}
	half := isHalfOpen(&r.was) || isHalfOpen(&r.now)
	if !half || fresh > freshProbes || len(r.probes) > probesAtOnce {
		f.violation(nil, c, "%d probes of %s run, and %d of them have begun within %s", len(r.probes), r.id, fresh,
			slowAfter)
	}
}

// nameOf names a call of a target by a step.
func nameOf(e belay.ExecutionID, t belay.Token, step string) string {
	return fmt.Sprintf("%s/%d/%s", e, t, step)
}

// reported reports whether the worker has begun to report the end of a step's call before the commit c.
func (f *finding) reported(name string, since machine.Time, c *commit) bool {
	return slices.ContainsFunc(f.book.calls, func(call *call) bool {
		q, is := call.request.(belay.TargetCall)
		return is && q.Outcome != 0 && nameOf(q.Lease.Execution, q.Lease.Token, q.Step) == name &&
			call.from >= f.real(since) && call.from <= c.real
	})
}

// calls checks the calls that steps made to targets: each answer that lets a step call its target fits
// a state that the target's gate had between the request and the answer, and no step calls a target
// without such an answer.
func (t targetStates) calls(f *finding) {
	type run struct {
		id     belay.RunID
		target string
	}
	let := make(map[run][]time.Duration)
	for _, call := range f.book.calls {
		q, is := call.request.(belay.TargetCall)
		a, answered := call.reply.(belay.TargetAnswer)
		if !is || !answered || call.end != promise.OK || q.Outcome != 0 {
			continue
		}
		switch {
		case !a.Open:
			f.count("step kept from its target")
			continue
		case a.Probe:
			f.count("step let through as a probe")
		}
		f.OK()
		id := belay.Gate(belay.GateTarget, q.Target)
		key := run{belay.RunID{Execution: q.Lease.Execution, Token: q.Lease.Token}, q.Target}
		let[key] = append(let[key], call.to)
		if !t.fits(f, id, call, &q, a.Probe) {
			f.violation(f.byID[q.Lease.Execution], nil, "step %s was let through to %s (probe: %t) between %s and "+
				"%s, when the gate let no such call through", q.Step, id, a.Probe, call.from, call.to)
		}
	}
	for _, s := range f.steps {
		if s.target == "" {
			continue
		}
		f.OK()
		key := run{belay.RunID{Execution: s.execution, Token: s.token}, s.target}
		i := slices.IndexFunc(let[key], func(at time.Duration) bool { return at <= s.real })
		if i < 0 {
			f.violation(f.byID[s.execution], nil, "a step called %s at %s without permission", s.target, s.real)
			continue
		}
		let[key] = slices.Delete(let[key], i, i+1)
	}
}

// fits reports whether the gate could give the answer at a moment between the request and the answer.
func (t targetStates) fits(f *finding, id belay.GateID, call *call, q *belay.TargetCall, probe bool) bool {
	all := t[id]
	if !probe && (len(all) == 0 || all[0].c.real >= call.from) {
		return true // a gate without a row lets all calls through
	}
	for i, s := range all {
		if s.c.real > call.to || i+1 < len(all) && all[i+1].c.real < call.from {
			continue
		}
		b, p := s.gate.Breaker, s.gate.Pause
		closed := b == nil || b.State == machine.BreakerClosed
		paused := p != nil && (p.Until == 0 || f.real(p.Until) > call.to)
		switch {
		case !probe && (s.orders > 1 || closed && !paused):
			return true
		case !probe:
		case s.orders > 0: // a change by an operator in the same commit has removed the probes
			return true
		case isOpen(&s.gate) && b.OpenedAt == s.c.at: // another probe has failed in the same commit
			return true
		case isHalfOpen(&s.gate):
			for _, p := range b.Probes {
				if p.Execution == q.Lease.Execution && p.Token == q.Lease.Token && p.Step == q.Step {
					return true
				}
			}
		}
	}
	return false
}

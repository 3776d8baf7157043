package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// stepProbe is a call of a target by a step, which a half-open circuit breaker has let through. The
// row of the breaker's gate contains the probes of steps. The row of the execution cannot contain
// them: its steps may call many targets, and the row has only one place for a target.
type stepProbe struct {
	Execution belay.ExecutionID `json:"execution"`
	Token     belay.Token       `json:"token"`
	Step      string            `json:"step,omitempty"`
}

// CallTarget asks the circuit breaker of a target whether a step may call the target, and reports
// afterwards how the call ended.
type CallTarget struct{ belay.TargetCall }

func (c *CallTarget) gate() belay.GateID { return belay.Gate(belay.GateTarget, c.Target) }

// Need asks the store for the execution, the session, and the gate of the target.
func (c *CallTarget) Need(n *Need) {
	needLease(n, c.Lease)
	n.Counts = append(n.Counts, c.gate())
}

func (c *CallTarget) apply(w *world) (Reply, error) {
	const op = "call target"
	if err := checkName(op, "the target", c.Target, true); err != nil {
		return Reply{}, err
	}
	if err := checkName(op, "the step", c.Step, false); err != nil {
		return Reply{}, err
	}
	if forDelivery(c.Target) {
		return Reply{}, refuse(belay.CodeInvalid, op, "targets whose names begin with %s belong to notifications",
			belay.NotificationPrefix)
	}
	e, err := w.owner(op, c.Lease)
	if err != nil {
		return Reply{}, err
	}
	g := w.gate(c.gate())
	switch {
	case g == nil:
		return Reply{}, refuse(belay.CodeInternal, op, "the gate %s was not read", c.gate())
	case g.err != nil:
		return Reply{}, g.err
	}
	b := g.breaker(w.Now)
	probe := stepProbe{c.Lease.Execution, c.Lease.Token, c.Step}
	switch c.Outcome {
	case 0:
		return c.begin(w, e, g, b, probe)
	case belay.OutcomeSucceeded, belay.OutcomeFailed, belay.OutcomeReleased:
		i := slices.Index(b.Probes, probe)
		if i >= 0 {
			b.Probes = slices.Delete(b.Probes, i, i+1)
			b.probed()
		}
		switch {
		case c.Outcome == belay.OutcomeFailed && (i >= 0 || b.State == BreakerClosed):
			b.failed(w.Now)
		case c.Outcome == belay.OutcomeSucceeded && i >= 0:
			b.succeeded()
		}
		w.setBreaker(g, b)
		return Reply{}, nil
	default:
		return Reply{}, refuse(belay.CodeInvalid, op,
			"a call ends as succeeded, failed or released (the target is not to blame), not as %q", c.Outcome)
	}
}

// begin answers whether the step may call the target. If the submission names the target too, the
// breaker may have let the run itself through as a probe. Then the step takes over the place of the
// run; otherwise the runs would have all places, and their own steps could not call the target.
func (c *CallTarget) begin(w *world, e *Execution, g *gate, b Breaker, probe stepProbe) (Reply, error) {
	switch {
	case g.paused(w.Now):
		return c.shut(w, g.Pause.Until, "an operator has paused it"), nil
	case b.State == BreakerClosed:
		return Reply{Target: belay.TargetAnswer{Open: true}}, nil
	case slices.Contains(b.Probes, probe): // a repetition, because the reply to the first call was lost
		return Reply{Target: belay.TargetAnswer{Open: true, Probe: true}}, nil
	case b.State == BreakerOpen:
		return c.shut(w, b.NextRetryAt, "its circuit breaker is open"), nil
	case e.Places&PlaceTarget != 0 && e.names(g.id):
		w.vacatePlace(e, PlaceTarget)
	case b.probes(g.held) == 0:
		return c.shut(w, 0, "its circuit breaker is half open, and other calls try it"), nil
	}
	b.Probes = append(b.Probes, probe)
	b.probing(w.Now)
	w.setBreaker(g, b)
	return Reply{Target: belay.TargetAnswer{Open: true, Probe: true}}, nil
}

func (c *CallTarget) shut(w *world, until Time, why string) Reply {
	a := belay.TargetAnswer{Why: fmt.Sprintf("the target %s is not called: %s", c.Target, why)}
	if until > w.Now {
		a.RetryAfter = until.Sub(w.Now)
	}
	return Reply{Target: a}
}

// breaker returns a copy of the gate's circuit breaker in its state at the time now.
func (g *gate) breaker(now Time) Breaker {
	b := Breaker{State: BreakerClosed}
	if g.Breaker != nil {
		b = *g.Breaker
		b.Probes = slices.Clone(b.Probes)
	}
	b.pass(now, g.held)
	return b
}

// setBreaker stores a changed circuit breaker. If executions may now pass, setBreaker adds an Admit.
func (w *world) setBreaker(g *gate, b Breaker) {
	switch {
	case g.Breaker == nil && b.State == BreakerClosed && b.Failures == 0:
		return
	case g.Breaker != nil && b.equal(g.Breaker):
		return
	}
	if b.State == BreakerOpen && (g.Breaker == nil || g.Breaker.State == BreakerClosed) {
		w.out.Opened = true
	}
	g.Breaker, g.dirty = &b, true
	if g.waits() && g.room(w.Now) > 0 {
		w.follow(&Admit{Gate: g.id, Heads: MaxHeads})
	}
}

// awaitTarget handles an execution whose run met the open circuit breaker of a target: the
// execution waits until this breaker lets it through. If the breaker lets calls through again
// already, or if the batch has not read the breaker, the execution is due again after atLeast, and
// after circuitWait at the earliest.
func (w *world) awaitTarget(e *Execution, target string, atLeast time.Duration) {
	if e.State != belay.Pending {
		return
	}
	e.DueAt = w.Now.Add(max(atLeast, circuitWait))
	if target == "" {
		return
	}
	g := w.gate(belay.Gate(belay.GateTarget, target))
	if g == nil || g.err != nil || !g.counted {
		return
	}
	if why, _ := g.shut(w.Now); why == "" {
		return
	}
	priority := 0
	if s := w.specs[e.ID]; s != nil {
		priority = s.Priority
	}
	e.DueAt = w.Now
	w.park(e, g, priority)
}

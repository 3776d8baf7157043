package machine

import (
	"github.com/belaydev/belay"
)

// Admit lets waiting executions through a gate, as many as the gate has room for, in the order in
// which they wait (the gate's line). It also ends a pause whose time is over, lets the circuit
// breaker proceed, and repeats the cancels of replaced executions that were lost. An Admit is correct
// at any time and any number of times.
type Admit struct {
	Gate belay.GateID
	// Heads is the number of executions that the batch loads for this command. Each Admit may let any
	// of the executions through that the batch has loaded for the gate.
	Heads int
	// Modes and Lead are for a resource: its waiting modes, whose lines the batch counts, and the mode
	// whose first executions it loads. Without Modes, an Admit of a resource only finds out whether
	// there is anything to do.
	Modes []string
	Lead  string
}

// Need asks the store for the gate and the first executions that wait at it.
func (c *Admit) Need(n *Need) {
	n.Counts = append(n.Counts, c.Gate)
	if c.Modes == nil {
		n.addLine(c.Gate, c.Heads)
		return
	}
	for _, mode := range c.Modes {
		n.Counts = append(n.Counts, LineOf(c.Gate, mode))
	}
	n.addLine(LineOf(c.Gate, c.Lead), c.Heads)
}

func (c *Admit) apply(w *world) (Reply, error) {
	g := w.gate(c.Gate)
	if g == nil || g.row == nil && !g.dirty {
		return Reply{}, refuse(belay.CodeNotFound, "admit", "there is no gate %s", c.Gate)
	}
	if g.err != nil {
		return Reply{}, g.err
	}
	g.pass(w.Now)
	w.repeatCancels(g)
	if g.id.Kind() == belay.GateResource {
		c.turn(w, g)
		return Reply{}, nil
	}
	// steps is the number of executions let through here that waited because a step met an open
	// circuit breaker. They get no place before the step asks the breaker again, so the loop
	// subtracts them from the room of the gate.
	let, steps := 0, 0
	for _, e := range w.lines[c.Gate] {
		if g.room(w.Now)-steps <= 0 {
			break
		}
		if e.Gate == c.Gate {
			if g.id.Kind() == belay.GateTarget && !e.names(g.id) {
				steps++
			}
			w.admit(e, g)
			let++
		}
	}
	switch {
	case !g.waits():
		g.lookBy(0)
	case let > 0 && g.room(w.Now)-steps > 0:
		w.follow(&Admit{Gate: c.Gate, Heads: min(g.room(w.Now)-steps, MaxHeads)})
		fallthrough
	default:
		g.lookBy(g.lookAt(w.Now))
	}
	return Reply{}, nil
}

// MaxHeads is the largest number of executions that one batch lets through a gate.
const MaxHeads = 100

// admit lets an execution that waits at a gate through.
func (w *world) admit(e *Execution, g *gate) {
	w.unpark(e)
	switch g.id.Kind() {
	case belay.GateLimit:
		w.occupy(e, PlaceLimit)
	case belay.GateRate:
		w.occupy(e, PlaceRate)
	case belay.GateResource:
		w.occupy(e, PlaceResource)
		r := g.resource()
		r.entered(e.Gates.Requires.Mode, w.Now)
		r.let(w.Now)
		g.dirty = true
	case belay.GateTarget:
		if !e.names(g.id) { // a step of the execution will ask the breaker again
			w.markDue(e)
			return
		}
		if b := g.Breaker; b != nil && b.State == BreakerHalfOpen {
			w.occupy(e, PlaceTarget)
			b.probing(w.Now)
			g.dirty = true
		}
	}
	e.AdmitBy = w.Now.Add(admitFor)
	w.markDue(e)
}

// Claimable returns the time since which workers may claim a due execution, so that a wait at a
// gate does not count as a delay. If a gate that the execution names has let it through, Claimable
// returns the time when the gate did so. While the execution waits at such a gate, Claimable
// returns now.
func (e *Execution) Claimable(now Time) Time {
	switch {
	case e.Gate != "":
		return max(e.DueAt, now)
	case e.AdmitBy != 0:
		return max(e.DueAt, e.AdmitBy.Add(-admitFor))
	}
	return e.DueSince()
}

// lapse takes back the unused places of an execution that a gate has let through and that no worker
// has claimed in time. From then on the execution counts as due since the gate let it through, so
// that its wait at the gate is not counted as a delay.
func (w *world) lapse(e *Execution) {
	at := e.Claimable(w.Now)
	w.withdraw(e)
	if e.Ready() != 0 {
		e.DueAt = at
	}
}

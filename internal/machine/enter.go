package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// Places is the set of places in gates that an execution has.
type Places uint8

// The places that an execution may have, one for each gate that it may meet.
const (
	PlaceLimit    Places = 1 << iota // kept from the first run to the end of the execution
	PlaceRate                        // a token that was taken for the next run
	PlaceTarget                      // the run is a probe of its target
	PlaceQueue                       // kept for one run
	PlaceWorkflow                    // kept for one run
)

// runPlaces are those that an execution leaves when its run ends.
const runPlaces = PlaceRate | PlaceTarget | PlaceQueue | PlaceWorkflow

// admitFor is how long an execution that a gate has let through keeps its place without a
// run: for so long a worker may take to claim it.
const admitFor = 2 * time.Second

// Place is a row of an execution in a gate. An execution that names a limit has a row in that gate
// from its submission to its end; in other gates it has a row while it has the place.
type Place struct {
	Gate      belay.GateID
	Execution belay.ExecutionID
	Held      bool // it has one of the gate's places
	Gone      bool // the row is to be deleted
}

// gateOf is the gate in which the execution has a place of a kind.
func (e *Execution) gateOf(p Places) belay.GateID {
	switch p {
	case PlaceLimit:
		return belay.Gate(belay.GateLimit, e.Gates.Concurrency.Name)
	case PlaceRate:
		return belay.Gate(belay.GateRate, e.Gates.Rate.Name)
	case PlaceTarget:
		return belay.Gate(belay.GateTarget, e.Gates.Target)
	case PlaceQueue:
		return belay.Gate(belay.GateQueue, e.Queue)
	case PlaceWorkflow:
		return belay.Gate(belay.GateWorkflow, e.Workflow)
	default:
		panic(fmt.Sprintf("there is no place %d", p))
	}
}

// ownGates are the gates that the execution names, in the order in which a claim asks
// them. The target comes first, since waiting for it takes nothing from others; the rate
// comes last, so that a token is taken for a run that starts.
func (e *Execution) ownGates() []Places {
	var all []Places
	if g := e.Gates; g != nil {
		if g.Target != "" {
			all = append(all, PlaceTarget)
		}
		if g.Concurrency != nil {
			all = append(all, PlaceLimit)
		}
		if g.Rate != nil {
			all = append(all, PlaceRate)
		}
	}
	return all
}

// own is the gate that the execution names, with the terms that it names where no
// operator has set others; nil if the fold has not read the gate.
func (w *world) own(e *Execution, p Places) *gate {
	g := w.gate(e.gateOf(p))
	switch {
	case g == nil:
	case p == PlaceLimit && (g.Limit == nil || g.Limit.Named == 0):
		l := Limit{Named: e.Gates.Concurrency.Max}
		if g.Limit != nil {
			l.Set = g.Limit.Set
		}
		g.Limit, g.terms = &l, true
	case p == PlaceRate:
		named := Pace{e.Gates.Rate.Max, e.Gates.Rate.Per}
		if g.Rate != nil && g.Rate.Named != nil && *g.Rate.Named == named {
			break
		}
		r := Rate{Named: &named}
		if g.Rate != nil { // what was taken stays taken
			r.Set, r.Full = g.Rate.Set, g.Rate.Full
		}
		g.Rate, g.terms = &r, true
	}
	return g
}

// asks is what the gates answer to an execution that is due.
type asks uint8

const (
	open    asks = iota
	parked       // at a gate that it names
	unknown      // the fold has not read one of its gates
)

// ask asks the gates that a due execution names. The first that is shut parks it.
// Priority is that of its lane.
func (w *world) ask(e *Execution, priority int) asks {
	for _, p := range e.ownGates() {
		if e.Places&p != 0 {
			continue
		}
		g := w.own(e, p)
		if g == nil || g.Limit != nil && !g.counted {
			return unknown
		}
		if why, _ := g.shut(w.Now); why == "" && g.line == 0 {
			continue
		}
		w.park(e, g, priority)
		return parked
	}
	return open
}

// park leaves a due execution in the line of a gate. It stays due since when it was.
func (w *world) park(e *Execution, g *gate, priority int) {
	e.Gate, e.GateRank, e.AdmitBy = g.id, -priority, 0
	w.changed(e)
	g.line++
	g.dirty = g.dirty || g.terms
	if g.room(w.Now) > 0 {
		w.follow(&Admit{Gate: g.id, Heads: 1})
	}
	g.lookBy(g.lookAt(w.Now))
}

// unpark takes an execution out of the line of its gate.
func (w *world) unpark(e *Execution) {
	if e.Gate == "" {
		return
	}
	if g := w.gate(e.Gate); g != nil {
		g.line--
	}
	e.Gate, e.GateRank = "", 0
	w.changed(e)
}

// mayEnter refuses to give an execution to an owner that was chosen for it while one of its
// gates is shut, and says when it may open.
func (w *world) mayEnter(op string, e *Execution) error {
	closed := func(g *gate, why string, until Time) error {
		err := refuse(belay.CodeConflict, op, "%s waits for its gate %s: %s", e.ID, g.id, why)
		err.RetryAfter = lineLook
		if until > w.Now {
			err.RetryAfter = until.Sub(w.Now)
		}
		return err
	}
	for _, p := range e.ownGates() {
		if e.Places&p != 0 {
			continue
		}
		g := w.own(e, p)
		if g == nil || !g.counted {
			return refuse(belay.CodeInternal, op, "the gate %s of %s was not read", e.gateOf(p), e.ID)
		}
		why, until := g.shut(w.Now)
		if why == "" && g.line > 0 {
			why = "others have waited for longer"
		}
		if why != "" {
			return closed(g, why, until)
		}
	}
	if g := w.shutBy(e.Queue, e.Workflow); g != nil {
		why, until := g.shut(w.Now)
		return closed(g, why, until)
	}
	return nil
}

// enter takes the places that a run needs. Its gates have answered that they are open.
func (w *world) enter(e *Execution) {
	for _, p := range e.ownGates() {
		has := e.Places&p != 0
		switch {
		case p == PlaceLimit && !has:
			w.occupy(e, p)
		case p == PlaceRate && !has:
			g := w.own(e, p)
			g.Rate.take(w.Now)
			g.dirty = true
		case p == PlaceRate: // its token was taken when it was let through
			w.leave(e, p)
		}
	}
	for _, p := range [...]Places{PlaceQueue, PlaceWorkflow} {
		if w.gateless() {
			break
		}
		g := w.gate(e.gateOf(p))
		if g == nil {
			continue
		}
		if g.Limit != nil {
			w.occupy(e, p)
		}
		if g.Rate != nil {
			g.Rate.take(w.Now)
			g.dirty = true
		}
	}
	if e.AdmitBy != 0 {
		e.AdmitBy = 0
		w.changed(e)
	}
}

// occupy takes a place in a gate.
func (w *world) occupy(e *Execution, p Places) {
	if e.Places&p != 0 {
		return
	}
	id := e.gateOf(p)
	e.Places |= p
	w.changed(e)
	w.place(Place{Gate: id, Execution: e.ID, Held: true})
	if g := w.gate(id); g != nil {
		g.held++
		g.dirty = g.dirty || g.terms
	}
}

// leave gives places back. A command that follows looks for executions that wait for one of them.
func (w *world) leave(e *Execution, places Places) {
	for p := PlaceLimit; p <= PlaceWorkflow; p <<= 1 {
		if e.Places&places&p == 0 {
			continue
		}
		id := e.gateOf(p)
		e.Places &^= p
		w.changed(e)
		// A limit counts its members too, until they have ended.
		w.place(Place{Gate: id, Execution: e.ID, Gone: p != PlaceLimit || e.State.Terminal()})
		if g := w.gate(id); g != nil {
			g.held--
		}
		if p == PlaceLimit || p == PlaceTarget {
			w.follow(&Admit{Gate: id, Heads: 1})
		}
	}
}

// leaveAll gives back all that an execution which has ended has in gates.
func (w *world) leaveAll(e *Execution) {
	w.unpark(e)
	e.AdmitBy = 0
	w.leave(e, ^Places(0))
	if e.Gates != nil && e.Gates.Concurrency != nil {
		id := e.gateOf(PlaceLimit)
		w.place(Place{Gate: id, Execution: e.ID, Gone: true})
		w.Members = slices.DeleteFunc(w.Members, func(m Place) bool { return m.Gate == id && m.Execution == e.ID })
		if g := w.gate(id); g != nil {
			g.members--
		}
	}
}

// join makes an execution a member of the limit that it names.
func (w *world) join(e *Execution) {
	if e.Gates != nil && e.Gates.Concurrency != nil {
		id := e.gateOf(PlaceLimit)
		w.place(Place{Gate: id, Execution: e.ID})
		w.Members = append(w.Members, Place{Gate: id, Execution: e.ID})
		if g := w.gate(id); g != nil {
			g.members++
		}
	}
}

// admitted are the places that an execution was let through to and has not used.
func (e *Execution) admitted() Places {
	if e.State == belay.Running || e.State == belay.Scheduled {
		return 0
	}
	p := PlaceRate | PlaceTarget
	if e.StartedAt == 0 {
		p |= PlaceLimit
	}
	return e.Places & p
}

// withdraw takes an execution from gates that it waits for or was let through by: it is not
// due any more, or no worker came.
func (w *world) withdraw(e *Execution) {
	w.unpark(e)
	w.leave(e, e.admitted())
	if e.AdmitBy != 0 {
		e.AdmitBy = 0
		w.changed(e)
	}
}

// place notes a row of places as it stands after the fold.
func (w *world) place(p Place) {
	for _, have := range w.out.Places {
		if have.Gate == p.Gate && have.Execution == p.Execution {
			*have = p
			return
		}
	}
	w.out.Places = append(w.out.Places, &p)
}

// Admit lets executions through that are parked at a gate, as many as it has room for, in
// the order of its line. It does what time does to the gate, too. It may be sent at any
// time and as often as one likes.
type Admit struct {
	Gate belay.GateID
	// Heads is how many are let through at most.
	Heads int
}

// Need names the gate and the head of its line.
func (c *Admit) Need(n *Need) {
	n.Counts = append(n.Counts, c.Gate)
	n.addLine(c.Gate, c.Heads)
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
	let := 0
	for _, e := range w.lines[c.Gate] {
		if let == c.Heads || g.room(w.Now) == 0 {
			break
		}
		if e.Gate == c.Gate {
			w.admit(e, g)
			let++
		}
	}
	switch {
	case g.line == 0:
		g.lookBy(0)
	case let == c.Heads && g.room(w.Now) > 0:
		w.follow(&Admit{Gate: c.Gate, Heads: MaxHeads})
		fallthrough
	default:
		g.lookBy(g.lookAt(w.Now))
	}
	return Reply{}, nil
}

// MaxHeads is how many executions a command lets through a gate at most.
const MaxHeads = 100

// admit lets the head of a gate's line through.
func (w *world) admit(e *Execution, g *gate) {
	w.unpark(e)
	switch g.id.Kind() {
	case belay.GateLimit:
		w.occupy(e, PlaceLimit)
	case belay.GateRate:
		g.Rate.take(w.Now)
		g.dirty = true
		w.occupy(e, PlaceRate)
	case belay.GateTarget:
		if b := g.Breaker; b != nil && b.State == BreakerHalfOpen {
			w.occupy(e, PlaceTarget)
			if b.NextRetryAt == 0 {
				b.NextRetryAt, g.dirty = w.Now.Add(breakerOpenFor), true
			}
		}
	}
	e.AdmitBy = w.Now.Add(admitFor)
	w.markDue(e)
}

// lapse takes back what an execution was let through to and no worker has claimed. It is
// due from when it was let through, so that the time in the line counts as no delay.
func (w *world) lapse(e *Execution) {
	at := e.AdmitBy - Time(admitFor/time.Microsecond)
	w.withdraw(e)
	if e.Ready() != 0 {
		e.DueAt = max(e.DueAt, at)
	}
}

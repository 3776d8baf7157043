package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// Places is the set of an execution's places in gates. A place is one unit of the capacity of a
// gate.
type Places uint8

// The places that an execution may have: one for each kind of gate.
const (
	PlaceLimit    Places = 1 << iota // kept from the first run to the end of the execution
	PlaceRate                        // a token of the rate is kept for the next run
	PlaceTarget                      // the run is a probe of its target
	PlaceQueue                       // kept for one run
	PlaceWorkflow                    // kept for one run
	PlaceResource                    // the run uses a resource in one of its modes

	lastPlace = PlaceResource
)

// runPlaces are the places that an execution frees when its run ends.
const runPlaces = PlaceRate | PlaceTarget | PlaceQueue | PlaceWorkflow | PlaceResource

// admitFor is how long an execution that a gate has let through keeps its place without a run. A
// worker must claim the execution within that time.
const admitFor = 2 * time.Second

// Place is the row of an execution in a gate. An execution that names a limit has a row in the gate
// of that limit from its submission to its end. In any other gate it has a row only while it has a
// place.
type Place struct {
	Gate      belay.GateID
	Execution belay.ExecutionID
	Held      bool // the execution has one of the gate's places
	Gone      bool // the row is to be deleted
}

// gateOf returns the gate in which the execution has, or would have, a place of this kind.
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
	case PlaceResource:
		return belay.Gate(belay.GateResource, e.Gates.Requires.Resource)
	default:
		panic(fmt.Sprintf("there is no place %d", p))
	}
}

// names reports whether the submission of the execution names the target of this gate.
func (e *Execution) names(target belay.GateID) bool {
	return e.Gates != nil && e.Gates.Target != "" && e.gateOf(PlaceTarget) == target
}

// ownGates returns the gates that the execution names, in the order in which a claim checks them.
// The target comes first, because an execution that waits for its target has no place in another
// gate. The resource comes next: its mode may stay shut for long, and until then the execution shall
// take no place of a limit. The rate comes last, so that a token is taken only for a run that starts.
func (e *Execution) ownGates() []Places {
	var all []Places
	if g := e.Gates; g != nil {
		if g.Target != "" {
			all = append(all, PlaceTarget)
		}
		if g.Requires != nil {
			all = append(all, PlaceResource)
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

// own returns the gate of kind p that the execution names, nil if the batch has not read the gate. If
// no execution has set the terms of the gate (its limit or its rate) yet, own sets them to the terms
// that this execution names. A caller that only reads the gate calls forgetTerms afterwards, which
// restores the earlier terms.
func (w *world) own(e *Execution, p Places) *gate {
	g := w.gate(e.gateOf(p))
	if g != nil {
		w.looked = append(w.looked, gateTerms{g, g.Limit, g.Rate, g.terms})
		g.setTerms(e, p)
	}
	return g
}

// setTerms sets the limit or the rate of the gate to that of the execution, if no execution has set
// it yet.
func (g *gate) setTerms(e *Execution, p Places) {
	switch {
	case p == PlaceLimit && (g.Limit == nil || g.Limit.Named == 0):
		l := Limit{Named: e.Gates.Concurrency.Max}
		if g.Limit != nil {
			l.Set, l.SetBy = g.Limit.Set, g.Limit.SetBy
		}
		g.Limit, g.terms = &l, true
	case p == PlaceRate && (g.Rate == nil || g.Rate.Named == nil):
		r := Rate{Named: &Pace{e.Gates.Rate.Max, e.Gates.Rate.Per}}
		if g.Rate != nil { // the tokens that runs have taken from the rate stay taken
			r.Set, r.SetBy, r.Full = g.Rate.Set, g.Rate.SetBy, g.Rate.Full
		}
		g.Rate, g.terms = &r, true
	}
}

// gateTerms contains the limit and the rate that a gate had before own replaced them.
type gateTerms struct {
	gate  *gate
	limit *Limit
	rate  *Rate
	terms bool
}

// forgetTerms restores the limits and rates that own has replaced since the last call of
// forgetTerms, except those of the gate keep. An execution may set the terms of a gate only when it
// gets a place there or waits there.
func (w *world) forgetTerms(keep *gate) {
	for _, l := range slices.Backward(w.looked) {
		if l.gate != keep {
			l.gate.Limit, l.gate.Rate, l.gate.terms = l.limit, l.rate, l.terms
		}
	}
	w.looked = w.looked[:0]
}

// asks is the result of ask: whether the gates let a due execution through.
type asks uint8

const (
	open    asks = iota
	parked       // the execution waits at a gate that it names
	unknown      // the batch has not read one of the execution's gates
)

// ask checks the gates that a due execution names. At the first gate that is shut, ask makes the
// execution wait, in the gate's line. priority is the priority of the execution's lane.
func (w *world) ask(e *Execution, priority int) asks {
	w.looked = w.looked[:0]
	for _, p := range e.ownGates() {
		g := w.own(e, p)
		if e.Places&p != 0 && (e.admitted()&p == 0 || g != nil && !g.closed(w.Now)) {
			continue
		}
		if g == nil || (g.Limit != nil || g.Rate != nil || p == PlaceResource) && !g.counted {
			w.forgetTerms(nil)
			return unknown
		}
		if e.Places&p != 0 { // the gate has shut since it let the execution through
			w.leave(e, p)
		} else if why, _ := g.bars(e, w.Now); why == "" {
			continue
		}
		w.park(e, g, priority)
		w.forgetTerms(g)
		return parked
	}
	w.forgetTerms(nil)
	return open
}

// park makes a due execution wait at a gate, in the gate's line. The time since which the execution
// is due does not change. The execution gives back its unused places in other gates, so that it
// does not keep them busy and no two executions wait for each other's places. There is one
// exception: an execution that waits for a rate keeps the place of its limit.
func (w *world) park(e *Execution, g *gate, priority int) {
	unused := e.admitted()
	if g.id.Kind() == belay.GateRate {
		unused &^= PlaceLimit
	}
	w.leave(e, unused)
	e.Gate, e.GateRank, e.AdmitBy = w.lineFor(e, g), -priority, 0
	w.changed(e)
	g.dirty = g.dirty || g.terms
	if g.room(w.Now) > 0 {
		w.follow(&Admit{Gate: g.id, Heads: 1})
	}
	g.lookBy(g.lookAt(w.Now))
}

// lineFor returns the id of the line in which the execution waits at the gate, and counts the execution there.
func (w *world) lineFor(e *Execution, g *gate) belay.GateID {
	if !e.requires(g.id) || !g.resource().want(e.Gates.Requires.Mode, w.Now) {
		g.line++
		return g.id
	}
	g.dirty = true
	id := LineOf(g.id, e.Gates.Requires.Mode)
	if line := w.gate(id); line != nil {
		line.line++
	}
	return id
}

// unpark takes an execution out of the line (the waiting executions) of its gate.
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

// mayEnter checks the gates of an execution that is to be given to a chosen owner. If a gate is
// shut, mayEnter refuses, and RetryAfter of the error says when the gate may open.
func (w *world) mayEnter(op string, e *Execution) error {
	if err := w.refuseSpent(op, e); err != nil {
		return err
	}
	w.looked = w.looked[:0]
	defer w.forgetTerms(nil)
	closed := func(g *gate, why string, until Time) *belay.Error {
		err := refuse(belay.CodeConflict, op, "%s waits for its gate %s: %s", e.ID, g.id, why)
		err.RetryAfter = lineLook
		if until > w.Now {
			err.RetryAfter = until.Sub(w.Now)
		}
		return err
	}
	for _, p := range e.ownGates() {
		g := w.own(e, p)
		if e.Places&p != 0 && (e.admitted()&p == 0 || g != nil && !g.closed(w.Now)) {
			continue
		}
		if g == nil || !g.counted {
			return refuse(belay.CodeInternal, op, "the gate %s of %s was not read", e.gateOf(p), e.ID)
		}
		if why, until := g.bars(e, w.Now); why != "" {
			return w.wishes(e, g, closed(g, why, until))
		}
	}
	if g := w.shutBy(e.Queue, e.Workflow); g != nil {
		why, until := g.shut(w.Now)
		return closed(g, why, until)
	}
	return nil
}

// wishes returns the refusal of an execution that is to be given to a chosen owner. If its resource
// is in another mode, the refusal notes that the mode is wanted, although the execution does not wait
// in a line: without this note the mode of an idle resource would never change for a program that
// repeats its lock.
func (w *world) wishes(e *Execution, g *gate, refusal *belay.Error) error {
	if g.err != nil || !e.requires(g.id) {
		return refusal
	}
	refusal.Code = belay.CodeSwapInProgress
	g.resource().wish(e.Gates.Requires.Mode, w.Now)
	g.dirty = true
	if g.held == 0 {
		w.follow(&Admit{Gate: g.id, Heads: 1})
	}
	g.lookBy(g.lookAt(w.Now))
	return refusal
}

// enter takes the places that a run needs. The caller has checked that all gates are open.
func (w *world) enter(e *Execution) {
	for _, p := range e.ownGates() {
		has := e.Places&p != 0
		switch {
		case p == PlaceLimit && !has:
			w.own(e, p)
			w.occupy(e, p)
		case p == PlaceResource:
			w.occupy(e, p)
			g := w.gate(e.gateOf(p))
			r := g.resource()
			if r.entered(e.Gates.Requires.Mode, w.Now) {
				g.dirty = true
			}
			if has && e.AdmitBy != 0 && r.Let > 0 { // the resource had let it through
				r.Let, g.dirty = r.Let-1, true
				if r.Let == MaxHeads && r.wants(r.Mode) {
					w.follow(&Admit{Gate: g.id, Heads: 1})
				}
			}
		case p == PlaceRate:
			g := w.own(e, p)
			g.Rate.take(w.Now)
			g.dirty = true
			if has { // the place has reserved the token for this run; the line above takes it
				w.vacatePlace(e, p)
			}
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

// occupy gives the execution a place in a gate.
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

// leave frees places of an execution in their gates. If other executions may wait for such a place,
// leave adds an Admit command, which lets one of them through the gate.
func (w *world) leave(e *Execution, places Places) {
	for p := PlaceLimit; p <= lastPlace; p <<= 1 {
		if e.Places&places&p == 0 {
			continue
		}
		w.vacatePlace(e, p)
		if p != PlaceQueue && p != PlaceWorkflow {
			w.follow(&Admit{Gate: e.gateOf(p), Heads: 1})
		}
	}
}

// vacatePlace takes a place away from an execution.
func (w *world) vacatePlace(e *Execution, p Places) {
	id := e.gateOf(p)
	e.Places &^= p
	w.changed(e)
	// An execution that names a limit keeps its row in the limit's gate, without a place, until
	// the execution has ended.
	w.place(Place{Gate: id, Execution: e.ID, Gone: p != PlaceLimit || e.State.Terminal()})
	if g := w.gate(id); g != nil {
		g.held--
		if p == PlaceTarget && g.Breaker != nil && g.Breaker.Slow > 0 {
			g.Breaker.probed()
			g.dirty = true
		}
	}
}

// leaveAll removes an execution that has ended from all gates: it waits at no gate any more, frees
// its places, and is no member of its limit any more.
func (w *world) leaveAll(e *Execution) {
	w.unpark(e)
	e.AdmitBy = 0
	w.leave(e, ^Places(0))
	if e.Gates != nil && e.Gates.Concurrency != nil {
		id := e.gateOf(PlaceLimit)
		w.place(Place{Gate: id, Execution: e.ID, Gone: true})
		if g := w.gate(id); g != nil {
			w.Members = slices.DeleteFunc(w.Members, func(m Place) bool { return m.Gate == id && m.Execution == e.ID })
			g.members--
		}
	}
}

// join makes an execution a member of the limit that it names. No command looks for the members of a gate that the
// batch has not read.
func (w *world) join(e *Execution) {
	if e.Gates != nil && e.Gates.Concurrency != nil {
		id := e.gateOf(PlaceLimit)
		w.place(Place{Gate: id, Execution: e.ID})
		g := w.gate(id)
		if g == nil {
			return
		}
		// The oldest come first. An execution that is reopened may be older than other members.
		at := slices.IndexFunc(w.Members, func(m Place) bool { return m.Gate == id && e.ID.Compare(m.Execution) < 0 })
		if at < 0 {
			at = len(w.Members)
		}
		w.Members = slices.Insert(w.Members, at, Place{Gate: id, Execution: e.ID})
		g.members++
	}
}

// admitted returns the places that an execution got when a gate let it through and that no run has
// used yet.
func (e *Execution) admitted() Places {
	if e.State == belay.Running || e.State == belay.Scheduled {
		return 0
	}
	p := PlaceRate | PlaceTarget | PlaceResource
	if e.StartedAt == 0 {
		p |= PlaceLimit
	}
	return e.Places & p
}

// withdraw takes an execution out of the line (the waiting executions) of its gate, and frees the
// places that no run has used, because the execution is not due any more or no worker has claimed
// it in time.
func (w *world) withdraw(e *Execution) {
	w.unpark(e)
	w.leave(e, e.admitted())
	if e.AdmitBy != 0 {
		e.AdmitBy = 0
		w.changed(e)
	}
}

// place adds the row p of an execution in a gate to the changes of the batch. It replaces an earlier
// change of the same row.
func (w *world) place(p Place) {
	at := placeAt{p.Gate, p.Execution}
	if have := w.placed[at]; have != nil {
		*have = p
		return
	}
	if w.placed == nil {
		w.placed = make(map[placeAt]*Place)
	}
	w.placed[at] = &p
	w.out.Places = append(w.out.Places, &p)
}

// placeAt is the key of a row of an execution in a gate.
type placeAt struct {
	gate      belay.GateID
	execution belay.ExecutionID
}

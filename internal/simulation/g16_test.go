package simulation

import (
	"context"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// g16 checks G16, that gates let through no more than they may, commit by commit: each place that
// an execution got was free before, each run that began had passed its gates, and each place
// belongs to an execution that may have it. At the end no place is taken.
func g16(f *finding) {
	replaced, targets := newReplaced(), make(targetStates)
	g := f.eachGateCommit(func(g *gateRows, c *commit) {
		replaced.enter(f, g, c)
		targets.enter(g, c)
		for _, r := range g.fresh {
			f.g16taken(r, c)
			f.g16probes(r, c)
			f.g16members(r, c)
		}
		for _, e := range c.changes.Executions {
			f.g16row(g, e, c)
		}
		for _, r := range c.changes.Runs {
			if r.New {
				f.g16claim(g, r, c)
			}
		}
		for _, r := range g.fresh {
			if r.wrote == c && paceOf(&r.was) != paceOf(&r.now) {
				r.starts = nil
			}
			f.g16rate(r, c)
		}
		g.tally(c)
	})
	targets.calls(f)
	for _, r := range g.sorted() {
		f.g16rest(r)
	}
}

// g16taken checks that the places that the commit gave out were free. The order of changes within
// a commit is not known, so the larger of the limits before and after the commit counts.
func (f *finding) g16taken(r *gateRow, c *commit) {
	if len(r.entered) == 0 || r.orders > 1 {
		return
	}
	f.OK()
	s := f.byID[r.entered[0]]
	if k := r.id.Kind(); k == belay.GateRate || k == belay.GateTarget || k == belay.GateResource {
		return // g16claim checks the runs at a rate, g16probes the probes of a target, and g13 the modes of a resource
	}
	before, limited := limitOf(&r.was)
	after, still := limitOf(&r.now)
	if !limited && !still {
		f.violation(s, c, "it has a place of %s, which has no limit", r.id)
	} else if r.held > max(before, after) {
		f.violation(s, c, "%d places of %s are taken, which has %d", r.held, r.id, max(before, after))
	}
}

// g16members checks the rows of places that the commit wrote: each row belongs to an execution that
// may have this place.
func (f *finding) g16members(r *gateRow, c *commit) {
	for _, p := range c.changes.Places {
		if p.Gate != r.id || p.Gone {
			continue
		}
		f.OK()
		s := f.byID[p.Execution]
		if s == nil {
			f.violation(nil, c, "%s has a place of %s, which does not exist", r.id, short(p.Execution))
			continue
		}
		e, _ := s.at(c)
		kind := kindOf(p.Gate)
		switch {
		case e.State.Terminal():
			f.violation(s, c, "it is %s and has a row of %s", e.State, p.Gate)
		case gatesOf(e.Execution)[kind] != p.Gate:
			f.violation(s, c, "it has a row of %s, which does not concern it", p.Gate)
		case p.Held != (e.Places&kind != 0):
			f.violation(s, c, "its row of %s (held %t) does not fit its places %b", p.Gate, p.Held, e.Places)
		}
	}
}

// g16row checks the places of an execution that the commit wrote.
func (f *finding) g16row(g *gateRows, e *machine.Execution, c *commit) {
	s, gates := f.byID[e.ID], gatesOf(e)
	if e.State.Terminal() {
		for kind, id := range gates {
			if _, there := g.row(id).places[e.ID]; there || e.Places&kind != 0 {
				f.violation(s, c, "it is %s and still has a row of %s", e.State, id)
			}
		}
		return
	}
	for kind, id := range gates {
		switch has := g.row(id).places[e.ID]; {
		case e.Places&kind != 0 && !has:
			f.violation(s, c, "it has the place of %s, and the gate has no row of it", id)
		case e.Places&kind == 0 && has:
			f.violation(s, c, "it has a place of %s, and its row says that it has none", id)
		}
	}
	for kind := machine.PlaceLimit; kind <= machine.PlaceResource; kind <<= 1 {
		if e.Places&kind != 0 && gates[kind] == "" {
			f.violation(s, c, "it has the place %b and no such gate", kind)
		}
	}
	limit, limited := gates[machine.PlaceLimit]
	admitted := e.AdmitBy != 0 && e.CheckAt != 0 && e.CheckAt <= e.AdmitBy
	switch {
	case owned(e) && limited && e.Places&machine.PlaceLimit == 0:
		f.violation(s, c, "its run has no place of %s", limit)
	case owned(e) && e.Places&machine.PlaceRate != 0:
		f.violation(s, c, "its run has a place of %s, which is for executions that were let through",
			gates[machine.PlaceRate])
	case owned(e):
	case e.Places&(machine.PlaceQueue|machine.PlaceWorkflow) != 0:
		f.violation(s, c, "it is %s and has places of a run: %b", e.State, e.Places)
	case e.Places&(machine.PlaceRate|machine.PlaceTarget|machine.PlaceResource) != 0 && !admitted && e.Gate == "":
		f.violation(s, c, "it is %s and was let through without an end: %b", e.State, e.Places)
	case e.Places&machine.PlaceLimit != 0 && e.Token == 0 && !admitted && e.Gate == "":
		f.violation(s, c, "it is %s, was never assigned and has a place of %s", e.State, limit)
	case e.AdmitBy != 0 && (!admitted || e.Gate != ""):
		f.violation(s, c, "it was let through until %d, is checked at %d and waits at %q", e.AdmitBy, e.CheckAt, e.Gate)
	}
	if limited {
		if _, there := g.row(limit).places[e.ID]; !there {
			f.violation(s, c, "it is not among the members of %s", limit)
		}
	}
	before, there := s.before(c)
	if there && before.Gate != "" && e.Gate == "" && e.AdmitBy != 0 {
		r := g.row(before.WaitsAt())
		needs := r.id.Kind() == belay.GateLimit || r.id.Kind() == belay.GateRate || isHalfOpen(&r.was) &&
			isHalfOpen(&r.now)
		if needs && !r.places[e.ID] {
			f.violation(s, c, "%s has let it through without a place", r.id)
		}
	}
	f.OK()
}

// g16claim checks that a run that began in the commit had passed its gates. A gate that was shut
// before and after the commit was shut when the run began.
func (f *finding) g16claim(g *gateRows, run *machine.Run, c *commit) {
	s := f.byID[run.Execution]
	e, _ := s.at(c)
	before, there := s.before(c)
	if !there {
		before = e // the execution was submitted in the same commit
	}
	for kind, id := range gatesOf(e.Execution) {
		r := g.row(id)
		if r.orders > 1 {
			continue
		}
		f.OK()
		// An execution keeps the place of its limit from its first run to its end.
		kept := kind == machine.PlaceLimit && before.Places&kind != 0 && before.StartedAt != 0
		switch {
		case kept:
		case pausedAt(&r.was, c.at) && pausedAt(&r.now, c.at):
			f.violation(s, c, "a run began while %s was paused", id)
		case isOpen(&r.was) && isOpen(&r.now):
			f.violation(s, c, "a run began while the circuit breaker of %s was open", id)
		case isHalfOpen(&r.was) && isHalfOpen(&r.now) && !r.places[e.ID] && owned(e.Execution):
			f.violation(s, c, "a run began at %s, which is half open, and is no probe", id)
		}
		if paceOf(&r.now).Max > 0 {
			r.starts = append(r.starts, c.at.Time())
		}
	}
}

// g16rate checks that no more runs have started than the rate of a gate allows, since the rate has
// last changed.
func (f *finding) g16rate(r *gateRow, c *commit) {
	p, n := paceOf(&r.now), len(r.starts)
	if n == 0 || !r.starts[n-1].Equal(c.at.Time()) || p.Max == 0 {
		return
	}
	f.OK()
	if i, j, over := promise.OverRate(r.starts, p.Max, p.Per.D()); over {
		f.violation(nil, c, "%d runs began at %s within %s; its rate is %d per %s", j-i+1, r.id,
			r.starts[j].Sub(r.starts[i]), p.Max, p.Per.D())
		r.starts = nil
	}
}

// g16rest checks that no place of a gate is left at the end, and that the store has as many places
// as were written.
func (f *finding) g16rest(r *gateRow) {
	f.OK()
	n := 0
	for id := range r.places {
		n++
		if e := f.byID[id]; e == nil || e.last().State.Terminal() {
			f.violation(nil, nil, "%s has a row of %s, which has ended", r.id, short(id))
		}
	}
	var k machine.GateCount
	need := machine.Need{Counts: []belay.GateID{r.id}, CountMembers: n + 1}
	err := f.w.store.Commit(context.Background(), need, func(rows *machine.Rows) *machine.Changes {
		k = rows.Counts[0]
		return nil
	})
	if err != nil || k.Held != r.held || k.Members != n || k.Line != len(r.line) && r.id.Kind() != belay.GateResource {
		f.violation(nil, nil, "the store has %+v (%v) for %s; written were %d places, %d members and %d in its line", k,
			err, r.id, r.held, n, len(r.line))
	}
}

// tally counts the events of gates that must happen at least once.
func (g *gateRows) tally(c *commit) {
	for _, e := range c.changes.Executions {
		before, there := g.byID[e.ID].before(c)
		switch {
		case !there:
		case before.Gate == "" && e.Gate != "":
			g.count("parked")
		case before.Gate != "" && e.Gate == "" && (e.AdmitBy != 0 || owned(e)):
			g.count("admitted")
		case before.AdmitBy != 0 && before.AdmitBy <= c.at && e.AdmitBy == 0 && !owned(e) && !e.State.Terminal():
			g.count("admission expired")
		}
	}
	for _, d := range c.changes.Deeds {
		r, there := g.byID[d.Execution].before(c)
		if there && strings.HasPrefix(d.Reason, "replaced by ") && r.Places&machine.PlaceLimit != 0 {
			g.count("replaced while it had a place")
		}
	}
	for _, r := range g.fresh {
		r.tally(g, c)
	}
}

func (r *gateRow) tally(g *gateRows, c *commit) {
	if len(r.left) > 0 && len(r.entered) > 0 {
		g.count("place passed on in one commit")
	}
	if r.was.Pause != nil && r.now.Pause == nil && r.orders == 0 {
		g.count("pause ended by its time")
	}
	for _, a := range c.changes.Audit {
		unset := a.Action == string(belay.GateUnsetLimit) || a.Action == string(belay.GateUnsetRate)
		if belay.GateID(a.Name) == r.id && unset && len(r.line) > 0 {
			g.count("limit unset with a line")
		}
	}
	b := r.now.Breaker
	switch old := r.was.Breaker; {
	case b == nil || r.wrote != c:
	case b.Forced && r.orders > 0:
		g.count("breaker forced")
	case isOpen(&r.now) && old != nil && old.State == machine.BreakerClosed:
		g.count("breaker opened")
	case isHalfOpen(&r.was) && isOpen(&r.now):
		g.count("probe failed")
	case isHalfOpen(&r.was) && (isHalfOpen(&r.now) && b.Successes > old.Successes || r.orders == 0 && b.State ==
		machine.BreakerClosed):
		g.count("probe passed")
	}
}

// g5parked checks the part of G5 that concerns gates: an execution waits only at a gate that has a
// time for its next check, and while the gate has room, the engine makes the check that lets the
// execution through in time.
func g5parked(f *finding) {
	g := f.eachGateCommit(func(g *gateRows, c *commit) {
		for _, r := range g.sorted() {
			f.g5late(r, c.real)
		}
		for _, r := range g.fresh {
			f.g5gate(g, r, c)
		}
	})
	for _, r := range g.sorted() {
		f.g5late(r, f.ended)
	}
}

// g5late reports the gate if, at the moment now, the gate has had room for longer than allowed
// while executions waited at it.
func (f *finding) g5late(r *gateRow, now time.Duration) {
	if r.room == 0 || now <= r.room {
		return
	}
	if by := f.deadline(r.room+time.Second, r.wrote); now > by {
		f.violation(nil, nil, "%d executions wait at %s, which has had room since %s and let none through until %s",
			len(r.line), r.id, r.room, now)
		r.room = 0
	}
}

// g5gate notes the moment from which a gate has room for an execution that waits at it.
func (f *finding) g5gate(g *gateRows, r *gateRow, c *commit) {
	if len(r.line) == 0 {
		r.room = 0
		return
	}
	f.OK()
	if r.next == 0 {
		f.violation(nil, c, "%d executions wait at %s, at which nothing looks again", len(r.line), r.id)
	}
	opens := r.opens(c.at)
	progress := false
	for _, e := range c.changes.Executions {
		before, there := g.byID[e.ID].before(c)
		progress = progress || there && before.WaitsAt() == r.id && e.WaitsAt() != r.id
	}
	switch {
	case opens == 0:
		r.room = 0
	case r.room == 0 || progress || opens > c.at:
		r.room = max(f.real(opens), c.real)
	}
}

package simulation

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// gateRow is the state of one of Belay's gates after the commits up to one commit: its row, its
// places, and the executions that wait at it.
type gateRow struct {
	id belay.GateID
	// was and now are the gate before and after the present commit. next is the time at which the
	// gate must be checked again, as its row says; 0 for never.
	was, now machine.Gate
	next     machine.Time
	wrote    *commit // the last commit that wrote the row; nil for none
	orders   int     // the number of changes by operators in the present commit

	places  map[belay.ExecutionID]bool // true if the execution has a place; false if it is only a member of the limit
	held    int
	entered []belay.ExecutionID // the executions that got a place in the present commit
	left    []belay.ExecutionID // the executions that gave a place back in the present commit
	// line are the executions that wait at the gate, with the mode of the resource that they require.
	line map[belay.ExecutionID]string

	probes map[string]machine.Time // the start time of each running probe of the target

	starts []time.Time // the starts of runs since the rate has last changed
	// room is the moment since which three things have been true: the gate has had room, executions
	// have waited at the gate, and none of them has passed the gate; 0 if there is no such moment.
	room time.Duration
}

// gateRows reads the commits one by one.
type gateRows struct {
	*book
	rows  map[belay.GateID]*gateRow
	fresh []*gateRow // the rows that the present commit has changed
}

// eachGateCommit calls visit after each commit.
func (b *book) eachGateCommit(visit func(*gateRows, *commit)) *gateRows {
	g := &gateRows{book: b, rows: make(map[belay.GateID]*gateRow)}
	for _, c := range b.commits {
		g.enter(c)
		visit(g, c)
	}
	return g
}

func (g *gateRows) row(id belay.GateID) *gateRow {
	r := g.rows[id]
	if r == nil {
		r = &gateRow{id: id, places: make(map[belay.ExecutionID]bool), line: make(map[belay.ExecutionID]string)}
		g.rows[id] = r
	}
	return r
}

// sorted returns all rows in the order of their ids.
func (g *gateRows) sorted() []*gateRow {
	var out []*gateRow
	for _, id := range slices.Sorted(maps.Keys(g.rows)) {
		out = append(out, g.rows[id])
	}
	return out
}

func (g *gateRows) enter(c *commit) {
	for _, r := range g.fresh {
		r.was, r.orders, r.entered, r.left = r.now, 0, nil, nil
	}
	g.fresh = g.fresh[:0]
	for _, o := range c.changes.Objects {
		if o.Kind != machine.GateObject {
			continue
		}
		body, err := machine.ReadGate(o)
		if err != nil {
			panic(err)
		}
		r := g.change(belay.GateID(o.Name))
		r.now, r.next, r.wrote = *body, o.NextAt, c
	}
	for _, a := range c.changes.Audit {
		if a.Kind == machine.GateObject {
			g.change(belay.GateID(a.Name)).orders++
		}
	}
	for _, p := range c.changes.Places {
		g.change(p.Gate).put(p)
	}
	for _, e := range c.changes.Executions {
		if before, there := g.byID[e.ID].before(c); there && before.Gate != "" {
			delete(g.change(before.WaitsAt()).line, e.ID)
		}
		if e.Gate != "" {
			g.change(e.WaitsAt()).line[e.ID] = modeOf(e)
		}
	}
}

func (g *gateRows) change(id belay.GateID) *gateRow {
	r := g.row(id)
	if !slices.Contains(g.fresh, r) {
		g.fresh = append(g.fresh, r)
	}
	return r
}

func (r *gateRow) put(p *machine.Place) {
	had := r.places[p.Execution]
	if p.Gone {
		delete(r.places, p.Execution)
	} else {
		r.places[p.Execution] = p.Held
	}
	switch has := p.Held && !p.Gone; {
	case has && !had:
		r.held++
		r.entered = append(r.entered, p.Execution)
	case !has && had:
		r.held--
		r.left = append(r.left, p.Execution)
	}
}

// limitOf returns the limit that applies, and false if the gate has none.
func limitOf(g *machine.Gate) (int, bool) {
	switch {
	case g.Limit == nil:
		return 0, false
	case g.Limit.Set > 0:
		return g.Limit.Set, true
	}
	return g.Limit.Named, true
}

// paceOf returns the rate that applies; its Max is 0 if the gate has none.
func paceOf(g *machine.Gate) machine.Pace {
	switch {
	case g.Rate == nil:
		return machine.Pace{}
	case g.Rate.Set != nil:
		return *g.Rate.Set
	case g.Rate.Named != nil:
		return *g.Rate.Named
	}
	return machine.Pace{}
}

func pausedAt(g *machine.Gate, at machine.Time) bool {
	return g.Pause != nil && (g.Pause.Until == 0 || g.Pause.Until > at)
}

// isOpen reports whether the circuit breaker of the gate is open, and not closed or half open.
func isOpen(g *machine.Gate) bool { return g.Breaker != nil && g.Breaker.State == machine.BreakerOpen }

func isHalfOpen(g *machine.Gate) bool {
	return g.Breaker != nil && g.Breaker.State == machine.BreakerHalfOpen
}

// A half-open circuit breaker lets freshProbes probes run that have begun within the last slowAfter, and
// probesAtOnce in all.
const (
	freshProbes  = 1
	slowAfter    = 30 * time.Second
	probesAtOnce = 5
)

// opens returns the earliest moment, now or later, at which the gate has room for one more
// execution if nothing changes, or 0 if there is no such moment.
func (r *gateRow) opens(now machine.Time) machine.Time {
	g, at := &r.now, now
	if g.Pause != nil {
		if g.Pause.Until == 0 {
			return 0
		}
		at = max(at, g.Pause.Until)
	}
	if g.Resource != nil {
		return r.opensFor(at)
	}
	switch {
	case isOpen(g) && g.Breaker.Forced:
		return 0
	case isOpen(g):
		at = max(at, g.Breaker.NextRetryAt)
	case isHalfOpen(g):
		running := r.held + len(g.Breaker.Probes)
		fresh := running - min(g.Breaker.Slow, running)
		switch {
		case fresh < freshProbes && running < probesAtOnce:
		case g.Breaker.NextRetryAt == 0 || r.held >= probesAtOnce:
			return 0
		default:
			at = max(at, g.Breaker.NextRetryAt)
		}
	}
	if n, limited := limitOf(g); limited && r.held >= n {
		return 0
	}
	if p := paceOf(g); p.Max > 0 {
		free := p.Max
		if r.id.Kind() == belay.GateRate {
			free -= r.held // each execution that has passed the gate keeps a token for its run
		}
		if free <= 0 {
			return 0
		}
		// The rate is a token bucket. A token is free when at most free - 1 tokens are missing; at
		// the time g.Rate.Full the bucket is full.
		each := machine.Time(0).Add((p.Per.D() + time.Duration(p.Max) - 1) / time.Duration(p.Max))
		at = max(at, min(g.Rate.Full, now+each*machine.Time(p.Max))-each*machine.Time(free-1))
	}
	return at
}

// kindOf returns the place that an execution has in gates of a kind.
func kindOf(id belay.GateID) machine.Places {
	return map[string]machine.Places{
		belay.GateLimit: machine.PlaceLimit, belay.GateRate: machine.PlaceRate, belay.GateTarget: machine.PlaceTarget,
		belay.GateQueue: machine.PlaceQueue, belay.GateWorkflow: machine.PlaceWorkflow,
		belay.GateResource: machine.PlaceResource,
	}[id.Kind()]
}

// gatesOf returns the ids of the gates that concern an execution, by their places.
func gatesOf(e *machine.Execution) map[machine.Places]belay.GateID {
	all := map[machine.Places]belay.GateID{
		machine.PlaceQueue:    belay.Gate(belay.GateQueue, e.Queue),
		machine.PlaceWorkflow: belay.Gate(belay.GateWorkflow, e.Workflow),
	}
	if g := e.Gates; g != nil {
		if g.Concurrency != nil {
			all[machine.PlaceLimit] = belay.Gate(belay.GateLimit, g.Concurrency.Name)
		}
		if g.Rate != nil {
			all[machine.PlaceRate] = belay.Gate(belay.GateRate, g.Rate.Name)
		}
		if g.Target != "" {
			all[machine.PlaceTarget] = belay.Gate(belay.GateTarget, g.Target)
		}
		if g.Requires != nil {
			all[machine.PlaceResource] = belay.Gate(belay.GateResource, g.Requires.Resource)
		}
	}
	return all
}

func owned(e *machine.Execution) bool { return e.State == belay.Running || e.State == belay.Scheduled }

// changedGates returns the limits and rates that an operator has changed, or that executions named
// with different numbers.
func (b *book) changedGates() map[belay.GateID]bool {
	changed := make(map[belay.GateID]bool)
	first := make(map[belay.GateID]machine.Gate)
	b.eachGateCommit(func(g *gateRows, _ *commit) {
		for _, r := range g.fresh {
			old, there := first[r.id]
			if !there && r.wrote != nil {
				old = r.now
				first[r.id] = old
			}
			n, _ := limitOf(&r.now)
			m, _ := limitOf(&old)
			if r.orders > 0 || n != m || paceOf(&r.now) != paceOf(&old) {
				changed[r.id] = true
			}
		}
	})
	return changed
}

// laneShut returns the spans in which the gate of each queue and workflow had no room.
func (b *book) laneShut() map[belay.GateID][]span {
	all := make(map[belay.GateID][]span)
	shut := make(map[belay.GateID]time.Duration) // the time since which the gate has had no room
	end := func(r *gateRow, at time.Duration) {
		if from, is := shut[r.id]; is && at > from {
			all[r.id] = append(all[r.id], span{from, at})
		}
		delete(shut, r.id)
	}
	g := b.eachGateCommit(func(g *gateRows, c *commit) {
		for _, r := range g.fresh {
			if !strings.HasPrefix(string(r.id), "queue:") && !strings.HasPrefix(string(r.id), "workflow:") {
				continue
			}
			end(r, c.real)
			switch at := r.opens(c.at); {
			case at == 0:
				shut[r.id] = c.real
			case at > c.at:
				all[r.id] = append(all[r.id], span{c.real, b.real(at)})
			}
		}
	})
	for _, r := range g.sorted() {
		end(r, b.ended)
	}
	return all
}

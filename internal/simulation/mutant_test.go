package simulation

import (
	"math/rand/v2"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// mutant is a bug planted at the seams, so that the code under test stays as it
// is. Each must be found by the checker that it is meant for.
type mutant struct {
	name  string
	meant string // the promise it breaks
	says  string // what the checker must say of it; "" for anything
	// still says that time stands still while the store's clock is behind what it showed,
	// blind that workers' own clocks always show the same.
	still, blind bool
	// plan, if set, makes the simulation one in which it shows.
	plan func(*plan)
	// state is the mutant's own, made anew for each simulation.
	state *mutantState
	// before changes the rows that a fold sees; after changes what it decided
	// and reports whether the commit is to be acknowledged and not written.
	before func(*world, *mutantState, *machine.Need, *machine.Rows)
	after  func(*world, *mutantState, *machine.Rows, *machine.Changes) bool
	// due and read change what the store answers.
	due  func(*world, *mutantState, *store.Due)
	read func(store.Read, *machine.Record)
	// ready changes in which lanes the store finds something ready.
	ready func([]store.LaneHint) []store.LaneHint
	// request changes what a call asks of a node, reply what it is answered.
	request func(*world, any)
	reply   func(*mutantState, any)
}

// mutantState is what a mutant remembers. The gate lets one call go at a time,
// so that it needs no lock.
type mutantState struct {
	rng     *rand.Rand
	letters []*machine.DeadLetter
	worker  belay.WorkerID
}

// in gives the mutant a state of its own.
func (m *mutant) in(w *world) *mutant {
	if m == nil {
		return nil
	}
	c := *m
	c.state = &mutantState{rng: w.random("mutant")}
	return &c
}

func (m *mutant) beforeFold(w *world, need *machine.Need, rows *machine.Rows) {
	if m != nil && m.before != nil {
		m.before(w, m.state, need, rows)
	}
}

func (m *mutant) afterFold(w *world, rows *machine.Rows, c *machine.Changes) bool {
	return m != nil && m.after != nil && m.after(w, m.state, rows, c)
}

func (m *mutant) dueFound(w *world, d *store.Due) {
	if m != nil && m.due != nil {
		m.due(w, m.state, d)
	}
}

func (m *mutant) readyFound(all []store.LaneHint) []store.LaneHint {
	if m != nil && m.ready != nil {
		return m.ready(all)
	}
	return all
}

func (m *mutant) hasRead(q store.Read, r *machine.Record) {
	if m != nil && m.read != nil {
		m.read(q, r)
	}
}

func (m *mutant) requested(w *world, request any) {
	if m != nil && m.request != nil {
		m.request(w, request)
	}
}

func (m *mutant) replied(reply any) {
	if m != nil && m.reply != nil {
		m.reply(m.state, reply)
	}
}

// asSent is what the caller has sent, whatever a mutant makes of it on its way.
func (m *mutant) asSent(request any) any {
	if m == nil || m.request == nil {
		return request
	}
	switch r := request.(type) {
	case *belay.Save:
		c := *r
		return &c
	case *belay.Settlement:
		c := *r
		return &c
	case *belay.Lease:
		c := *r
		return &c
	default:
		return request
	}
}

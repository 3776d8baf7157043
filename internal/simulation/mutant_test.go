package simulation

import (
	"math/rand/v2"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// mutant is a planted bug. It changes only the data that passes a seam between two parts of the
// code, so that the code under test stays unchanged. The checker of the promise that it breaks must
// find it.
type mutant struct {
	name  string
	meant string // the promise that the mutant breaks
	says  string // a text that the checker's violation must contain; "" for any text
	// still makes the store's time stand still after its wall clock was set back, until the wall
	// clock has caught up. blind stops the workers' own clocks.
	still, blind bool
	// plan, if set, changes the plan so that the bug has an effect.
	plan func(*plan)
	// state is the mutant's state in one simulation.
	state *mutantState
	// before changes the rows that the rules of package machine read. after changes their decision,
	// and reports whether the commit is acknowledged without being written.
	before func(*world, *mutantState, *machine.Need, *machine.Rows)
	after  func(*world, *mutantState, *machine.Rows, *machine.Changes) bool
	// due and read change replies of the store.
	due func(*world, *mutantState, *store.Due)
	// prune changes which executions the store may delete.
	prune func(*world, *store.Retention)
	read  func(store.Read, *machine.Record)
	found func(*mutantState, store.Query, *store.Found)
	// ready changes the lanes (groups of executions) in which the store finds a ready execution.
	ready func([]store.LaneHint) []store.LaneHint
	// request changes a request to a node, and reply changes the reply.
	request func(*world, any)
	reply   func(*mutantState, any)
}

// mutantState is the state of a mutant in one simulation. It needs no lock, since the simulation lets
// one call go at a time.
type mutantState struct {
	rng     *rand.Rand
	letters []*machine.DeadLetter
	worker  belay.WorkerID
	place   machine.Place
	costs   map[belay.ExecutionID]belay.Cost
	targets *store.Found
}

// copyFor returns a copy of the mutant with a state of its own for one simulation.
func (m *mutant) copyFor(w *world) *mutant {
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

func (m *mutant) prunes(w *world, over *store.Retention) {
	if m != nil && m.prune != nil {
		m.prune(w, over)
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

func (m *mutant) hasFound(q store.Query, found *store.Found) {
	if m != nil && m.found != nil {
		m.found(m.state, q, found)
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

// asSent returns a copy of the request as the caller sent it. A mutant cannot change the copy.
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

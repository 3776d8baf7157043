package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// costMutants are the planted bugs of costs and budgets.
var costMutants = []*mutant{
	{name: "cost charged again when its write is repeated", meant: "G17", plan: withBudgets, before: func(w *world,
		m *mutantState, need *machine.Need, rows *machine.Rows) {
		m.costs = make(map[belay.ExecutionID]belay.Cost)
		for _, done := range rows.Ops {
			if slices.Contains(need.Ops, done.OpRef) {
				m.costs[done.Execution] += w.history.costOf(done.OpRef)
			}
		}
	}, after: func(_ *world, m *mutantState, rows *machine.Rows, c *machine.Changes) bool {
		for _, e := range rows.Executions {
			if cost := m.costs[e.ID]; cost > 0 {
				e.Cost += cost
				if !slices.Contains(c.Executions, e) {
					c.Executions = append(c.Executions, e)
				}
			}
		}
		return false
	}},
	{name: "cost not charged to the ancestors", meant: "G17", before: func(_ *world, m *mutantState, _ *machine.Need,
		rows *machine.Rows) {
		m.costs = make(map[belay.ExecutionID]belay.Cost)
		for _, e := range rows.Executions {
			m.costs[e.ID] = e.Cost
		}
	}, after: func(_ *world, m *mutantState, _ *machine.Rows, c *machine.Changes) bool {
		for _, k := range c.Checkpoints {
			m.costs[k.Execution] += k.Cost
		}
		for _, r := range c.Runs {
			m.costs[r.Execution] += r.Cost
		}
		for _, e := range c.Executions {
			e.Cost = min(e.Cost, m.costs[e.ID])
		}
		return false
	}},
	{name: "cost of a refused write charged", meant: "G17", plan: func(p *plan) {
		p.calmDown()
		p.bare, p.workers, p.workerFreeze, p.gates = 2, 2, time.Second, false
		p.ttl = func(*rand.Rand) time.Duration { return time.Second }
	}, request: func(w *world, request any) {
		m := w.mutant.state
		if m.costs == nil {
			m.costs = make(map[belay.ExecutionID]belay.Cost)
		}
		if r, is := request.(*belay.Save); is && currentLease(w, r.Lease) != r.Lease {
			m.costs[r.Lease.Execution] += r.CostTokens
		}
	}, after: func(_ *world, m *mutantState, _ *machine.Rows, c *machine.Changes) bool {
		for _, e := range c.Executions {
			e.Cost += m.costs[e.ID]
			delete(m.costs, e.ID)
		}
		return false
	}},
	{name: "spent budget that pauses nothing", meant: "G17", says: "has reached its budget", plan: withBudgets,
		before: withoutBudgets, after: restoreBudgets},
	{name: "spent budget ignored by a claim", meant: "G17", says: "a run began although the budget", plan: withBudgets,
		before: func(w *world, m *mutantState, need *machine.Need, rows *machine.Rows) {
			m.costs = nil
			if len(rows.Ready) > 0 {
				withoutBudgets(w, m, need, rows)
			}
		}, after: restoreBudgets},
	{name: "raise that does not resume a child", meant: "G17", says: "was not resumed", plan: withBudgets,
		due: func(_ *world, _ *mutantState, d *store.Due) { d.Unspent = nil }},
}

func withBudgets(p *plan) { p.budgets = true }

// withoutBudgets hides the budgets from the rules.
func withoutBudgets(_ *world, m *mutantState, _ *machine.Need, rows *machine.Rows) {
	m.costs = make(map[belay.ExecutionID]belay.Cost)
	for _, e := range rows.Executions {
		if e.Budget != 0 {
			m.costs[e.ID], e.Budget = e.Budget, 0
		}
	}
}

func restoreBudgets(_ *world, m *mutantState, _ *machine.Rows, c *machine.Changes) bool {
	for _, e := range c.Executions {
		if e.Budget == 0 {
			e.Budget = m.costs[e.ID]
		}
	}
	return false
}

// costOf is the cost of a checkpoint that was written before.
func (h *history) costOf(ref machine.OpRef) belay.Cost {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.commits {
		for _, k := range c.changes.Checkpoints {
			if k.Execution == ref.Execution && k.Op == ref.Op {
				return k.Cost
			}
		}
	}
	return 0
}

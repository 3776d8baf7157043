package simulation

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// gateMutants are the planted bugs of gates.
var gateMutants = []*mutant{
	{name: "place kept after a loss", meant: "G16", says: "and its row says that it has none", plan: func(p *plan) {
		p.gates, p.workerCrash = true, time.Second
	}, after: func(_ *world, _ *mutantState, _ *machine.Rows, c *machine.Changes) bool {
		for _, r := range c.Runs {
			if r.EndedSeq != 0 && r.Outcome == belay.OutcomeLost {
				c.Places = slices.DeleteFunc(c.Places, func(p *machine.Place) bool {
					return p.Execution == r.Execution
				})
			}
		}
		return false
	}},
	{name: "admission without a place", meant: "G16", says: "has let it through without a place", plan: withGates,
		after: func(_ *world, _ *mutantState, _ *machine.Rows, c *machine.Changes) bool {
			for _, e := range c.Executions {
				if e.AdmitBy == 0 || e.Places&machine.PlaceLimit == 0 {
					continue
				}
				e.Places &^= machine.PlaceLimit
				for _, p := range c.Places {
					if p.Execution == e.ID && p.Gate.Kind() == belay.GateLimit {
						p.Held = false
					}
				}
			}
			return false
		}},
	{name: "two servers give out the same place", meant: "G16", says: "are taken, which has", plan: withGates,
		before: func(_ *world, m *mutantState, _ *machine.Need, rows *machine.Rows) {
			for i := range rows.Counts { // as if the other server's commit were not visible yet
				if n := rows.Counts[i].Held; n > 0 && m.rng.IntN(2) == 0 {
					rows.Counts[i].Held = n - 1
				}
			}
		}},
	{name: "run leaves what it never entered", meant: "G16", says: "does not fit its places", plan: withGates,
		after: func(_ *world, m *mutantState, _ *machine.Rows, c *machine.Changes) bool {
			for _, r := range c.Runs {
				if p := m.place; r.EndedSeq != 0 && p.Held && p.Execution != r.Execution {
					c.Places = append(c.Places, &machine.Place{Gate: p.Gate, Execution: p.Execution})
					m.place = machine.Place{}
				}
			}
			for _, p := range c.Places {
				if p.Gate.Kind() == belay.GateLimit && (p.Held || p.Execution == m.place.Execution) {
					m.place = *p
				}
			}
			return false
		}},
	{name: "wake-up lost that no sweep makes up for", meant: "G5", says: "has had room since", plan: withGates,
		due: func(_ *world, _ *mutantState, d *store.Due) { d.Objects, d.NextObject = nil, 0 },
		before: func(_ *world, _ *mutantState, _ *machine.Need, rows *machine.Rows) {
			for i := range rows.Lines {
				rows.Lines[i].Heads = nil // as if another transaction had locked the waiting executions
			}
		}},
	{name: "orders to cancel replaced executions not written", meant: "G16", says: "it was not cancelled until",
		plan: withGates, after: func(_ *world, _ *mutantState, _ *machine.Rows, c *machine.Changes) bool {
			for _, o := range c.Objects {
				changeGate(o, func(g *machine.Gate) { g.Replaced = nil })
			}
			return false
		}},
	{name: "running probes not counted", meant: "G16", says: "probes of", plan: func(p *plan) {
		p.gates, p.clockLeap = true, p.safety/2
	}, before: func(_ *world, _ *mutantState, _ *machine.Need, rows *machine.Rows) {
		for i := range rows.Counts {
			if rows.Counts[i].Gate.Kind() == belay.GateTarget {
				rows.Counts[i].Held = 0
			}
		}
	}},
	{name: "step calls a target whose breaker is open", meant: "G16", says: "was let through to", plan: withGates,
		reply: func(_ *mutantState, reply any) {
			if a, is := reply.(*belay.TargetAnswer); is {
				a.Open = true
			}
		}},
	{name: "running probes by steps not counted", meant: "G16", says: "probes of", plan: func(p *plan) {
		p.gates, p.clockLeap = true, p.safety/2
	}, before: changeGates(func(_ *world, _ *machine.Rows, g *machine.Gate) {
		if g.Breaker != nil {
			g.Breaker.Probes = nil
		}
	})},
	{name: "pause ignored by a claim", meant: "G16", says: "was paused", plan: withGates, before: changeGates(func(
		_ *world, _ *machine.Rows, g *machine.Gate,
	) {
		g.Pause = nil
	})},
	{name: "open breaker ignored by a claim", meant: "G16", says: "was open", plan: withGates, before: changeGates(
		func(_ *world, _ *machine.Rows, g *machine.Gate) {
			g.Breaker = nil
		})},
	{name: "rate refilled by a clock that was set back", meant: "G16", says: "rate", plan: func(p *plan) {
		p.gates, p.clockStep, p.clockJump = true, time.Second, 3*time.Second
	}, before: changeGates(func(w *world, rows *machine.Rows, g *machine.Gate) {
		if g.Rate != nil && machine.At(w.clock()) < rows.Now {
			g.Rate.Full = 0
		}
	})},
}

func withGates(p *plan) { p.gates = true }

// changeGates changes the gates that the rules read.
func changeGates(change func(*world, *machine.Rows, *machine.Gate)) func(*world, *mutantState, *machine.Need,
	*machine.Rows) {
	return func(w *world, _ *mutantState, _ *machine.Need, rows *machine.Rows) {
		for _, o := range rows.Objects {
			changeGate(o, func(g *machine.Gate) { change(w, rows, g) })
		}
	}
}

// changeGate changes the gate that an object stores; it does nothing to other objects.
func changeGate(o *machine.Object, change func(*machine.Gate)) {
	if o.Kind != machine.GateObject {
		return
	}
	g, err := machine.ReadGate(o)
	if err != nil {
		panic(err)
	}
	change(g)
	if o.Body, err = json.Marshal(g); err != nil {
		panic(err)
	}
}

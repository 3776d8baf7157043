package simulation

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/workflow"
)

// gpu is the gate of the resource that executions share in one mode at a time.
const gpu = belay.GateID("resource:gpu")

// terms makes the terms of the resource. Only workers of this package's own program can change modes.
func (w *world) terms(r *rand.Rand) *belay.ResourceTerms {
	t := &belay.ResourceTerms{
		MinResidency: belay.Duration(between(r, time.Millisecond, 400*time.Millisecond)),
		MaxWait:      belay.Duration(between(r, 500*time.Millisecond, 3*time.Second)),
	}
	if w.plan.workers > 0 && r.IntN(4) > 0 {
		t.Swap = &belay.ResourceSwapper{Workflow: "swap"}
	}
	return t
}

// swap changes the mode of a resource. A part of its first attempts fails.
func (p player) swap(ctx context.Context, in belay.SwapInput) (string, error) {
	if err := p.work(ctx, 100*time.Millisecond); err != nil {
		return "", err
	}
	if workflow.Attempt(ctx) == 1 && workflow.Execution(ctx)[15]%4 == 0 {
		return "", errScripted
	}
	return in.To, nil
}

func modeOf(e *machine.Execution) string {
	if e.Gates == nil || e.Gates.Requires == nil {
		return ""
	}
	return e.Gates.Requires.Mode
}

// late returns the mode for which executions have waited longer than the maximum wait, beside the
// present mode and after its minimum residency; empty if there is none. A mode whose swap has failed does not
// count until it is tried again.
func late(r *machine.Resource, at machine.Time) string {
	var t belay.ResourceTerms
	if r.Terms != nil {
		t = *r.Terms
	}
	t = machine.ResourceTerms(t)
	if r.Mode == "" || r.Fresh || at < r.ReadyAt.Add(t.MinResidency.D()) {
		return ""
	}
	for _, w := range r.Wants {
		if w.Mode != r.Mode && w.RetryAt <= at && at >= w.Since.Add(t.MaxWait.D()) {
			return w.Mode
		}
	}
	return ""
}

// opensFor returns the moment, now or later, at which a waiting execution must be let through to the
// resource; 0 if that is not known: the mode of the execution is not the present one, or another mode is
// due.
func (r *gateRow) opensFor(at machine.Time) machine.Time {
	x := r.now.Resource
	if x.Swap != nil || x.Mode == "" || x.Stale || late(x, at) != "" {
		return 0
	}
	for _, mode := range r.line {
		if mode == x.Mode {
			return at
		}
	}
	return 0
}

// g13 checks G13 commit by commit: the executions that use a resource have its present mode, nothing
// uses it while its mode changes, at most one execution changes the mode, the marker of a change that has
// ended is cleared, and no execution enters in the present mode while another mode has waited too long.
func g13(f *finding) {
	swaps := make(map[belay.ExecutionID]bool) // that have not ended
	var over time.Duration                    // since when the marker names an execution that has ended
	f.eachGateCommit(func(g *gateRows, c *commit) {
		for _, e := range c.changes.Executions {
			if e.Gates != nil && e.Gates.Swap != "" {
				if swaps[e.ID] = true; e.State.Terminal() {
					delete(swaps, e.ID)
				}
			}
		}
		r := g.row(gpu)
		x := r.now.Resource
		if x == nil {
			return
		}
		for id, held := range r.places {
			if s := f.byID[id]; held {
				e, _ := s.at(c)
				f.OK()
				if mode := modeOf(e.Execution); mode != x.Mode || x.Swap != nil {
					f.violation(s, c, "it uses %s in the mode %q, which is in the mode %q (swap %t)", gpu, mode, x.Mode,
						x.Swap != nil)
				}
			}
		}
		for id := range swaps {
			if len(swaps) > 1 || x.Swap == nil || x.Swap.Execution != id {
				f.violation(f.byID[id], c, "%d executions change the mode of %s, whose row names %+v", len(swaps), gpu,
					x.Swap)
			}
		}
		f.g13marker(r, c, &over)
		if was := r.was.Resource; was != nil && r.orders == 0 && len(r.entered) > 0 {
			mode, same := late(was, c.at), was.Mode == x.Mode && was.ReadyAt == x.ReadyAt
			if mode != "" && same && late(x, c.at) == mode {
				f.violation(f.byID[r.entered[0]], c, "it entered %s in the mode %q although the mode %q has waited "+
					"too long", gpu, x.Mode, mode)
			}
		}
		r.tallyResource(g)
	})
}

// g13marker checks that the marker of a swap is cleared when its execution has ended.
func (f *finding) g13marker(r *gateRow, c *commit, over *time.Duration) {
	s := r.now.Resource.Swap
	ended := false
	if s != nil && f.byID[s.Execution] != nil {
		e, there := f.byID[s.Execution].at(c)
		ended = there && e.State.Terminal()
	}
	switch {
	case !ended:
		*over = 0
	case *over == 0:
		*over = c.real
	default:
		if by := f.deadline(*over+2*time.Second, r.wrote); c.real > by {
			f.violation(f.byID[s.Execution], c, "it has ended, and %s still waits for it since %s", gpu, *over)
			*over = 0
		}
	}
}

// tallyResource counts the events of resources that must happen at least once.
func (r *gateRow) tallyResource(g *gateRows) {
	was, now := r.was.Resource, r.now.Resource
	switch {
	case was == nil:
	case was.Swap == nil && now.Swap != nil:
		g.count("swap began")
	case was.Swap != nil && now.Swap == nil && now.Failures > 0:
		g.count("swap failed")
	case was.Swap != nil && now.Swap == nil && now.Mode == was.Swap.To:
		g.count("swap succeeded")
	case was.Mode != "" && now.Mode != was.Mode && now.Swap == nil:
		g.count("mode changed at once")
	}
}

// resourceMutants are the planted bugs of resources.
var resourceMutants = []*mutant{
	{name: "place of the old mode kept through a swap", meant: "G13", says: "it uses resource:gpu", plan: withGates,
		before: func(_ *world, _ *mutantState, _ *machine.Need, rows *machine.Rows) {
			for i := range rows.Counts {
				if rows.Counts[i].Gate == gpu {
					rows.Counts[i].Held = 0
				}
			}
		}},
	{name: "marker of a swap kept after the swap has ended", meant: "G13", says: "still waits for it", plan: withSwaps,
		before: func(_ *world, _ *mutantState, _ *machine.Need, rows *machine.Rows) {
			for _, e := range rows.Executions { // as if the end of the swap were not visible
				if e.Gates != nil && e.Gates.Swap != "" && e.State.Terminal() {
					e.State = belay.Pending
				}
			}
		}},
	{name: "two swaps at once", meant: "G13", says: "executions change the mode", plan: withSwaps,
		before: changeGates(func(_ *world, _ *machine.Rows, g *machine.Gate) {
			if g.Resource != nil {
				g.Resource.Swap = nil
			}
		})},
	{name: "claim ignores that another mode has waited too long", meant: "G13", says: "has waited too long",
		plan: withSwaps, before: changeGates(func(_ *world, rows *machine.Rows, g *machine.Gate) {
			if r := g.Resource; r != nil && len(rows.Ready) > 0 {
				for i := range r.Wants {
					r.Wants[i].Since = max(r.Wants[i].Since, rows.Now.Add(-time.Millisecond))
				}
			}
		})},
}

// withSwaps plans workers that change the modes of the resource.
func withSwaps(p *plan) {
	p.gates = true
	p.workers = max(p.workers, 2)
}

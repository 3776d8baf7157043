package machine

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/belaydev/belay"
)

// turn decides about a resource: which of the waiting executions it lets through, and whether its mode
// changes. Without Modes, turn only finds out whether there is anything to do; then a second Admit
// counts the lines of the modes, because executions that were cancelled may have left a line empty.
func (c *Admit) turn(w *world, g *gate) {
	r := g.resource()
	for _, mode := range c.Modes {
		w.forgetEmpty(g, mode)
	}
	w.spread(g)
	if r.Stale && g.held == 0 {
		r.unload()
		g.dirty = true
	}
	if idle := g.held == 0 && r.Mode != ""; !idle && r.IdleAt != 0 {
		r.IdleAt, g.dirty = 0, true
	} else if idle && r.IdleAt == 0 && len(r.Wants) > 0 {
		r.IdleAt, g.dirty = w.Now, true
	}
	next := r.wanted(g.held, w.Now)
	switch {
	case r.Swap != nil:
		w.follow(&EndSwap{Gate: g.id, Execution: r.Swap.Execution})
	case g.paused(w.Now), next == "" && (!r.wants(r.Mode) || r.full(w.Now)):
	case c.Modes == nil:
		w.follow(&Admit{Gate: g.id, Heads: MaxHeads, Modes: r.modes(), Lead: r.lead(next)})
	case next == "":
		w.admitLine(g, c)
	case g.held > 0:
		if w.Now >= r.AskedAt.Add(askAgain) {
			w.follow(&AskHolders{Gate: g.id})
		}
	case r.swapper() != nil:
		w.follow(&BeginSwap{Gate: g.id, To: next})
	default:
		r.become(next, w.Now)
		g.dirty = true
		w.admitLine(g, c)
	}
	if g.waits() {
		g.lookBy(g.lookAt(w.Now))
	} else {
		g.lookBy(0)
	}
}

// lead is the mode whose executions an Admit loads: the mode to which the resource changes, or its
// present mode.
func (r *Resource) lead(next string) string {
	if next != "" {
		return next
	}
	return r.Mode
}

// forgetEmpty forgets a mode whose line is empty.
func (w *world) forgetEmpty(g *gate, mode string) {
	line := w.gate(LineOf(g.id, mode))
	if line == nil || !line.counted || line.waits() {
		return
	}
	r := g.resource()
	if slices.ContainsFunc(r.Wants, func(x want) bool { return x.Mode == mode && max(x.Until, x.RetryAt) <= w.Now }) {
		r.forget(mode)
		g.dirty = true
	}
}

// spread lets executions whose mode had no line of its own ask the gate again, when there is room for
// the line of another mode.
func (w *world) spread(g *gate) {
	if len(g.resource().Wants) >= maxWants {
		return
	}
	for _, e := range w.lines[g.id] {
		if e.Gate == g.id {
			w.unpark(e)
			w.markDue(e)
		}
	}
}

// admitLine lets waiting executions of the present mode through, until too many of them have not started a
// run yet.
func (w *world) admitLine(g *gate, c *Admit) {
	r := g.resource()
	id, let := LineOf(g.id, r.Mode), 0
	for _, e := range w.lines[id] {
		if r.full(w.Now) {
			break
		}
		if e.Gate == id {
			w.admit(e, g)
			let++
		}
	}
	w.forgetEmpty(g, r.Mode)
	if r.wants(r.Mode) && !r.full(w.Now) && (let > 0 || c.Lead != r.Mode) {
		w.follow(&Admit{Gate: g.id, Heads: MaxHeads, Modes: r.modes(), Lead: r.Mode})
	}
}

// BeginSwap submits the execution that changes the mode of a resource. It does nothing if the
// resource does not have to change to the mode any more.
type BeginSwap struct {
	Gate belay.GateID
	To   string
	// Execution is the id of the new execution. The engine makes it.
	Execution belay.ExecutionID
}

// Need names the gate and the new execution.
func (c *BeginSwap) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	n.Specs = append(n.Specs, c.Execution)
	n.Counts = append(n.Counts, c.Gate)
}

func (c *BeginSwap) apply(w *world) (Reply, error) {
	const op = "begin swap"
	g := w.gate(c.Gate)
	switch {
	case g == nil:
		return Reply{}, refuse(belay.CodeInternal, op, "the gate %s was not read", c.Gate)
	case g.err != nil:
		return Reply{}, g.err
	case w.execs[c.Execution] != nil:
		return Reply{}, refuse(belay.CodeConflict, op, "there is an execution %s already", c.Execution)
	}
	r := g.resource()
	s := r.swapper()
	if g.held > 0 || s == nil || g.paused(w.Now) || c.To == "" || r.wanted(0, w.Now) != c.To {
		return Reply{Replayed: true}, nil
	}
	// The clock makes the number grow also if the row of the gate, or the newest commits, are lost.
	r.Number = max(r.Number+1, int64(w.Now))
	input, err := json.Marshal(belay.SwapInput{Resource: g.id.Name(), From: r.Mode, To: c.To, Number: r.Number})
	if err != nil {
		return Reply{}, err
	}
	submit := &Submit{swap: true, Submission: belay.Submission{
		ID: c.Execution, Workflow: s.Workflow, Version: s.Version, Queue: s.Queue, Input: input,
		Priority: belay.MaxPriority, Trigger: belay.TriggerSwap, Gates: belay.Gates{Swap: g.id.Name()},
		// A failed swap leaves no dead letter: the resource starts the next swap itself. The resource
		// does not wait for ever for a worker that runs the workflow.
		Policy: belay.Policy{StartTimeout: s.Timeout, Timeout: s.Timeout, NoDeadLetters: true},
	}}
	if _, err := submit.apply(w); err != nil {
		return Reply{}, err
	}
	r.Swap = &swap{Execution: c.Execution, From: r.Mode, To: c.To, Since: w.Now, By: s}
	r.unload()
	g.note("swap", fmt.Sprintf("%s changes it from %s to %s", c.Execution, quoted(r.Swap.From), quoted(c.To)))
	g.lookBy(g.lookAt(w.Now))
	return Reply{ID: c.Execution}, nil
}

// EndSwap ends the swap of a resource when the execution that performs the swap has ended, or does
// not exist any more. If the terms name another workflow, version or queue since, it cancels an execution
// that has not had a run yet. The commit that ends the execution is followed by an EndSwap; if a crash loses
// it, the sweeper's check of the gate repeats it. An EndSwap is correct at any time and any number of
// times, because the gate names the execution.
type EndSwap struct {
	Gate      belay.GateID
	Execution belay.ExecutionID
}

// Need names the gate and the execution.
func (c *EndSwap) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	n.Counts = append(n.Counts, c.Gate)
}

func (c *EndSwap) apply(w *world) (Reply, error) {
	g := w.gate(c.Gate)
	switch {
	case g == nil:
		return Reply{}, refuse(belay.CodeInternal, "end swap", "the gate %s was not read", c.Gate)
	case g.err != nil:
		return Reply{}, g.err
	}
	r := g.resource()
	e := w.execs[c.Execution]
	if r.Swap == nil || r.Swap.Execution != c.Execution {
		return Reply{Replayed: true}, nil
	}
	s, cancelled := r.Swap, false
	if e != nil && !e.State.Terminal() {
		if !r.replaced(s) || e.StartedAt != 0 || e.State == belay.Scheduled {
			return Reply{Replayed: true}, nil
		}
		by := &Act{belay.Control{
			Action: belay.ActionCancel, Actor: System, Reason: "the terms of the resource have changed",
		}}
		if err := by.cancel(w, e); err != nil {
			return Reply{}, err
		}
		cancelled = true
	}
	r.Swap = nil
	switch {
	case cancelled:
		g.note("swap_cancelled", fmt.Sprintf("%s has not begun to change it to %s, and its terms have changed",
			s.Execution, quoted(s.To)))
	case e == nil:
		r.failed(s.To, "its execution "+s.Execution.String()+" is gone", w.Now)
		g.note("swap_orphan_cleared", fmt.Sprintf("%s, which changed it to %s, does not exist any more",
			s.Execution, quoted(s.To)))
	case e.State == belay.Succeeded:
		if r.become(s.To, w.Now); r.swapper() != nil && r.replaced(s) { // only the new workflow knows the mode
			r.unload()
		}
		g.note("swapped", fmt.Sprintf("%s has changed it to %s", s.Execution, quoted(s.To)))
	default:
		why := e.Message
		setDefault(&why, "its execution "+s.Execution.String()+" is "+e.State.String())
		r.failed(s.To, why, w.Now)
		g.note("swap_failed", fmt.Sprintf("%s has not changed it to %s: %s", s.Execution, quoted(s.To), why))
	}
	if !g.waits() {
		g.lookBy(0)
		return Reply{}, nil
	}
	g.lookBy(g.lookAt(w.Now))
	w.follow(&Admit{Gate: g.id, Heads: MaxHeads})
	return Reply{}, nil
}

// maxAsked is the largest number of holders of a resource that one AskHolders asks to yield.
const maxAsked = 1000

// AskHolders asks the preemptible runs that use a resource to yield, because executions of another
// mode have waited for the maximum wait. It asks those with an id above After; if there may be more of
// them than one command asks, another AskHolders follows.
type AskHolders struct {
	Gate  belay.GateID
	After belay.ExecutionID
}

// Need names the gate and the executions that use the resource.
func (c *AskHolders) Need(n *Need) {
	n.Counts = append(n.Counts, c.Gate)
	if q := (MemberQuery{c.Gate, c.After, maxAsked}); !slices.Contains(n.Members, q) {
		n.Members = append(n.Members, q)
	}
}

func (c *AskHolders) apply(w *world) (Reply, error) {
	g := w.gate(c.Gate)
	if g == nil || g.err != nil {
		return Reply{}, refuse(belay.CodeInternal, "ask holders", "the gate %s was not read", c.Gate)
	}
	r := g.resource()
	asked := c.After.IsZero() && w.Now < r.AskedAt.Add(askAgain)
	if g.held == 0 || asked || r.wanted(g.held, w.Now) == "" {
		return Reply{Replayed: true}, nil
	}
	if c.After.IsZero() {
		r.AskedAt, g.dirty = w.Now, true
	}
	n := 0
	for _, m := range w.Members {
		if m.Gate != c.Gate || m.Execution.Compare(c.After) <= 0 {
			continue
		}
		if n++; m.Held {
			w.follow(&Yield{Gate: c.Gate, Execution: m.Execution})
		}
		if n == maxAsked {
			w.follow(&AskHolders{Gate: c.Gate, After: m.Execution})
			break
		}
	}
	return Reply{}, nil
}

// Yield asks the run of a preemptible execution to give back its resource at its next step or wait.
type Yield struct {
	Gate      belay.GateID
	Execution belay.ExecutionID
}

// Need names the gate and the execution.
func (c *Yield) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	n.Counts = append(n.Counts, c.Gate)
}

func (c *Yield) apply(w *world) (Reply, error) {
	g, e := w.gate(c.Gate), w.execs[c.Execution]
	if g != nil && g.err != nil {
		return Reply{}, g.err
	}
	if g == nil || e == nil || e.State != belay.Running || e.Places&PlaceResource == 0 ||
		!e.requires(c.Gate) || !e.Gates.Requires.Preemptible || e.Preempting || e.CancelBy != 0 {
		return Reply{Replayed: true}, nil
	}
	next := g.resource().wanted(g.held, w.Now)
	if next == "" {
		return Reply{Replayed: true}, nil
	}
	by := &Act{belay.Control{
		Action: belay.ActionPreempt, Actor: System,
		Reason: clip(fmt.Sprintf("the resource %s must change to its mode %s", g.id.Name(), quoted(next)),
			belay.MaxName),
	}}
	if err := by.preempt(w, e); err != nil {
		return Reply{}, err
	}
	e.Reason = yielding
	return Reply{Seq: e.Seq}, nil
}

package machine

import (
	"maps"
	"slices"

	"github.com/belaydev/belay"
)

// maxReplaced is the largest number of replaced executions of one limit that are not cancelled yet.
// The row of the gate names each of them.
const maxReplaced = 1_000

// Replaced contains the executions of a limit that submissions with when_full "replace" have
// replaced and that are not cancelled yet. It is part of the gate's row, and the commit of the
// submission writes it. That commit cannot cancel the executions itself, because a store always
// locks executions before gates. The cancels are follow-up commands of the submission. If a crash
// loses them, an [Admit] of the sweeper repeats them.
type Replaced struct {
	// By has, for each execution, the execution that replaces it.
	By map[belay.ExecutionID]belay.ExecutionID `json:"by"`
	// RetryAt is when cancels that are still missing are repeated.
	RetryAt Time `json:"retry_at"`
}

// has reports whether the execution must be cancelled.
func (r *Replaced) has(id belay.ExecutionID) bool {
	return r != nil && !r.By[id].IsZero()
}

// replace orders the cancel of the n oldest executions of a limit, because the new execution with
// the id by replaces them.
func (w *world) replace(g *gate, n int, by belay.ExecutionID) error {
	var chosen []belay.ExecutionID
	for _, m := range w.Members {
		if m.Gate == g.id && m.Execution != by && n > 0 {
			n--
			if !g.Replaced.has(m.Execution) {
				chosen = append(chosen, m.Execution)
			}
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	r := g.Replaced
	if r == nil {
		r = &Replaced{By: make(map[belay.ExecutionID]belay.ExecutionID), RetryAt: w.Now.Add(lineLook)}
	}
	if len(r.By)+len(chosen) > maxReplaced {
		err := refuse(belay.CodeRateLimited, "submit",
			"%d executions of the limit %q were replaced and are not cancelled yet", len(r.By), g.id.Name())
		err.RetryAfter = lineLook
		return err
	}
	g.Replaced, g.dirty = r, true
	for _, id := range chosen {
		r.By[id] = by
		w.follow(&CancelReplaced{Gate: g.id, Execution: id})
	}
	return nil
}

// repeatCancels repeats the cancels of replaced executions if they are late.
func (w *world) repeatCancels(g *gate) {
	r := g.Replaced
	if r == nil || r.RetryAt > w.Now {
		return
	}
	r.RetryAt, g.dirty = w.Now.Add(lineLook), true
	for _, id := range slices.SortedFunc(maps.Keys(r.By), belay.ExecutionID.Compare) {
		w.follow(&CancelReplaced{Gate: g.id, Execution: id})
	}
}

// CancelReplaced cancels an execution that a submission with when_full "replace" has replaced. It
// does nothing if the gate does not name the execution any more: the execution was cancelled, and an
// operator may have reopened it since.
type CancelReplaced struct {
	Gate      belay.GateID
	Execution belay.ExecutionID
}

// Need asks the store for the execution and the gate of the limit.
func (c *CancelReplaced) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	n.Counts = append(n.Counts, c.Gate)
}

func (c *CancelReplaced) apply(w *world) (Reply, error) {
	const op = "cancel replaced"
	g := w.gate(c.Gate)
	switch {
	case g == nil:
		return Reply{}, refuse(belay.CodeInternal, op, "the gate %s was not read", c.Gate)
	case g.err != nil:
		return Reply{}, g.err
	case !g.Replaced.has(c.Execution):
		return Reply{Replayed: true}, nil
	}
	by := g.Replaced.By[c.Execution]
	delete(g.Replaced.By, c.Execution)
	if g.dirty = true; len(g.Replaced.By) == 0 {
		g.Replaced = nil
	}
	e := w.execs[c.Execution]
	if e == nil || e.State.Terminal() { // the execution has ended since
		return Reply{}, nil
	}
	// A cancel with a longer reason would be refused.
	reason := clip("replaced by "+by.String()+" under the limit "+g.id.Name(), belay.MaxName)
	cancel := &Act{belay.Control{
		Execution: c.Execution, Action: belay.ActionCancel, Actor: System, Reason: reason,
	}}
	return cancel.act(w)
}

package machine

import "github.com/belaydev/belay"

// Forgotten is the value of Execution.Reason for a root execution that is about to be deleted.
const Forgotten = "forgotten"

// Forget marks a root execution whose retention is over as being deleted, together with all of
// its descendants. From then on none of them can be reopened or forked, so the store may delete
// them in several commits. A tree that is deleted in one commit needs no Forget.
type Forget struct {
	Execution belay.ExecutionID
	// Before is the time before which the execution must have ended.
	Before Time
}

// Need names the execution.
func (c *Forget) Need(n *Need) { n.Executions = append(n.Executions, c.Execution) }

func (c *Forget) apply(w *world) (Reply, error) {
	const op = "forget"
	e, err := w.execution(op, c.Execution)
	if err != nil {
		return Reply{}, err
	}
	switch {
	case e.forgotten():
		return Reply{Seq: e.Seq, Replayed: true}, nil
	case w.execs[e.Parent] != nil:
		return Reply{}, w.illegal(op, e, "it is a child, and goes with its root")
	case !e.State.Terminal() || e.FinishedAt >= c.Before || e.Open > 0:
		return Reply{}, w.illegal(op, e, "its retention is not over")
	}
	w.advance(e)
	w.deed(e, "forget", System, "its retention is over", belay.OpID{}, OpSum{})
	e.Reason, e.ReasonText = Forgotten, "its retention is over: it is being deleted"
	return Reply{Seq: e.Seq}, nil
}

func (e *Execution) forgotten() bool { return e.State.Terminal() && e.Reason == Forgotten }

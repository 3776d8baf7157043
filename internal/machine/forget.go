package machine

import (
	"fmt"

	"github.com/belaydev/belay"
)

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

// Need asks the store for the execution.
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

// delete marks a root execution that an operator deletes as being deleted, as a [Forget] does. An
// execution that is being deleted already stays as it is.
func (c *Act) delete(w *world, e *Execution) error {
	const op = "delete"
	if e.forgotten() {
		return nil
	}
	d := w.letter(e.ID, 0)
	switch {
	case !e.State.Terminal():
		return w.illegal(op, e, "only an ended execution can be deleted; cancel it first")
	case w.execs[e.Parent] != nil:
		return w.illegal(op, e, "it is a child of "+e.Parent.String()+", and is deleted with its root")
	case e.Open > 0:
		return w.illegal(op, e, fmt.Sprintf("%d of its children have not ended; cancel them first", e.Open))
	case d != nil && d.Resolution == "":
		return w.illegal(op, e, "its dead letter is open; resolve it first with belay dead discard, fix or requeue")
	}
	c.record(w, e)
	text := "deleted by " + c.actor()
	e.Reason, e.ReasonText = Forgotten, text
	return nil
}

func (e *Execution) forgotten() bool { return e.State.Terminal() && e.Reason == Forgotten }

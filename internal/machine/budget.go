package machine

import "github.com/belaydev/belay"

// charge adds a cost to an execution and to all its ancestors, so that the cost of an execution always
// includes that of its children. If the budget of the root is spent then, the root and the execution
// are paused. Other executions of the tree are paused when they report a cost, or when a worker
// would start their next run.
func (w *world) charge(e *Execution, cost belay.Cost) {
	if cost == 0 {
		return
	}
	for x := e; x != nil; x = w.execs[x.Parent] { // an ancestor may have been deleted after its retention
		x.Cost = x.Cost.Add(cost)
		w.changed(x)
	}
	if root := w.spent(e); root != nil {
		w.exhaust(root, root)
		w.exhaust(e, root)
	}
}

// spent returns the root of the tree of an execution if the budget of the root is spent, and otherwise
// nil. The budget of a root that has ended does not count.
func (w *world) spent(e *Execution) *Execution {
	for !e.Parent.IsZero() {
		p := w.execs[e.Parent]
		if p == nil {
			return nil // the parent and all its ancestors were deleted after their retention
		}
		e = p
	}
	if e.State.Terminal() || !e.overBudget() {
		return nil
	}
	return e
}

// overBudget reports whether a root has spent its budget. This may be true of a reopened root that is not
// paused yet; the claim of its next run pauses it.
func (e *Execution) overBudget() bool { return e.Budget > 0 && e.Cost >= e.Budget }

// exhaust pauses an execution because the budget of its root is spent. If the execution is being
// cancelled or is paused already, exhaust changes nothing; an operator's pause outlasts a raise of the budget.
func (w *world) exhaust(e, root *Execution) {
	if e.State.Terminal() || e.State == belay.Paused || e.PauseRequested || e.CancelBy != 0 {
		return
	}
	by := &Act{belay.Control{Action: belay.ActionPause, Actor: System, Reason: "budget"}}
	if by.pause(w, e) == nil { // pause refuses only the states above
		e.SpentBy = root.ID
	}
}

// unspend resumes an execution that exhaust has paused.
func (w *world) unspend(e *Execution) {
	by := &Act{belay.Control{Action: belay.ActionResume, Actor: System, Reason: "budget"}}
	_ = by.resume(w, e) // the caller has checked the budget, so resume refuses nothing
}

// checkBudget refuses a budget that no cost can fit into.
func checkBudget(op string, b *belay.Budget) error {
	if b != nil && b.Cost <= 0 {
		return refuse(belay.CodeInvalid, op, "the cost of a budget must be above 0")
	}
	return nil
}

// setBudget gives a root another budget. If the new budget is not spent, the root is resumed at once; a sweep
// resumes its descendants ([Unspend]).
func (c *Act) setBudget(w *world, e *Execution) error {
	const op = "budget"
	switch {
	case !e.Parent.IsZero():
		return w.illegal(op, e, "it is a child and has no budget of its own; raise the budget of its root")
	case e.State.Terminal():
		return w.illegal(op, e, "it has ended")
	case c.Budget.Cost == e.Budget:
		return nil
	}
	e.Budget = c.Budget.Cost
	c.record(w, e)
	if root := w.spent(e); root != nil {
		w.exhaust(e, root)
	} else if !e.SpentBy.IsZero() {
		w.unspend(e)
	}
	return nil
}

// refuseSpent refuses to let an execution continue while the budget of its root is spent.
func (w *world) refuseSpent(op string, e *Execution) error {
	if root := w.spent(e); root != nil {
		return w.illegal(op, e, spentText(root))
	}
	return nil
}

func spentText(root *Execution) string {
	return "the budget of " + root.ID.String() + " is spent: its cost of " + root.Cost.String() + " has reached " +
		root.Budget.String() + "; raise the budget"
}

// Unspend resumes an execution that was paused because the budget of its root was spent, when the budget was
// raised or the root has ended. A sweep finds in the rows of both that the command is needed.
type Unspend struct{ Execution belay.ExecutionID }

// Need asks the store for the execution; the store loads its ancestors too.
func (c *Unspend) Need(n *Need) { n.Executions = append(n.Executions, c.Execution) }

func (c *Unspend) apply(w *world) (Reply, error) {
	const op = "resume"
	e, err := w.execution(op, c.Execution)
	if err != nil {
		return Reply{}, err
	}
	if e.SpentBy.IsZero() {
		return Reply{Seq: e.Seq, Replayed: true}, nil
	}
	if err := w.refuseSpent(op, e); err != nil {
		return Reply{}, err
	}
	w.unspend(e)
	return Reply{Seq: e.Seq}, nil
}

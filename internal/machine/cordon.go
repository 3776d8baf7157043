package machine

import "github.com/belaydev/belay"

// Cordon stops the claims of a worker until another Cordon, with Off set, allows claims again.
// Cordon takes back the executions that are scheduled to the worker, as Drain does; the worker
// keeps its runs.
type Cordon struct{ belay.Cordon }

// Need asks the store for the session and the executions that it owns.
func (c *Cordon) Need(n *Need) {
	n.Workers = append(n.Workers, c.Worker)
	n.Held = append(n.Held, c.Worker)
}

func (c *Cordon) apply(w *world) (Reply, error) {
	const op = "cordon"
	if err := checkName(op, "the actor", c.Actor, false); err != nil {
		return Reply{}, err
	}
	if err := checkName(op, "the reason", c.Reason, false); err != nil {
		return Reply{}, err
	}
	x, err := w.session(op, c.Worker)
	if err != nil {
		return Reply{}, err
	}
	if x.Spec.External {
		return Reply{}, refuseExternal(op, x)
	}
	state, cond := belay.WorkerCordoned, x.condition()
	if c.Off {
		state, cond.Cordoned = x.uncordoned(), nil
	} else {
		cond.Cordoned = &belay.Cordoned{Since: cordonedSince(x, w.Now).Time(), By: c.Actor, Reason: c.Reason}
	}
	why := cond.why()
	switch {
	case x.State == state && x.Why == why:
		return Reply{}, nil
	case x.State == belay.WorkerOpen, x.State == belay.WorkerCordoned, x.State == belay.WorkerUnhealthy:
	default:
		return Reply{}, refuse(belay.CodeConflict, op, "worker %s is draining: it claims nothing more and will end",
			x.Spec.Name)
	}
	x.State, x.Why = state, why
	w.changedWorker(x)
	if c.Off {
		return Reply{}, nil
	}
	return Reply{Follow: w.unscheduled(x)}, nil
}

// cordonedSince returns the time since which the session has been cordoned without interruption, or
// now if it is not cordoned yet. A second Cordon does not change this time.
func cordonedSince(x *Worker, now Time) Time {
	if was := x.cordoned(); was != nil && !was.Since.IsZero() {
		return At(was.Since)
	}
	return now
}

// unscheduled returns commands that take back the executions which are scheduled to a worker.
func (w *world) unscheduled(x *Worker) []Command {
	var out []Command
	for _, e := range w.held(x.ID) {
		if e.State == belay.Scheduled {
			out = append(out, &Release{e.ID, e.Token, x.ID, 0})
		}
	}
	return out
}

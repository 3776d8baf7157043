package machine

import "github.com/belaydev/belay"

// Cordon stops the claims of a worker until another Cordon, with Off, allows them again. It takes
// back the executions that are scheduled to the worker, as Drain does; the worker keeps its runs.
type Cordon struct{ belay.Cordon }

// Need names the session and the executions that it owns.
func (c *Cordon) Need(n *Need) {
	n.Workers = append(n.Workers, c.Worker)
	n.Held = append(n.Held, c.Worker)
}

func (c *Cordon) apply(w *world) (Reply, error) {
	const op = "cordon"
	x, err := w.session(op, c.Worker)
	if err != nil {
		return Reply{}, err
	}
	if x.Spec.External {
		return Reply{}, refuseExternal(op, x)
	}
	state := belay.WorkerCordoned
	if c.Off {
		state = belay.WorkerOpen
	}
	switch x.State {
	case state:
		return Reply{}, nil
	case belay.WorkerOpen, belay.WorkerCordoned:
	default:
		return Reply{}, refuse(belay.CodeConflict, op, "worker %s is draining: it claims nothing more and will end",
			x.Spec.Name)
	}
	x.State = state
	w.changedWorker(x)
	if c.Off {
		return Reply{}, nil
	}
	return Reply{Follow: w.unscheduled(x)}, nil
}

// unscheduled returns commands that take back the executions which are scheduled to a worker.
func (w *world) unscheduled(x *Worker) []Command {
	var out []Command
	for _, e := range w.held(x.ID) {
		if e.State == belay.Scheduled {
			out = append(out, &Release{e.ID, e.Token, x.ID})
		}
	}
	return out
}

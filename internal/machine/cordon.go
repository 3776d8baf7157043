package machine

import (
	"encoding/json"

	"github.com/belaydev/belay"
)

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
	state, why := belay.WorkerCordoned, ""
	if c.Off {
		state = belay.WorkerOpen
	} else {
		why = c.why(x, w.Now)
	}
	switch {
	case x.State == state && x.Why == why:
		return Reply{}, nil
	case x.State == belay.WorkerOpen, x.State == belay.WorkerCordoned:
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

// why encodes who cordons the session, since when and why. The session of a cordoned worker keeps
// the time at which the first Cordon was made.
func (c *Cordon) why(x *Worker, now Time) string {
	since := now
	if was := x.cordoned(); was != nil && !was.Since.IsZero() {
		since = At(was.Since)
	}
	b, err := json.Marshal(belay.Cordoned{Since: since.Time(), By: c.Actor, Reason: c.Reason})
	if err != nil {
		panic(err) // a time and short texts can always be encoded
	}
	return string(b)
}

// cordoned returns since when the session is cordoned, by whom and why; nil if it is not cordoned. If
// the stored text cannot be read, the answer is without these details, since the state is what counts.
func (w *Worker) cordoned() *belay.Cordoned {
	if w.State != belay.WorkerCordoned {
		return nil
	}
	c := new(belay.Cordoned)
	if err := json.Unmarshal([]byte(w.Why), c); err != nil {
		return new(belay.Cordoned)
	}
	return c
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

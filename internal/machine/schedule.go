package machine

import "github.com/belaydev/belay"

// Schedule assigns a due execution to a named worker, which must still accept it.
type Schedule struct {
	Execution belay.ExecutionID
	Worker    belay.WorkerID
	Secret    belay.Secret
}

// Need asks the store for the execution and the session.
func (c *Schedule) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	n.Workers = append(n.Workers, c.Worker)
	n.Entering = append(n.Entering, c.Execution)
}

func (c *Schedule) apply(w *world) (Reply, error) {
	const op = "schedule"
	x, err := w.session(op, c.Worker)
	if err != nil {
		return Reply{}, err
	}
	e, err := w.execution(op, c.Execution)
	if err != nil {
		return Reply{}, err
	}
	if x.Spec.External {
		return Reply{}, refuseExternal(op, x)
	}
	if !x.State.Claims() {
		return Reply{}, refuse(belay.CodeConflict, op, "worker %s is %s", c.Worker, x.State)
	}
	if !e.Ready().over(w.Now) {
		return Reply{}, w.illegal(op, e, "it is not due")
	}
	if err := w.mayEnter(op, e); err != nil {
		return Reply{}, err
	}
	w.scheduleTo(e, x, c.Secret)
	return Reply{Seq: e.Seq, Execution: w.copyOf(e)}, nil
}

// scheduleTo assigns a due execution, whose gates are open, to a worker that must still accept it.
func (w *world) scheduleTo(e *Execution, x *Worker, secret belay.Secret) {
	w.enter(e)
	e.Secret, e.ClaimNo = secret, 0
	w.assign(e, x)
	e.State, e.DueAt, e.ScheduledAt = belay.Scheduled, 0, w.Now
	e.Reason, e.ReasonText = "scheduled", "assigned to worker "+x.Spec.Name+", which has yet to accept"
	r := w.run(e)
	r.ScheduledSeq, r.ScheduledAt = e.Seq, w.Now
}

// Accept begins the run of a scheduled execution, at the request of its worker.
type Accept struct {
	Worker    belay.WorkerID
	Execution belay.ExecutionID
	Token     belay.Token
	// Number is the number of the accept. Each accept of the session has a higher number than the accepts
	// before it, and several may be in flight. See [belay.Heartbeat].
	Number int64
}

// Need asks the store for the execution, with its ancestors, whose budget may be spent, and the session.
func (c *Accept) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	n.Workers = append(n.Workers, c.Worker)
	n.Specs = append(n.Specs, c.Execution)
}

func (c *Accept) apply(w *world) (Reply, error) {
	const op = "accept"
	if c.Number < 1 {
		return Reply{}, refuse(belay.CodeInvalid, op, "the number %d; the first accept of a session has number 1",
			c.Number)
	}
	x, err := w.session(op, c.Worker)
	if err != nil {
		return Reply{}, err
	}
	e, err := w.execution(op, c.Execution)
	if err != nil {
		return Reply{}, err
	}
	if x.Spec.External {
		return Reply{}, refuseExternal(op, x)
	}
	mine := e.Worker == c.Worker && e.Token == c.Token
	// A run that a claim began is answered only to that claim, whose reply may be on its way: a forged message that
	// names the run must not make the worker begin it twice.
	if mine && e.State == belay.Running && e.ClaimNo < 0 {
		if -e.ClaimNo < c.Number {
			// The broker repeated the message. A heartbeat that gives up the former accept must not release the run.
			e.ClaimNo = -c.Number
			w.changed(e)
		}
		return Reply{Claims: []Claimed{w.claimed(e)}, Replayed: true}, nil
	}
	// A failing health probe takes nothing from a worker, so the worker may still accept.
	if !mine || e.State != belay.Scheduled || !x.State.Claims() && x.State != belay.WorkerUnhealthy {
		return Reply{}, w.illegal(op, e, "it is not scheduled to this worker with this token")
	}
	if root := w.spent(e); root != nil { // since it was scheduled
		w.exhaust(e, root)
		return Reply{}, nil
	}
	first := e.StartedAt == 0
	w.advance(e)
	e.Reason, e.ReasonText, e.ScheduledAt = "", "", 0
	e.ClaimNo = -c.Number
	w.start(e)
	claimed := w.claimed(e)
	claimed.First = first
	return Reply{Claims: []Claimed{claimed}}, nil
}

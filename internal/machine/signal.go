package machine

import "github.com/belaydev/belay"

// Deliver delivers a signal to an execution.
type Deliver struct {
	belay.SignalRequest
	// unaudited says that the audit does not record the signal, although it has an actor.
	unaudited bool
	judged    *judged // the result of Judge; nil before Judge is called
}

// Judge checks the payload and computes the operation's sum, without the actor, because a request may be repeated with
// another API key.
func (c *Deliver) Judge() {
	if c.judged != nil {
		return
	}
	c.judged = &judged{err: CheckPayload("signal", "the signal's payload", c.Payload, belay.MaxSignal)}
	if c.judged.err == nil && !c.Op.IsZero() {
		c.judged.sum = contentOf("signal").text(c.Name).json(c.Payload).sum()
	}
}

// Need asks the store for the execution and the operation.
func (c *Deliver) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	if !c.Op.IsZero() {
		n.Ops = append(n.Ops, OpRef{c.Execution, c.Op})
	}
}

func (c *Deliver) apply(w *world) (Reply, error) {
	const op = "signal"
	e, err := w.execution(op, c.Execution)
	if err != nil {
		return Reply{}, err
	}
	c.Judge()
	if seq, ok, err := w.repetition(op, e.ID, c.Op, c.judged.sum); ok {
		return Reply{Seq: seq, Replayed: err == nil}, err
	}
	if err := checkName(op, "the signal's name", c.Name, true); err != nil {
		return Reply{}, err
	}
	if err := checkName(op, "the actor", c.Actor, false); err != nil {
		return Reply{}, err
	}
	if c.judged.err != nil {
		return Reply{}, c.judged.err
	}
	if e.State.Terminal() {
		return Reply{}, w.illegal(op, e, "an execution that has ended takes no signal")
	}
	if e.Signals >= belay.MaxSignals || e.SignalBytes+int64(len(c.Payload)) > belay.MaxSignalBytes {
		return Reply{}, refuse(belay.CodeQueueFull, op,
			"the execution keeps %d signals of %d bytes that it has not consumed; the limits are %d and %d",
			e.Signals, e.SignalBytes, belay.MaxSignals, belay.MaxSignalBytes)
	}
	w.advance(e)
	e.Signals++
	e.SignalBytes += int64(len(c.Payload))
	w.deliver(e, &Signal{
		Execution: e.ID, Seq: e.Seq, Name: c.Name, Op: c.Op, OpSum: c.judged.sum, Payload: c.Payload, At: w.Now,
	})
	if c.Actor != "" {
		c.sign(w, e)
	}
	return Reply{Seq: e.Seq}, nil
}

// sign records the actor of the signal. The rows of signals have no actor, because most signals have none; so an action
// with the seq of the signal has it. The operation belongs to the signal.
func (c *Deliver) sign(w *world, e *Execution) {
	w.deed(e, "signal", c.Actor, "", belay.OpID{}, OpSum{})
	if !c.unaudited {
		w.out.Audit = append(w.out.Audit, &Audit{
			At: w.Now, Actor: c.Actor, ObjectRef: ObjectRef{ExecutionObject, e.ID.String()}, Version: e.Seq,
			Action: "signal", Reason: c.Name, Op: c.Op,
		})
	}
}

// deliver writes a signal with the seq that the caller has just raised. A waiting execution becomes
// due, also while it is paused. The owner of a running execution learns about the signal in the
// reply to its next heartbeat.
func (w *world) deliver(e *Execution, s *Signal) {
	w.out.Signals = append(w.out.Signals, s)
	e.SignalSeq = s.Seq
	switch {
	case e.State == belay.Running:
		e.Attention = true
	case e.State == belay.Waiting, e.State == belay.Paused && e.PausedFrom == belay.Waiting:
		if e.DueAt == 0 || e.DueAt > w.Now {
			e.DueAt = w.Now
			w.markDue(e)
		}
	}
}

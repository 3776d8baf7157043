package machine

import (
	"slices"

	"github.com/belaydev/belay"
)

// Claim gives a worker the executions that are due in its lanes (groups of executions that the same
// workers may claim).
type Claim struct {
	belay.ClaimRequest
	// Lanes are the lanes from which the worker may claim, highest priority first.
	Lanes []Lane
	// Secrets has one lease secret for each slot.
	Secrets []belay.Secret
	// Idle says that the worker runs nothing.
	Idle bool
	// Assign makes the executions scheduled, and not running: the engine claims for a worker that gets
	// messages from a broker, and the worker must still accept. Such a claim has no number, and is not
	// repeated.
	Assign bool
	// After is the queue from which the last execution was claimed, empty if unknown. The queue
	// after it has the first turn in this claim. After affects only the turns.
	After string
}

// Need asks the store for the session, and for each lane (the executions with equal queue,
// workflow, version, priority and labels) as many due executions as the claim has slots.
func (c *Claim) Need(n *Need) {
	n.Workers = append(n.Workers, c.Worker)
	if c.Repeat {
		n.Held = append(n.Held, c.Worker)
	}
	for _, l := range c.Lanes {
		n.addReady(l.ID, max(0, c.Slots))
		n.addLaneGate(belay.Gate(belay.GateQueue, l.Queue))
		n.addLaneGate(belay.Gate(belay.GateWorkflow, l.Workflow))
	}
}

// addLaneGate adds a gate of a queue or workflow to the need, unless the need already contains it.
func (n *Need) addLaneGate(id belay.GateID) {
	if n.laneGates == nil {
		n.laneGates = make(map[belay.GateID]bool)
	}
	if !n.laneGates[id] {
		n.laneGates[id] = true
		n.LaneGates = append(n.LaneGates, id)
	}
}

// addLine adds the first executions of a gate's line (the queue of executions that wait at the
// gate) to the need.
func (n *Need) addLine(gate belay.GateID, limit int) {
	i, there := n.lines[gate]
	if !there {
		if n.lines == nil {
			n.lines = make(map[belay.GateID]int)
		}
		i = len(n.Lines)
		n.lines[gate] = i
		n.Lines = append(n.Lines, LineQuery{Gate: gate})
	}
	n.Lines[i].Limit = min(n.Lines[i].Limit+limit, MaxHeads)
}

func (n *Need) addReady(lane LaneID, limit int) {
	i, there := n.ready[lane]
	if !there {
		if n.ready == nil {
			n.ready = make(map[LaneID]int)
		}
		i = len(n.Ready)
		n.ready[lane] = i
		n.Ready = append(n.Ready, ReadyQuery{Lane: lane})
	}
	n.Ready[i].Limit += limit
}

func (c *Claim) apply(w *world) (Reply, error) {
	x, err := w.session("claim", c.Worker)
	if err != nil {
		return Reply{}, err
	}
	if x.Spec.External {
		return Reply{}, refuseExternal("claim", x)
	}
	if c.Slots < 0 || c.Slots > len(c.Secrets) {
		return Reply{}, refuse(belay.CodeInvalid, "claim", "cannot claim %d executions with %d secrets", c.Slots,
			len(c.Secrets))
	}
	if c.Assign {
		if !x.State.Claims() || x.Mailbox() == "" {
			return Reply{NoClaims: true}, nil
		}
		return Reply{Claims: c.pick(w, x), Shut: c.shut(w)}, nil
	}
	if c.Number <= x.ClaimFloor {
		return Reply{}, refuse(belay.CodeConflict, "claim",
			"claim %d was given up; give the next claim a number above %d", c.Number, x.ClaimFloor)
	}
	if c.Number < x.ClaimNo {
		return Reply{}, refuse(belay.CodeConflict, "claim", "claim %d is older than claim %d", c.Number, x.ClaimNo)
	}
	if c.Number == x.ClaimNo {
		return c.again(w)
	}
	if x.State == belay.WorkerDraining {
		return Reply{Heartbeat: belay.HeartbeatReply{Drain: true}}, nil
	}
	if !x.State.Claims() { // the session is cordoned or unhealthy
		return Reply{NoClaims: true}, nil
	}
	won := c.pick(w, x)
	if len(won) > 0 {
		x.ClaimNo = c.Number
		w.changedWorker(x)
	}
	return Reply{Claims: won, Shut: c.shut(w)}, nil
}

// shut returns the lanes (groups of executions) of the claim whose queue or workflow has a shut
// gate.
func (c *Claim) shut(w *world) []ShutLane {
	var shut []ShutLane
	for _, l := range c.Lanes {
		if g := w.shutBy(l.Queue, l.Workflow); g != nil {
			_, until := g.shut(w.Now)
			if until == 0 && !g.paused(w.Now) { // the end of a run opens the gate, at a time that is not known
				until = w.Now.Add(lineLook)
			}
			shut = append(shut, ShutLane{l.ID, g.id, until})
		}
	}
	return shut
}

// shutBy returns the shut gate of the queue or of the workflow, nil if both gates are open.
func (w *world) shutBy(queue, workflow string) *gate {
	if w.gateless() {
		return nil
	}
	for _, id := range [...]belay.GateID{
		belay.Gate(belay.GateQueue, queue), belay.Gate(belay.GateWorkflow, workflow),
	} {
		if g := w.gate(id); g != nil && (g.room(w.Now) == 0 || g.Limit != nil && !g.counted) {
			return g
		}
	}
	return nil
}

// again answers a claim that was decided before, with the runs that the claim won and the worker
// still owns. If there are no such runs, again refuses the claim's number. It must not answer with
// an empty list, because a worker keeps its number after an empty answer and would repeat the claim
// for ever.
func (c *Claim) again(w *world) (Reply, error) {
	var r Reply
	for _, e := range w.held(c.Worker) {
		if e.State == belay.Running && e.ClaimNo == c.Number {
			r.Claims = append(r.Claims, w.claimed(e))
		}
	}
	if len(r.Claims) == 0 {
		return Reply{}, refuse(belay.CodeConflict, "claim",
			"claim %d was decided before and the worker owns none of its runs any more; give the next a higher number",
			c.Number)
	}
	return r, nil
}

// held lists the executions that the worker owns after the earlier commands of the batch: the
// executions loaded for the worker, in their present state, and the executions that the worker won
// in this batch.
func (w *world) held(id belay.WorkerID) []*Execution {
	var held []*Execution
	for _, e := range w.Held[id] {
		if now := w.execs[e.ID]; now != nil {
			e = now
		}
		if e.Worker == id {
			held = append(held, e)
		}
	}
	for _, e := range w.assigned {
		if e.Worker == id && !slices.Contains(held, e) {
			held = append(held, e)
		}
	}
	return held
}

func (w *world) claimed(e *Execution) Claimed {
	c := Claimed{Execution: *e, Alone: e.Lane.IsAlone()}
	if s := w.specs[e.ID]; s != nil && !s.Large {
		c.Input, c.Known = s.Input, true
	}
	return c
}

// assign binds a due execution to a session under a new token (guarantee G1).
func (w *world) assign(e *Execution, x *Worker) {
	e.Token = token(e.Token, w.Epoch)
	e.Worker = x.ID
	w.assigned = append(w.assigned, e)
	e.Reason, e.ReasonText = "", ""
	e.CancelBy, e.PauseRequested, e.Preempting = 0, false, false
	e.SpentBy = belay.ExecutionID{}
	w.advance(e)
	w.runs[belay.RunID{Execution: e.ID, Token: e.Token}] = &Run{
		Execution: e.ID, Token: e.Token, Worker: x.ID, Attempt: e.Attempts + 1, Generation: e.Generation, New: true,
	}
}

// start begins the run of an execution that was just assigned or accepted. The caller has raised
// the seq.
func (w *world) start(e *Execution) {
	e.State = belay.Running
	e.RunAt, e.ProgressAt, e.DueAt = w.Now, w.Now, 0
	if e.StartedAt == 0 {
		e.StartedAt = w.Now
	}
	r := w.run(e)
	r.StartedSeq, r.StartedAt = e.Seq, w.Now
}

// execution finds an execution's row, or refuses the command.
func (w *world) execution(op string, id belay.ExecutionID) (*Execution, error) {
	e := w.execs[id]
	if e == nil {
		return nil, refuse(belay.CodeNotFound, op, "there is no execution %s", id)
	}
	return e, nil
}

// illegal refuses a transition that the execution's state does not allow.
func (w *world) illegal(op string, e *Execution, why string) error {
	return refuse(belay.CodeConflict, op+" "+e.ID.String(), "%s; the execution is %s", why, e.State)
}

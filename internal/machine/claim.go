package machine

import (
	"cmp"
	"slices"

	"github.com/belaydev/belay"
)

// Claim gives a worker the executions that are due in its lanes.
type Claim struct {
	belay.ClaimRequest
	// Lanes are the lanes from which the worker may claim, highest priority first.
	Lanes []Lane
	// Secrets has one lease secret for each slot.
	Secrets []belay.Secret
	// Idle says that the worker runs nothing.
	Idle bool
	// After is the queue from which the last execution was claimed, empty if unknown. The queue
	// after it has the first turn in this claim. After affects only the turns.
	After string
}

// Need names the session, and for each lane (the executions with equal queue, workflow, version,
// priority and labels) as many due executions as the claim has slots.
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

// addLaneGate adds a gate of a queue or workflow to the need, unless the need has it.
func (n *Need) addLaneGate(id belay.GateID) {
	if n.laneGates == nil {
		n.laneGates = make(map[belay.GateID]bool)
	}
	if !n.laneGates[id] {
		n.laneGates[id] = true
		n.LaneGates = append(n.LaneGates, id)
	}
}

// addLine adds the first executions of a gate's line to the need.
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
	won := c.pick(w, x)
	if len(won) > 0 {
		x.ClaimNo = c.Number
		w.changedWorker(x)
	}
	return Reply{Claims: won, Shut: c.shut(w)}, nil
}

// shut returns the lanes of the claim whose queue or workflow has a shut gate.
func (c *Claim) shut(w *world) []ShutLane {
	var shut []ShutLane
	for _, l := range c.Lanes {
		if g := w.shutBy(l.Queue, l.Workflow); g != nil {
			_, until := g.shut(w.Now)
			if until == 0 && !g.paused(w.Now) { // a run may give its place back at any time
				until = w.Now.Add(lineLook)
			}
			shut = append(shut, ShutLane{l.ID, g.id, until})
		}
	}
	return shut
}

// shutBy returns the gate of the queue or of the workflow if it is shut, nil if both are open.
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

// held lists the executions that the worker owns after the earlier commands of the fold: the
// executions loaded for the worker, in their present state, and the executions that the worker won
// in this fold.
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

// pick takes up to Slots due executions, from lanes of higher priority first. Among lanes of one
// priority the queues take turns, so that the backlog of one queue does not delay the others;
// within a queue the longest due execution comes first. Each run starts before the next execution
// is picked, because an execution that became due again in this fold is in two lists of due
// executions.
//
// A suspect, which must run alone, is never won together with another execution. A worker that runs
// nothing takes a suspect before all other executions of its priority. A busy worker takes a
// suspect first only in claims with an even number, so that many suspects do not delay other
// executions. If no other execution of the priority is due, the claim takes a suspect whatever its
// number.
func (c *Claim) pick(w *world, x *Worker) []Claimed {
	due := 0
	for _, l := range c.Lanes {
		due += len(w.ready[l.ID]) + len(w.fresh[l.ID])
	}
	won := make([]Claimed, 0, min(due, c.Slots))
	for i := 0; i < len(c.Lanes) && len(won) < c.Slots; {
		j := i
		for j < len(c.Lanes) && c.Lanes[j].Priority == c.Lanes[i].Priority {
			j++
		}
		suspect := w.longestDue(c.Lanes[i:j], c.mayRunAlone)
		for suspect != nil && !w.mayPass(suspect, c.Lanes[i].Priority) {
			suspect = w.longestDue(c.Lanes[i:j], c.mayRunAlone)
		}
		if suspect != nil && len(won) == 0 && (c.Idle || c.Number%2 == 0) {
			return append(won, c.take(w, x, suspect, 0))
		}
		turns := c.turns(w, c.Lanes[i:j])
		for len(won) < c.Slots {
			e := turns.next(w)
			if e == nil {
				break
			}
			if w.mayPass(e, c.Lanes[i].Priority) {
				won = append(won, c.take(w, x, e, len(won)))
			}
		}
		if suspect != nil && len(won) == 0 {
			return append(won, c.take(w, x, suspect, 0))
		}
		i = j
	}
	return won
}

// mayPass reports whether the gates that a due execution names let it start a run. If not, the
// execution is no longer at the head of its lane.
func (w *world) mayPass(e *Execution, priority int) bool {
	if e.Gates == nil {
		return true
	}
	switch w.ask(e, priority) {
	case open:
		return true
	case unknown:
		if w.unasked == nil {
			w.unasked = make(map[*Execution]bool)
		}
		w.unasked[e] = true
	case parked:
	}
	return false
}

// take starts the run of an execution, with the nth secret of the claim.
func (c *Claim) take(w *world, x *Worker, e *Execution, n int) Claimed {
	first := e.Token == 0
	w.enter(e)
	e.Secret, e.ClaimNo = c.Secrets[n], c.Number
	w.assign(e, x)
	w.start(e)
	claimed := w.claimed(e)
	claimed.First = first
	return claimed
}

// mayRunAlone selects suspects. An idle worker may take any suspect; a busy worker only one that
// has waited for an idle worker longer than AloneWait.
func (c *Claim) mayRunAlone(w *world, e *Execution) bool {
	return e.Lane.IsAlone() && (c.Idle || e.DueAt.Add(AloneWait) <= w.Now)
}

// shared selects executions that may run at the same time as others on one worker.
func shared(_ *world, e *Execution) bool { return !e.Lane.IsAlone() }

// turns are queues that take turns, each with its lanes.
type turns struct {
	queues [][]Lane
	at     int // index of the queue whose turn is next
}

// turns groups lanes of one priority by queue, in the order of the queues' names. The first turn
// goes to the queue that follows c.After, the queue that had the last turn. If no last turn is
// known, it goes to the queue with the longest due execution.
func (c *Claim) turns(w *world, lanes []Lane) *turns {
	t := &turns{}
	if !slices.ContainsFunc(lanes, func(l Lane) bool { return l.Queue != lanes[0].Queue }) {
		t.queues = [][]Lane{lanes}
		return t
	}
	by := slices.Clone(lanes)
	slices.SortStableFunc(by, func(a, b Lane) int { return cmp.Compare(a.Queue, b.Queue) })
	for i := 0; i < len(by); {
		j := i
		for j < len(by) && by[j].Queue == by[i].Queue {
			j++
		}
		t.queues = append(t.queues, by[i:j:j])
		i = j
	}
	if c.After == "" {
		if first := w.longestDue(by, shared); first != nil {
			t.at = slices.IndexFunc(t.queues, func(q []Lane) bool { return q[0].Queue == first.Queue })
		}
		return t
	}
	t.at = max(0, slices.IndexFunc(t.queues, func(q []Lane) bool { return q[0].Queue > c.After }))
	return t
}

// next is the longest due execution of the queue whose turn it is. A queue with no due execution
// loses its turn to the next queue; next is nil if no queue has any.
func (t *turns) next(w *world) *Execution {
	for range t.queues {
		lanes := t.queues[t.at]
		t.at = (t.at + 1) % len(t.queues)
		if e := w.longestDue(lanes, shared); e != nil {
			return e
		}
	}
	return nil
}

// longestDue returns the execution with the earliest due time among those executions at the head of
// a lane that fits selects. An execution that has started is no longer at the head of its lane.
func (w *world) longestDue(lanes []Lane, fits func(*world, *Execution) bool) *Execution {
	var best *Execution
	for _, l := range lanes {
		if w.shutBy(l.Queue, l.Workflow) != nil {
			continue
		}
		if e := w.head(l.ID); e != nil && fits(w, e) && (best == nil || before(e, best)) {
			best = e
		}
	}
	return best
}

func before(a, b *Execution) bool {
	if a.DueAt != b.DueAt {
		return a.DueAt < b.DueAt
	}
	return a.ID.Compare(b.ID) < 0
}

// head returns the first execution of the lane that is still due. Executions that became ready in
// this fold come after all executions that were ready when the fold began.
func (w *world) head(lane LaneID) *Execution {
	for {
		q := w.ready
		if len(q[lane]) == 0 {
			q = w.fresh
		}
		if len(q[lane]) == 0 {
			return nil
		}
		if e := q[lane][0]; e.Ready().over(w.Now) && !w.unasked[e] {
			return e
		}
		q[lane] = q[lane][1:]
	}
}

// assign binds a due execution to a session under a new token (guarantee G1).
func (w *world) assign(e *Execution, x *Worker) {
	e.Token = token(e.Token, w.Epoch)
	e.Worker = x.ID
	w.assigned = append(w.assigned, e)
	e.Reason, e.ReasonText = "", ""
	e.CancelBy, e.PauseRequested, e.Preempting = 0, false, false
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

// Schedule assigns a due execution to a named worker, which must still accept it.
type Schedule struct {
	Execution belay.ExecutionID
	Worker    belay.WorkerID
	Secret    belay.Secret
}

// Need names the execution and the session.
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
	if x.State == belay.WorkerDraining {
		return Reply{}, refuse(belay.CodeConflict, op, "worker %s is draining", c.Worker)
	}
	if !e.Ready().over(w.Now) {
		return Reply{}, w.illegal(op, e, "it is not due")
	}
	if err := w.mayEnter(op, e); err != nil {
		return Reply{}, err
	}
	w.enter(e)
	e.Secret, e.ClaimNo = c.Secret, 0
	w.assign(e, x)
	e.State, e.DueAt, e.ScheduledAt = belay.Scheduled, 0, w.Now
	e.Reason, e.ReasonText = "scheduled", "assigned to worker "+x.Spec.Name+", which has yet to accept"
	r := w.run(e)
	r.ScheduledSeq, r.ScheduledAt = e.Seq, w.Now
	return Reply{Seq: e.Seq, Execution: w.copyOf(e)}, nil
}

// Accept begins the run of a scheduled execution, at the request of its worker.
type Accept struct {
	Worker    belay.WorkerID
	Execution belay.ExecutionID
	Token     belay.Token
}

// Need names the execution and the session.
func (c *Accept) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	n.Workers = append(n.Workers, c.Worker)
	n.Specs = append(n.Specs, c.Execution)
}

func (c *Accept) apply(w *world) (Reply, error) {
	const op = "accept"
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
	if mine && e.State == belay.Running {
		return Reply{Claims: []Claimed{w.claimed(e)}, Replayed: true}, nil
	}
	if !mine || e.State != belay.Scheduled || x.State == belay.WorkerDraining {
		return Reply{}, w.illegal(op, e, "it is not scheduled to this worker with this token")
	}
	w.advance(e)
	e.Reason, e.ReasonText, e.ScheduledAt = "", "", 0
	w.start(e)
	return Reply{Claims: []Claimed{w.claimed(e)}}, nil
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

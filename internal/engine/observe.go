package engine

import (
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Observation has the results of one batch, for metrics. It is made after the batch's callers have
// their answers, and is valid until Options.Observe returns.
type Observation struct {
	// Commands is the number of commands in the batch. Wrote says that there was something to
	// write. Took is the duration of the commit.
	Commands int
	Wrote    bool
	Took     time.Duration

	Submitted []SubmittedOne
	Finished  []FinishedOne
	Started   []StartedOne
	// Claims has, for each claim that won executions, the time from its command to the commit.
	Claims []time.Duration
	// Runs has the runs that ended. Timeouts has the names of the timeouts that ended executions or runs: total,
	// run, idle, start, schedule.
	Runs     []RunOne
	Timeouts []string
	// Costs has the costs that runs reported with a checkpoint or at their end, without those of their children.
	Costs []CostOne
	// Detected has, for each lost session of a worker, the time from its last heartbeat to its end.
	Detected []time.Duration
	// Late has, for the same sessions, the time from the end of the lease to the end of the session; 0 if the engine
	// noticed the loss earlier.
	Late []time.Duration
	// Slots has the slots of schedules whose times have come.
	Slots []belay.ScheduleSlot
	// Refused has the name of the operation for each write that was refused because the caller had
	// lost its lease.
	Refused []string
}

// SubmittedOne is an execution that was accepted.
type SubmittedOne struct {
	Workflow string
	Trigger  belay.Trigger
}

// Subject is the execution of an event.
type Subject struct {
	ID       belay.ExecutionID
	Workflow string
	Trace    belay.Trace // of the submitter
}

func subject(e *machine.Execution) Subject { return Subject{e.ID, e.Workflow, e.Trace} }

// FinishedOne is an execution that ended. Took is the time from its submission to its end, -1 if it was reopened after
// an earlier end. Row is its row after the batch.
type FinishedOne struct {
	Subject
	State belay.State
	Took  time.Duration
	Row   *machine.Execution
}

// StartedOne is a run that began. Wait is how long its execution had been due, without the time for which the execution
// waited at a gate that it names.
type StartedOne struct {
	Subject
	Wait time.Duration
}

// RunOne is a run that ended. Took is the time from its begin to its end, -1 if the run never began.
type RunOne struct {
	Subject
	Outcome belay.Outcome
	Took    time.Duration
}

// CostOne is a cost that a run of a workflow reported.
type CostOne struct {
	Workflow string
	Cost     belay.Cost
	Usage    belay.ModelUsage
}

// recorder makes an Observation of each batch. Each goroutine of the committer has its own
// recorder.
type recorder struct {
	report func(*Observation)
	due    []machine.Time // for each execution, since when workers could claim it; 0 for never
	begun  []machine.Time // for each execution, when its current run began; 0 if it does not run
	seen   Observation
	by     map[belay.ExecutionID]observed // the executions of the batch, once they are needed
}

// observed is an execution after the batch, and the begin of its run before the batch.
type observed struct {
	row   *machine.Execution
	begun machine.Time
}

// began saves the values that the decision of the batch overwrites. A store may call began twice
// for one batch.
func (o *recorder) began(rows *machine.Rows) {
	o.due, o.begun = o.due[:0], o.begun[:0]
	for _, e := range rows.Executions {
		due := e.DueAt
		if due != 0 {
			due = e.Claimable(rows.Now)
		}
		o.due, o.begun = append(o.due, due), append(o.begun, e.RunAt)
	}
}

// committed reports a batch whose callers have their answers.
func (o *recorder) committed(b *batch, began time.Time, took time.Duration) {
	s := &o.seen
	*s = Observation{
		Commands: len(b.commands), Wrote: !b.changes.Empty(), Took: took,
		Submitted: s.Submitted[:0], Finished: s.Finished[:0], Started: s.Started[:0], Claims: s.Claims[:0],
		Runs:     s.Runs[:0],
		Costs:    s.Costs[:0],
		Timeouts: s.Timeouts[:0], Detected: s.Detected[:0], Late: s.Late[:0], Refused: s.Refused[:0],
		Slots: s.Slots[:0],
	}
	clear(o.by)
	for i := range b.replies {
		o.reply(b.calls[i], &b.replies[i], began, took)
		o.cost(b.calls[i], &b.replies[i], b)
	}
	if s.Wrote {
		o.started(b.rows)
		o.executions(b.changes, b.rows.Now)
		o.runs(b)
		o.deeds(b.changes)
	}
	o.report(s)
}

func (o *recorder) reply(k *call, r *machine.Reply, began time.Time, took time.Duration) {
	switch c := k.command.(type) {
	case *machine.Claim:
		if len(r.Claims) > 0 {
			if !k.sent.IsZero() {
				took += began.Sub(k.sent)
			}
			o.seen.Claims = append(o.seen.Claims, took)
		}
	case *machine.Fire:
		o.seen.Slots = append(o.seen.Slots, r.Slots...)
	// without Repeat the refusal is not final, because the engine then searches for an earlier
	// write of the operation
	case *machine.Save:
		o.refused("checkpoint", c.Repeat, r.Err)
	case *machine.Settle:
		o.refused("settle", c.Repeat, r.Err)
	case *machine.Append:
		o.refused("append", true, r.Err)
	case *machine.Submit:
		o.refused("submit_child", true, r.Err)
	case *machine.Heartbeat:
		o.refused("heartbeat", true, r.Err)
	case *machine.Renew:
		o.refused("renew", true, r.Err)
	}
}

func (o *recorder) refused(op string, final bool, err error) {
	if err != nil && final && belay.CodeOf(err) == belay.CodeLeaseLost {
		o.seen.Refused = append(o.seen.Refused, op)
	}
}

// started records, for each run that began with the batch, how long workers could have claimed its
// execution. It leaves out executions that had no due time before the batch.
func (o *recorder) started(rows *machine.Rows) {
	for i, e := range rows.Executions[:len(o.due)] {
		if due := o.due[i]; due != 0 && e.State == belay.Running && e.RunAt == rows.Now {
			o.seen.Started = append(o.seen.Started, StartedOne{subject(e), max(0, rows.Now.Sub(due))})
		}
	}
}

func (o *recorder) executions(c *machine.Changes, now machine.Time) {
	specs := c.Specs
	for _, e := range c.Executions {
		if e.New {
			var s *machine.Spec
			if s, specs = specOf(e.ID, specs); s != nil {
				o.seen.Submitted = append(o.seen.Submitted, SubmittedOne{e.Workflow, s.Trigger})
			}
			if e.State == belay.Running { // the run began in the commit that accepted the execution
				o.seen.Started = append(o.seen.Started, StartedOne{subject(e), 0})
			}
		}
		if e.State.Terminal() && e.FinishedAt == now {
			f := FinishedOne{subject(e), e.State, -1, e}
			if e.Generation == 1 {
				f.Took = max(0, now.Sub(e.CreatedAt))
			}
			o.seen.Finished = append(o.seen.Finished, f)
		}
	}
	for _, w := range c.Workers {
		if w.State == belay.WorkerLost && w.EndedAt == now && !w.Spec.External {
			o.seen.Detected = append(o.seen.Detected, now.Sub(w.HeartbeatAt))
			o.seen.Late = append(o.seen.Late, max(0, now.Sub(w.ExpiresAt)))
		}
	}
}

// specOf finds the spec of a new execution, and returns it with the specs after it, because
// executions and specs are both in the order of the commands.
func specOf(id belay.ExecutionID, specs []*machine.Spec) (*machine.Spec, []*machine.Spec) {
	for i, s := range specs {
		if s.Execution == id {
			return s, specs[i+1:]
		}
	}
	return nil, specs
}

func (o *recorder) runs(b *batch) {
	for _, r := range b.changes.Runs {
		if r.EndedSeq == 0 || r.EndedAt != b.rows.Now {
			continue
		}
		x := o.find(b, r.Execution)
		one := RunOne{Outcome: r.Outcome, Took: -1}
		if one.ID = r.Execution; x.row != nil {
			one.Subject = subject(x.row)
		}
		if begun := max(x.begun, r.StartedAt); begun != 0 {
			one.Took = max(0, r.EndedAt.Sub(begun))
		}
		o.seen.Runs = append(o.seen.Runs, one)
		if r.Outcome == belay.OutcomeTimedOut {
			o.seen.Timeouts = append(o.seen.Timeouts, timedOut(x.row, r, b.rows.Now))
		}
	}
}

// find finds an execution of the batch; without a row if it is not in the batch.
func (o *recorder) find(b *batch, id belay.ExecutionID) observed {
	if len(o.by) == 0 {
		if o.by == nil {
			o.by = make(map[belay.ExecutionID]observed)
		}
		for _, e := range b.changes.Executions {
			o.by[e.ID] = observed{row: e}
		}
		for i, e := range b.rows.Executions[:len(o.begun)] {
			o.by[e.ID] = observed{e, o.begun[i]}
		}
	}
	return o.by[id]
}

// cost records the cost that a command has reported, unless an earlier command with the same operation id did.
func (o *recorder) cost(k *call, r *machine.Reply, b *batch) {
	var cost belay.Cost
	var used belay.ModelUsage
	var id belay.ExecutionID
	switch c := k.command.(type) {
	case *machine.Save:
		cost, used, id = c.CostTokens, c.Usage, c.Lease.Execution
	case *machine.Settle:
		cost, id = c.CostTokens, c.Lease.Execution
	}
	if cost == 0 && used == (belay.ModelUsage{}) || r.Err != nil || r.Replayed {
		return
	}
	if e := o.find(b, id).row; e != nil {
		o.seen.Costs = append(o.seen.Costs, CostOne{e.Workflow, cost, used})
	}
}

// timedOut returns the name of the timeout that ended a run. The name is "total" if the timeout of
// the execution is over, "idle" if the run made no progress for its idle timeout and the owner did
// not end the run, and otherwise "run".
func timedOut(e *machine.Execution, r *machine.Run, now machine.Time) string {
	if e == nil || e.Policy == nil {
		return "run"
	}
	idle := e.Policy.IdleTimeout.D()
	total := e.Policy.Timeout.D()
	switch {
	case total > 0 && e.StartedAt != 0 && now.Sub(e.StartedAt) >= total:
		return "total"
	case idle > 0 && r.Op.IsZero() && now.Sub(e.ProgressAt) >= idle:
		return "idle"
	}
	return "run"
}

// deeds records the timeouts of executions that did not run.
func (o *recorder) deeds(c *machine.Changes) {
	for _, d := range c.Deeds {
		kind := ""
		switch d.Kind {
		case "timeout":
			kind = "total"
		case "start_timeout":
			kind = "start"
		case "schedule_timeout", "message_expired":
			kind = "schedule"
		}
		// A timeout that ended a run is recorded with the run instead, by timedOut.
		if kind != "" && (d.Token == 0 || kind == "schedule") {
			o.seen.Timeouts = append(o.seen.Timeouts, kind)
		}
	}
}

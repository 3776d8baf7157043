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
	// Started has, for each run that began, how long its execution had been due, without the time for
	// which the execution waited at a gate that it names.
	Started []time.Duration
	// Claims has, for each claim that won executions, the time from its command to the commit.
	Claims []time.Duration
	// Runs has the outcomes of the runs that ended. Timeouts has the names of the timeouts that
	// ended executions or runs: total, run, idle, start, schedule.
	Runs     []belay.Outcome
	Timeouts []string
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

// FinishedOne is an execution that ended. Row is its row after the batch.
type FinishedOne struct {
	Workflow string
	State    belay.State
	Row      *machine.Execution
}

// recorder makes an Observation of each batch. Each goroutine of the committer has its own
// recorder.
type recorder struct {
	report func(*Observation)
	due    []machine.Time // for each execution, since when workers could claim it; 0 for never
	seen   Observation
}

// began saves the values that the decision of the batch overwrites. A store may call began twice
// for one batch.
func (o *recorder) began(rows *machine.Rows) {
	o.due = o.due[:0]
	for _, e := range rows.Executions {
		due := e.DueAt
		if due != 0 {
			due = e.Claimable(rows.Now)
		}
		o.due = append(o.due, due)
	}
}

// committed reports a batch whose callers have their answers.
func (o *recorder) committed(b *batch, began time.Time, took time.Duration) {
	s := &o.seen
	*s = Observation{
		Commands: len(b.commands), Wrote: !b.changes.Empty(), Took: took,
		Submitted: s.Submitted[:0], Finished: s.Finished[:0], Started: s.Started[:0], Claims: s.Claims[:0],
		Runs:     s.Runs[:0],
		Timeouts: s.Timeouts[:0], Detected: s.Detected[:0], Late: s.Late[:0], Refused: s.Refused[:0],
		Slots: s.Slots[:0],
	}
	for i := range b.replies {
		o.reply(b.calls[i], &b.replies[i], began, took)
	}
	if s.Wrote {
		o.started(b.rows)
		o.executions(b.changes, b.rows.Now)
		o.runs(b.changes, b.rows.Now)
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
			o.seen.Started = append(o.seen.Started, max(0, rows.Now.Sub(due)))
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
				o.seen.Started = append(o.seen.Started, 0)
			}
		}
		if e.State.Terminal() && e.FinishedAt == now {
			o.seen.Finished = append(o.seen.Finished, FinishedOne{e.Workflow, e.State, e})
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

func (o *recorder) runs(c *machine.Changes, now machine.Time) {
	var by map[belay.ExecutionID]*machine.Execution
	for _, r := range c.Runs {
		if r.EndedSeq == 0 || r.EndedAt != now {
			continue
		}
		o.seen.Runs = append(o.seen.Runs, r.Outcome)
		if r.Outcome != belay.OutcomeTimedOut {
			continue
		}
		if by == nil {
			by = make(map[belay.ExecutionID]*machine.Execution, len(c.Executions))
			for _, e := range c.Executions {
				by[e.ID] = e
			}
		}
		o.seen.Timeouts = append(o.seen.Timeouts, timedOut(by[r.Execution], r, now))
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

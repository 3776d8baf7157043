package machine

import (
	"cmp"
	"slices"

	"github.com/belaydev/belay"
)

// Record is the part of one execution that a store read in one snapshot. A store fills only the
// fields that the read requested.
type Record struct {
	Execution   *Execution
	Spec        *Spec
	Runs        []*Run
	Checkpoints []*Checkpoint
	Signals     []*Signal
	Deeds       []*Deed
	// More says that the execution has more checkpoints or signals to resume from than were read.
	More bool
	// CreatedBy is the actor of the first event, if the history was read from its begin.
	CreatedBy string
	// Measures are the sums for the metrics, and Act is the newest action of a person or program.
	Measures *Measures
	Act      *Deed
}

// View is the execution as the public API shows it.
func View(r *Record) belay.Execution {
	e := r.Execution
	v := belay.Execution{
		ID: e.ID, Workflow: e.Workflow, Version: e.Version, Queue: e.Queue, State: e.State, External: e.External,
		Gate: e.WaitsAt(),
		Seq:  e.Seq, Token: e.Token, Generation: e.Generation, Attempt: e.Attempts + 1, Losses: e.Losses,
		Worker: e.Worker,
		Parent: e.Parent, ParentKey: e.Child, OpenChildren: e.Open, Checkpoints: e.Checkpoints,
		StateSeq:   e.StateSeq,
		CostTokens: e.Cost, CreatedAt: e.CreatedAt.Time(), DueAt: e.DueAt.Time(), StartedAt: e.StartedAt.Time(),
		ProgressAt: e.ProgressAt.Time(), FinishedAt: e.FinishedAt.Time(), CancelBy: e.CancelBy.Time(),
		PauseRequested: e.PauseRequested, Notify: e.Notify,
	}
	if e.Budget != 0 {
		v.Budget = &belay.Budget{Cost: e.Budget}
	}
	if e.State.Terminal() {
		v.Attempt = max(1, e.Attempts)
		if e.State == belay.Succeeded {
			v.Attempt = e.Attempts + 1
		}
	}
	if p := e.Policy; p != nil {
		c := *p
		v.Policy = &c
		if p.Timeout != 0 && e.StartedAt != 0 && !e.State.Terminal() {
			v.Deadline = e.StartedAt.Add(p.Timeout.D()).Time()
		}
	}
	if e.Class != 0 {
		v.Error = &belay.Failure{Class: e.Class, Message: e.Message, FailedBy: e.FailedBy}
	}
	if s := r.Spec; s != nil {
		v.Input, v.Labels, v.WorkerLabels, v.Priority = s.Input, s.Labels, s.WorkerLabels, s.Priority
		v.Key, v.Trigger, v.CreatedBy = s.Key, s.Trigger, s.CreatedBy
		v.InputsHash, v.ConfigHash = r.Hashes(e.Generation)
	}
	for _, run := range r.Runs {
		if run.Token == e.Token && run.Final && run.Generation == e.Generation && e.State.Terminal() {
			v.Output = run.Output
			if v.Error != nil {
				v.Error.Stack = run.Stack
			}
		}
	}
	v.Reason = reason(e)
	return v
}

// reason explains why an execution that has not ended does not run. Every execution without an
// owner that has not ended has a reason.
func reason(e *Execution) *belay.Reason {
	if e.State.Terminal() || e.State == belay.Running {
		return nil
	}
	r := &belay.Reason{Code: e.Reason, Text: e.ReasonText, Until: first(e.Ready(), e.CheckAt).Time()}
	switch {
	case e.State == belay.Paused && e.SpentBy == e.ID:
		r.Code, r.Text = "budget", "its cost of "+e.Cost.String()+" tokens has reached its budget of "+e.Budget.String()
	case e.State == belay.Paused && !e.SpentBy.IsZero():
		r.Code, r.Text = "budget", "the budget of its root "+e.SpentBy.String()+" is spent"
	case e.State == belay.Paused:
		r.Code, r.Text = "paused", "paused by an operator while "+e.PausedFrom.String()
	case e.Gate != "":
		r.Code, r.Text = "gate", "held back by its gate: "+string(e.WaitsAt())
	case e.External:
		r.Code, r.Text = "external", "waits for an owner from outside to lock it"
		if e.ReasonText != "" {
			r.Text += "; " + e.ReasonText
		}
	case r.Code == "":
		r.Code, r.Text = "queued", "waits for a free worker of its queue"
	}
	return r
}

// Events merges an execution's rows after a seq into its history, which is ordered, without
// duplicates and without gaps (guarantee G15). The result has at most limit events.
func Events(r *Record, after int64, limit int) []belay.Event {
	by := make(map[int64]belay.Event)
	put := func(ev belay.Event) {
		if ev.Seq > after {
			ev.Execution = r.Execution.ID
			by[ev.Seq] = ev
		}
	}
	put(belay.Event{
		Seq: 1, Kind: "submitted", At: r.Execution.CreatedAt.Time(), Name: r.Execution.Workflow, Actor: r.CreatedBy,
	})
	for _, run := range r.Runs {
		runEvents(run, put)
	}
	for _, c := range r.Checkpoints {
		ev := belay.Event{
			Seq: c.Seq, Kind: c.Kind.String(), At: c.At.Time(), Name: c.Key, Token: c.Token, Data: c.Data,
			Pruned: c.Pruned, DurationMS: tookMillis(c.Took), Attempt: c.Attempt, Steps: StepsOf(c.Steps),
		}
		if noState(c) {
			ev.Text = "the state was discarded"
		}
		put(ev)
	}
	for _, s := range r.Signals {
		ev := belay.Event{Seq: s.Seq, Kind: "signal", At: s.At.Time(), Name: s.Name, Data: s.Payload}
		if !s.Child.IsZero() {
			ev.Kind, ev.Text = "child", s.Child.String()
		}
		put(ev)
	}
	for _, d := range r.Deeds {
		ev := by[d.Seq] // the event of the run that the action ended, if any
		ev.Seq, ev.Kind, ev.At, ev.Actor = d.Seq, d.Kind, d.At.Time(), d.Actor
		if d.Reason != "" {
			ev.Text = d.Reason
		}
		ev.Final = d.Final
		put(ev)
	}
	events := make([]belay.Event, 0, len(by))
	for _, ev := range by {
		events = append(events, ev)
	}
	slices.SortFunc(events, func(a, b belay.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	if len(events) > limit {
		events = events[:limit]
	}
	return events
}

// runEvents adds the events of the begin and the end of a run.
func runEvents(run *Run, put func(belay.Event)) {
	ev := belay.Event{Token: run.Token, Worker: run.Worker, Attempt: run.Attempt}
	if run.ScheduledSeq != 0 {
		s := ev
		s.Seq, s.Kind, s.At = run.ScheduledSeq, "scheduled", run.ScheduledAt.Time()
		put(s)
	}
	if run.StartedSeq != 0 {
		s := ev
		s.Seq, s.Kind, s.At = run.StartedSeq, "started", run.StartedAt.Time()
		put(s)
	}
	if run.EndedSeq == 0 {
		return
	}
	ev.Seq, ev.Kind, ev.At, ev.Data = run.EndedSeq, run.Outcome.String(), run.EndedAt.Time(), run.Output
	if run.Class != 0 {
		ev.Error = run.failure()
	}
	ev.Final, ev.Steps = run.Final, StepsOf(run.Steps)
	put(ev)
}

// Resume is the data from which an owner resumes the execution.
func Resume(r *Record, now Time) belay.Resumed {
	out := belay.Resumed{Signals: Unconsumed(r, 0), More: r.More}
	if r.Spec != nil {
		out.Input = r.Spec.Input
	}
	for _, k := range newest(r.Checkpoints, r.Execution, 0) {
		out.Checkpoints = append(out.Checkpoints, belay.Checkpoint{
			Seq: k.Seq, Kind: k.Kind, Key: k.Key, Data: k.Data, Age: max(0, now.Sub(k.At)),
		})
	}
	return out
}

// Unconsumed lists the signals after a seq that no checkpoint has consumed.
func Unconsumed(r *Record, after int64) []belay.Signal {
	var signals []belay.Signal
	for _, s := range r.Signals {
		if s.ConsumedBy == 0 && s.Seq > max(after, r.Execution.BaseSeq) {
			signals = append(signals, belay.Signal{Seq: s.Seq, Name: s.Name, Child: s.Child, Payload: s.Payload})
		}
	}
	return signals
}

// RunView is a run as the public API shows it.
func RunView(r *Run, workflow string) belay.RunRecord {
	v := belay.RunRecord{
		ID: belay.RunID{
			Execution: r.Execution, Token: r.Token,
		}, Execution: r.Execution, Workflow: workflow, Token: r.Token, Worker: r.Worker,
		Attempt: r.Attempt, Generation: r.Generation, Outcome: r.Outcome, StartedAt: r.StartedAt.Time(),
		EndedAt: r.EndedAt.Time(),
		Output:  r.Output, CostTokens: r.Cost, DurationMS: elapsed(r.StartedAt, r.EndedAt),
	}
	if r.Class != 0 {
		v.Error = r.failure()
	}
	return v
}

func (r *Run) failure() *belay.Failure {
	return &belay.Failure{Class: r.Class, Message: r.Message, Stack: r.Stack, FailedBy: r.FailedBy}
}

// WorkerView is a session as the public API shows it, without the number of its runs.
func WorkerView(w *Worker) belay.Worker {
	v := belay.Worker{
		WorkerSpec: w.Spec, State: w.State, OpenedAt: w.OpenedAt.Time(), HeartbeatAt: w.HeartbeatAt.Time(),
		ExpiresAt: w.ExpiresAt.Time(), EndedAt: w.EndedAt.Time(), Cordoned: w.cordoned(),
		Mailbox: w.Mailbox(),
	}
	if w.State.Ended() {
		v.EndReason = w.Why
	} else if since, failure := w.Failing(); failure != "" {
		v.UnhealthySince, v.HealthError = since.Time(), failure
	}
	return v
}

package machine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/belaydev/belay"
)

// The checkers check the rows after every batch. They were written from docs/guarantees.md and not
// from the code: a value that the code computes is computed again with a separate formula. The
// checkers of the public history are in internal/testkit/promise. TestCheckersCatchPlantedBugs
// shows for each checker that it fails on a planted bug.

// faults lists the guarantees, and the invariants of rows, that the checkers found violated.
type faults []error

func (f *faults) add(promise, format string, args ...any) {
	*f = append(*f, fmt.Errorf(promise+": "+format, args...))
}

// check checks all rows.
func (k *keeper) check() error {
	var f faults
	for id, r := range k.records {
		if r.execution == nil {
			f.add("G4", "rows of %s, which does not exist", id)
			continue
		}
		checkRow(&f, k, r.execution)
		checkConsumed(&f, r)
		checkSums(&f, r)
		saved, ops := 0, make(map[belay.OpID]bool)
		for _, c := range r.checkpoints {
			if ops[c.Op] && !c.Op.IsZero() {
				f.add("G3", "%s has two checkpoints of operation %s", id, c.Op)
			}
			ops[c.Op] = true
			if c.Seq > r.execution.BaseSeq {
				saved++
			}
		}
		if want := k.costOf(id); r.execution.Cost != want {
			f.add("cost", "%s costs %s, and its rows and children %s", id, r.execution.Cost, want)
		}
		if saved != r.execution.Checkpoints {
			f.add("G4", "%s counts %d checkpoints and has %d", id, r.execution.Checkpoints, saved)
		}
	}
	checkGates(&f, k)
	checkDeliveries(&f, k)
	checkHistories(&f, k)
	for id, x := range k.workers {
		if x.State.Ended() != (x.EndedAt != 0) || x.State == 0 || x.ExpiresAt < x.HeartbeatAt || x.ID != id {
			f.add("session", "%s is inconsistent: %+v", id, *x)
		}
		explained := x.State.Ended() || x.State == belay.WorkerCordoned || x.State == belay.WorkerUnhealthy
		why := x.Why
		if c := x.condition(); c.Mailbox != "" {
			c.Mailbox = ""
			why = c.why()
		}
		if explained != (why != "") || x.condition().Cordoned != nil && x.State != belay.WorkerCordoned {
			f.add("session", "%s is %s because of %q", id, x.State, x.Why)
		}
	}
	return errors.Join(f...)
}

// costOf adds the costs of the checkpoints, the runs and the children of an execution.
func (k *keeper) costOf(id belay.ExecutionID) (sum belay.Cost) {
	r := k.records[id]
	for _, c := range r.checkpoints {
		sum = sum.Add(c.Cost)
	}
	for _, run := range r.runs {
		sum = sum.Add(run.Cost)
	}
	for child, r := range k.records {
		if r.execution != nil && r.execution.Parent == id {
			sum = sum.Add(k.costOf(child))
		}
	}
	return sum
}

// checkRow checks one execution against the invariants of its state, and against guarantee G5 (no
// execution is stuck).
func checkRow(f *faults, k *keeper, e *Execution) {
	owned := e.State == belay.Running || e.State == belay.Scheduled
	running, terminal := e.State == belay.Running, e.State.Terminal()
	for what, ok := range map[string]bool{
		"has a worker iff it is owned":           e.Worker.IsZero() != owned,
		"has a secret iff it is owned":           (e.Secret == belay.Secret{}) != owned,
		"is named by a claim only while it runs": e.ClaimNo == 0 || running,
		"has a begin of its run iff it runs":     (e.RunAt != 0) == running,
		"is scheduled since iff it is scheduled": (e.ScheduledAt != 0) == (e.State == belay.Scheduled),
		"is being cancelled only while it runs":  e.CancelBy == 0 || running,
		"is asked to pause only while it runs":   !e.PauseRequested || running,
		"is asked to yield only while it runs":   !e.Preempting || running,
		"remembers where it paused iff it does":  (e.PausedFrom != 0) == (e.State == belay.Paused),
		"paused from pending or waiting": e.PausedFrom == 0 || e.PausedFrom == belay.Pending ||
			e.PausedFrom == belay.Waiting,
		"has an end iff it ended":                   (e.FinishedAt != 0) == terminal,
		"has an error iff it failed":                (e.Class != 0) == (e.State == belay.Failed),
		"has a due time only while it has no owner": e.DueAt == 0 || !owned && !terminal,
		"has an input of a generation there was":    e.InputGen >= 1 && e.InputGen <= e.Generation,
		"has a reason only while it has no owner, or is asked to yield": e.Reason == "" || !running && !terminal ||
			terminal && e.Reason == Forgotten || running && e.Reason == yielding && e.Preempting,
		"is paused, or asked to, for a budget": e.SpentBy.IsZero() || e.State == belay.Paused || e.PauseRequested,
		"has a budget only as a root":          e.Budget == 0 || e.Parent.IsZero(),
		"is a state":                           e.State >= belay.Pending && e.State <= belay.Cancelled,
	} {
		if !ok {
			f.add("row", "%s (%s) breaks: %s: %+v", e.ID, e.State, what, *e)
		}
	}
	if want := wantCheckAt(e); e.CheckAt != want {
		f.add("CheckAt", "%s (%s) is looked at again at %d, want %d", e.ID, e.State, e.CheckAt, want)
	}
	if want := wantReady(e); e.Ready() != want {
		f.add("Ready", "%s (%s) is ready at %d, want %d", e.ID, e.State, e.Ready(), want)
	}
	checkLimbo(f, k, e)
	if e.Budget != 0 && e.Cost >= e.Budget && !terminal && e.State != belay.Paused && !e.PauseRequested &&
		e.CancelBy == 0 && e.State != belay.Pending { // a reopened execution is paused only by its next claim
		f.add("budget", "%s is %s though its cost of %s has reached its budget of %s", e.ID, e.State, e.Cost, e.Budget)
	}
	if e.SpentBy == e.ID && e.Cost < e.Budget {
		f.add("budget", "%s is paused though its cost of %s is below its budget of %s", e.ID, e.Cost, e.Budget)
	}
}

// checkLimbo checks the part of guarantee G5 that the rows show: each execution that has not ended
// has an owner with a session, or a reason and a time or event that moves it on.
func checkLimbo(f *faults, k *keeper, e *Execution) {
	switch e.State {
	case belay.Running, belay.Scheduled:
		if k.workers[e.Worker] == nil { // if the session has expired, the reaper will take the execution back
			f.add("G5", "%s is %s by %s, which does not exist", e.ID, e.State, e.Worker)
		}
		return
	case belay.Succeeded, belay.Failed, belay.Cancelled:
		return
	}
	if r := reason(e); r == nil || r.Code == "" {
		f.add("G5", "%s is %s without a reason", e.ID, e.State)
	}
	from := e.State
	if from == belay.Paused {
		from = e.PausedFrom
	}
	switch {
	case from == belay.Pending && e.DueAt == 0:
		f.add("G5", "%s is pending and never due", e.ID)
	case from == belay.Waiting && e.SignalSeq > e.SignalSeen && (e.DueAt == 0 || e.DueAt > k.now):
		f.add("G5", "%s sleeps through signal %d", e.ID, e.SignalSeq)
	case from == belay.Waiting && e.DueAt == 0 && e.Reason != "signal":
		f.add("G5", "%s waits for nothing: %q", e.ID, e.Reason)
	}
}

func wantReady(e *Execution) Time {
	switch {
	case e.External, e.Gate != "":
		return 0
	case e.State == belay.Pending, e.State == belay.Waiting:
		return e.DueAt
	}
	return 0
}

// wantCheckAt computes the earliest deadline of the execution from its policy.
func wantCheckAt(e *Execution) Time {
	var p belay.Policy
	if e.Policy != nil {
		p = *e.Policy
	}
	grace, scheduled := p.CancelGrace.D(), p.ScheduledTimeout.D()
	if grace == 0 {
		grace = belay.DefaultCancelGrace.D()
	}
	if scheduled == 0 {
		scheduled = belay.DefaultScheduled.D()
	}
	var at []Time
	if p.Timeout != 0 && e.StartedAt != 0 && !e.State.Terminal() {
		t := e.StartedAt.Add(p.Timeout.D())
		if e.State == belay.Running {
			t = t.Add(grace)
		}
		at = append(at, t)
	}
	switch {
	case e.State == belay.Running:
		if e.CancelBy != 0 {
			at = append(at, e.CancelBy)
		}
		if p.RunTimeout != 0 {
			at = append(at, e.RunAt.Add(p.RunTimeout.D()).Add(grace))
		}
		if p.IdleTimeout != 0 {
			at = append(at, e.ProgressAt.Add(p.IdleTimeout.D()))
		}
	case e.State == belay.Scheduled:
		at = append(at, e.ScheduledAt.Add(scheduled))
	case e.Gate != "": // no deadline applies while the execution waits at a gate
	case e.AdmitBy != 0:
		at = append(at, e.AdmitBy)
	case e.State == belay.Pending || e.PausedFrom == belay.Pending:
		if p.StartTimeout != 0 && e.DueAt != 0 {
			at = append(at, max(e.DueAt, e.ProgressAt).Add(p.StartTimeout.D()))
		}
	}
	if len(at) == 0 {
		return 0
	}
	return slices.Min(at)
}

// checkSums checks that the sum of a log or artifact is the number of bytes of its chunks, and is
// within the limits.
func checkSums(f *faults, r record) {
	bytes, own := make(map[SumRef]int64), make(map[SumRef]int64)
	for _, s := range r.sums {
		bytes[s.SumRef], own[s.SumRef] = 0, 0
	}
	for _, c := range r.chunks {
		ref := SumRef{c.Execution, c.Name}
		bytes[ref] += c.Size
		for _, s := range r.sums {
			if s.SumRef == ref && s.Token == c.Token {
				own[ref] += c.Size
			}
		}
	}
	for _, s := range r.sums {
		if s.Bytes != bytes[s.SumRef] || s.Own != own[s.SumRef] || s.Log && s.Bytes > belay.MaxLog ||
			s.Own > belay.MaxArtifact {
			f.add("sums", "%s of %s counts %d bytes (%d of its run) and has %d (%d)", s.Name, s.Execution, s.Bytes,
				s.Own, bytes[s.SumRef], own[s.SumRef])
		}
	}
	if len(bytes) > len(r.sums) {
		f.add("sums", "%d names have chunks, %d are counted", len(bytes), len(r.sums))
	}
}

// checkConsumed checks that at most one checkpoint consumes a signal, and that the checkpoint exists. A retry from a
// step may consume ends of children.
func checkConsumed(f *faults, r record) {
	for _, s := range r.signals {
		discarded := slices.ContainsFunc(r.deeds, func(d *Deed) bool {
			return d.Seq == s.ConsumedBy && d.Kind == "retry"
		})
		if s.ConsumedBy == 0 || discarded && !s.Child.IsZero() {
			continue
		}
		if !slices.ContainsFunc(r.checkpoints, func(c *Checkpoint) bool { return c.Seq == s.ConsumedBy }) {
			f.add("signals", "signal %d of %s was taken by checkpoint %d, which does not exist", s.Seq, s.Execution,
				s.ConsumedBy)
		}
	}
}

package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Explain says why an execution is in its state, from the rows on which the rules decide.
func (r *Reader) Explain(ctx context.Context, id belay.ExecutionID) (belay.Explanation, error) {
	rec, err := r.store.Read(ctx, store.Read{Execution: id, Spec: true, Run: true})
	if err != nil {
		return belay.Explanation{}, err
	}
	q := store.WorkerQuery{Living: true, Owned: true, Limit: maxExplained}
	if rec.Execution.State == belay.Running {
		q = store.WorkerQuery{IDs: []belay.WorkerID{rec.Execution.Worker}}
	}
	workers, err := r.store.Workers(ctx, q)
	if err != nil {
		return belay.Explanation{}, err
	}
	x := &explainer{now: r.store.Now(), rec: rec, view: machine.View(rec), workers: workers}
	if !rec.Execution.State.Terminal() && rec.Execution.Open > 0 {
		q := store.List{Parent: id, Children: true, States: belay.ActiveStates(), Limit: maxChildren, Scan: scan}
		list, err := r.store.List(ctx, q)
		if err != nil {
			return belay.Explanation{}, err
		}
		x.children = list.Records
	}
	if rec.Execution.State == belay.Waiting && rec.Execution.SignalSeq > 0 {
		history, err := r.store.Read(ctx, store.Read{Execution: id, History: true, Limit: 1000})
		if err != nil {
			return belay.Explanation{}, err
		}
		x.signals = history.Signals
	}
	if e := rec.Execution; e.Gate != "" || e.Ready() != 0 && e.Ready() <= x.now {
		if x.gate, err = r.gateOf(ctx, e); err != nil {
			return belay.Explanation{}, err
		}
	}
	x.explain()
	return x.out, nil
}

// maxChildren is the maximum number of children that Explain names if an execution waits for
// children.
const maxChildren = 5

// maxExplained is the maximum number of open sessions that Explain searches for workers that could
// claim an execution.
const maxExplained = 10_000

type explainer struct {
	now     machine.Time
	rec     *machine.Record
	view    belay.Execution
	workers []store.WorkerRow
	// children are the newest children that have not ended. signals are the signals in the history
	// of a waiting execution.
	children []*machine.Record
	signals  []*machine.Signal
	gate     *belay.GateDetail // the gate because of which no worker can claim the execution, nil if there is none
	out      belay.Explanation
}

func (x *explainer) fact(format string, args ...any) {
	x.out.Facts = append(x.out.Facts, fmt.Sprintf(format, args...))
}

func (x *explainer) explain() {
	e := x.rec.Execution
	x.out.Execution, x.out.State = e.ID, e.State
	if r := x.view.Reason; r != nil {
		x.out.NextCheck = r.Until
	} else {
		x.out.NextCheck = e.CheckAt.Time()
	}
	switch {
	case e.State.Terminal():
		x.ended(e)
	case e.State == belay.Running:
		x.running(e)
	case e.External && e.Gate == "" && e.State != belay.Paused:
		x.external(e)
	case x.gate != nil:
		x.gated(x.gate)
	case e.State == belay.Pending && e.Ready() != 0 && e.Ready() <= x.now:
		x.queued(e)
	default:
		x.resting(e)
	}
	if e.Attempts > 0 {
		p := machine.Defaults(policyOf(e))
		x.fact("%d of %d attempts have been used", e.Attempts, p.MaxAttempts)
	}
	if e.Losses > 0 {
		x.fact("owners lost in a row without a new checkpoint: %d", e.Losses)
		if e.Suspect() && !e.State.Terminal() {
			x.fact("the execution may have caused these losses, so it runs alone: a worker that runs nothing else "+
				"claims it, or after %s any worker; that worker then claims nothing else for %s",
				machine.AloneWait, belay.AloneFor)
		}
	}
	if e.Open > 0 {
		x.fact("children that have not ended: %d", e.Open)
		for _, c := range x.children {
			x.fact("its child %s, workflow %s, is %s", c.Execution.ID, c.Execution.Workflow, c.Execution.State)
		}
	}
	if e.Checkpoints > 0 && !e.State.Terminal() {
		x.fact("checkpoints saved: %d; the next run continues after them", e.Checkpoints)
	}
}

func (x *explainer) ended(e *machine.Execution) {
	x.out.Summary = fmt.Sprintf("It has %s, %s ago.", e.State, ago(x.now, e.FinishedAt))
	if e.State == belay.Cancelled {
		x.out.Summary = fmt.Sprintf("It was cancelled, %s ago.", ago(x.now, e.FinishedAt))
	}
	if e.Class != 0 {
		x.fact("the error is %s: %s", e.Class, e.Message)
		if e.FailedBy != 0 {
			x.fact("it was ended by the %s of Belay, not by its owner", e.FailedBy)
		}
		if e.State == belay.Failed {
			x.fact("`belay retry %s` runs it again; finished steps keep their results", e.ID)
		}
	}
}

func (x *explainer) running(e *machine.Execution) {
	x.out.Summary = fmt.Sprintf("It has run for %s, with token %d.", ago(x.now, e.RunAt), e.Token)
	for _, w := range x.workers {
		if w.ID != e.Worker {
			continue
		}
		switch {
		case w.State.Ended():
			x.fact("its owner %s (%s) has ended: %s; the engine is taking the execution back", w.Spec.Name, w.ID,
				w.Why)
		case w.ExpiresAt <= x.now:
			x.fact("its owner %s (%s) has missed its heartbeats; the engine is declaring the owner lost", w.Spec.Name,
				w.ID)
		case w.Spec.External:
			x.fact("its owner is a program that locked it, %s (%s), whose last heartbeat was %s ago; without another "+
				"heartbeat the owner is declared lost in %s, and the execution %s",
				w.Spec.Name, w.ID, ago(x.now, w.HeartbeatAt), ago(w.ExpiresAt, x.now), ifLost(e))
		default:
			x.fact("its owner is %s (%s, process %d on %s), whose last heartbeat was %s ago; without another "+
				"heartbeat the owner is declared lost in %s",
				w.Spec.Name, w.ID, w.Spec.Process.PID, w.Spec.Process.Host, ago(x.now, w.HeartbeatAt),
				ago(w.ExpiresAt, x.now))
		}
	}
	x.fact("it last made progress %s ago", ago(x.now, e.ProgressAt))
	if e.CancelBy != 0 {
		x.fact("it was cancelled and must end within %s", ago(e.CancelBy, x.now))
	}
	if e.PauseRequested {
		x.fact("a pause was requested; it pauses at its next step")
	}
}

// ifLost describes the consequence if the external owner of an execution is lost.
func ifLost(e *machine.Execution) string {
	if policyOf(e).OnLost == belay.Requeue {
		return "waits for the next lock"
	}
	return "fails"
}

// external explains an external execution, which only an external owner can lock, and says when it
// may be locked.
func (x *explainer) external(e *machine.Execution) {
	x.out.Summary = "It waits for an owner from outside: a program that locks it becomes its owner; no worker runs it."
	if e.ReasonText != "" {
		x.fact("%s", e.ReasonText)
	}
	if e.State == belay.Pending && e.DueAt > x.now {
		x.fact("it may be locked in %s", ago(e.DueAt, x.now))
	} else {
		x.fact("it may be locked now")
	}
	if e.CheckAt != 0 {
		x.fact("the engine checks its timeouts in %s", ago(e.CheckAt, x.now))
	}
}

// queued says why no worker has taken a due execution.
func (x *explainer) queued(e *machine.Execution) {
	x.out.Summary = fmt.Sprintf("It has been due for %s and waits for a worker.", ago(x.now, e.DueAt))
	lane := x.lane(e)
	living, able, free := 0, 0, 0
	for _, w := range x.workers {
		if w.State.Ended() || w.ExpiresAt <= x.now {
			continue
		}
		living++
		if !lane.Takes(w.Spec) {
			continue
		}
		able++
		if w.State == belay.WorkerOpen && w.Running < w.Spec.Capacity {
			free++
		}
	}
	if len(x.workers) == maxExplained {
		x.fact("more workers are connected than were searched: only the newest %d were", maxExplained)
	}
	if e.NeedsWorker() {
		x.fact("it fails with %q as soon as no connected worker can take it, since its policy says on_no_worker: fail",
			machine.NoWorkers)
	}
	switch {
	case living == 0:
		x.fact("no worker is connected")
	case able == 0:
		x.fact("none of the %d connected workers takes workflow %q%s from queue %q%s", living, e.Workflow, version(e),
			e.Queue, labels(lane))
	case free == 0:
		x.fact("all %d workers that could run it have no free slot, are draining or are cordoned", able)
	default:
		x.fact("%d of the %d workers that can run it have a free slot: it starts within moments", free, able)
	}
}

func (x *explainer) lane(e *machine.Execution) machine.Lane {
	return machine.NewLane(e.Queue, e.Workflow, e.Version, x.view.Priority, x.view.WorkerLabels)
}

func (x *explainer) resting(e *machine.Execution) {
	r := x.view.Reason
	x.out.Summary = fmt.Sprintf("It is %s: %s.", e.State, r.Code)
	if e.State == belay.Paused {
		x.out.Summary = fmt.Sprintf("It is paused; before that it was %s.", e.PausedFrom)
	}
	if r.Text != "" {
		x.fact("%s", r.Text)
	}
	x.unread()
	if r.Code == "gate" {
		x.fact("it goes on when its gate opens")
	}
	if !r.Until.IsZero() {
		x.fact("the engine checks it again in %s", ago(machine.At(r.Until), x.now))
	} else if r.Code != "gate" {
		x.fact("it continues only after a signal, the end of a child, or a command of an operator")
	}
}

// unread names the signals that the execution has received but does not wait for, because the
// sender may have mistyped the name.
func (x *explainer) unread() {
	count := make(map[string]int)
	var names []string
	for _, s := range x.signals {
		if s.Child.IsZero() && s.ConsumedBy == 0 {
			if count[s.Name]++; count[s.Name] == 1 {
				names = append(names, s.Name)
			}
		}
	}
	for _, name := range names[:min(len(names), maxChildren)] {
		x.fact("signal %q (received: %d) was not consumed: the execution does not wait for a signal of that name",
			name, count[name])
	}
}

func version(e *machine.Execution) string {
	if e.Version == "" {
		return ""
	}
	return fmt.Sprintf(" version %q", e.Version)
}

func labels(l machine.Lane) string {
	if len(l.Labels) == 0 {
		return ""
	}
	return fmt.Sprintf(" with labels %v", l.Labels)
}

func policyOf(e *machine.Execution) belay.Policy {
	if e.Policy == nil {
		return belay.Policy{}
	}
	return *e.Policy
}

// ago is the rounded time from then to now.
func ago(now, then machine.Time) time.Duration {
	d := max(0, now.Sub(then))
	switch {
	case d > time.Minute:
		return d.Round(time.Second)
	case d > time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

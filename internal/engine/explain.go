package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Explain says why an execution is in its state. It reads the same rows from which the rules of
// package machine decide what happens to the execution.
func (r *Reader) Explain(ctx context.Context, id belay.ExecutionID) (belay.Explanation, error) {
	rec, err := r.store.Read(ctx, store.Read{Execution: id, Spec: true, Run: true})
	if err != nil {
		return belay.Explanation{}, err
	}
	x := &explainer{now: r.store.Now(), rec: rec, view: machine.View(rec)}
	for _, read := range []func(context.Context, *explainer) error{
		r.readWorkers, r.readChildren, r.readHistory, r.readGates,
	} {
		if err := read(ctx, x); err != nil {
			return belay.Explanation{}, err
		}
	}
	x.explain()
	return x.out, nil
}

// maxChildren is the maximum number of rows of one kind, such as children or workers, that Explain
// names.
const maxChildren = 5

// maxExplained is the maximum number of open sessions that Explain searches for workers that could
// claim an execution. maxFormer is the maximum number of sessions that it searches for a worker that
// has ended.
const (
	maxExplained = 10_000
	maxFormer    = 1000
)

// maxRecent is the maximum number of the newest events of an execution in which Explain looks for
// the action of an operator.
const maxRecent = 1000

type explainer struct {
	now     machine.Time
	rec     *machine.Record
	view    belay.Execution
	workers []store.WorkerRow
	// former is the newest ended session of a worker that could have claimed the execution. It is
	// nil if there is no such session, or if a connected worker can claim the execution.
	former *store.WorkerRow
	// children are the newest children that have not ended. signals are the signals in the history
	// of a waiting execution. deeds are the newest actions of operators, the newest last.
	children []*machine.Record
	signals  []*machine.Signal
	deeds    []*machine.Deed
	// gates are the gates that stop claims of the execution now; the first is the gate at which the
	// execution waits, or would wait. holders are executions that have a place in the first gate.
	gates   []belay.GateDetail
	holders []*machine.Record
	out     belay.Explanation
}

// readWorkers reads the sessions of the workers that may claim the execution, or that of its owner.
func (r *Reader) readWorkers(ctx context.Context, x *explainer) (err error) {
	e := x.rec.Execution
	switch {
	case e.State.Terminal():
		return nil
	case e.State == belay.Running || e.State == belay.Scheduled:
		x.workers, err = r.store.Workers(ctx, store.WorkerQuery{IDs: []belay.WorkerID{e.Worker}, Current: true})
		if err == nil && len(x.workers) > 0 && e.State == belay.Running {
			x.view.Current, err = r.underway(ctx, e, x.workers[0].Worker)
		}
		return err
	}
	x.workers, err = r.store.Workers(ctx, store.WorkerQuery{Living: true, Owned: true, Limit: maxExplained})
	if err != nil || e.External || x.claimers().able() > 0 {
		return err
	}
	all, err := r.store.Workers(ctx, store.WorkerQuery{Limit: maxFormer})
	for i := range all {
		if all[i].State.Ended() && x.lane().Takes(all[i].Spec) {
			x.former = &all[i]
			break
		}
	}
	return err
}

func (r *Reader) readChildren(ctx context.Context, x *explainer) error {
	e := x.rec.Execution
	if e.State.Terminal() || e.Open == 0 {
		return nil
	}
	list, err := r.store.List(ctx, store.List{
		Parent: e.ID, Children: true, States: belay.ActiveStates(), Limit: maxChildren, Scan: scan,
	})
	x.children = list.Records
	return err
}

// readHistory reads the signals of a waiting execution, and the last actions of operators on an
// execution that is, or will be, paused or cancelled.
func (r *Reader) readHistory(ctx context.Context, x *explainer) error {
	e := x.rec.Execution
	if e.State == belay.Waiting && e.SignalSeq > 0 {
		history, err := r.store.Read(ctx, store.Read{Execution: e.ID, History: true, Limit: maxRecent})
		if err != nil {
			return err
		}
		x.signals = history.Signals
	}
	if e.State == belay.Paused || e.State == belay.Cancelled || e.PauseRequested || e.CancelBy != 0 {
		history, err := r.store.Read(ctx, store.Read{
			Execution: e.ID, History: true, After: max(0, e.Seq-maxRecent), Limit: maxRecent,
		})
		if err != nil {
			return err
		}
		x.deeds = history.Deeds
	}
	return nil
}

func (x *explainer) fact(format string, args ...any) {
	x.out.Facts = append(x.out.Facts, fmt.Sprintf(format, args...))
}

// remedy adds an action to the explanation.
func (x *explainer) remedy(do belay.RemedyAction, of belay.RemedyTarget, id, title, format string, args ...any) {
	x.out.Remedies = append(x.out.Remedies, belay.Remedy{Do: do, Of: of, ID: id, Title: title,
		Text: fmt.Sprintf(format, args...)})
}

// self adds an action on the explained execution.
func (x *explainer) self(do belay.Action, title, format string, args ...any) {
	x.remedy(belay.RemedyAction(do), belay.RemedyExecution, x.rec.Execution.ID.String(), title, format, args...)
}

// look adds another execution that should be examined.
func (x *explainer) look(id belay.ExecutionID, title, text string) {
	x.remedy(belay.RemedyLook, belay.RemedyExecution, id.String(), title, "%s", text)
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
	case len(x.gates) > 0:
		x.gated()
	case e.External && e.State != belay.Paused:
		x.external(e)
	case e.Ready() != 0 && e.Ready() <= x.now:
		x.queued(e)
	default:
		x.resting(e)
	}
	x.limits(e)
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
			x.fact("its child %s, workflow %s, is %s; `belay explain %s` says why", c.Execution.ID, c.Execution.Workflow,
				c.Execution.State, c.Execution.ID)
			if x.waitsForChild() {
				x.look(c.Execution.ID, "Open the child "+c.Execution.Workflow,
					"shows why the child has not ended")
			}
		}
	}
	if e.Checkpoints > 0 && !e.State.Terminal() {
		x.fact("checkpoints saved: %d; the next run continues after them", e.Checkpoints)
	}
}

// waitsForChild reports whether the execution waits for the end of a child.
func (x *explainer) waitsForChild() bool {
	if x.rec.Execution.State != belay.Waiting || x.view.Reason == nil {
		return false
	}
	_, named := signalName(x.view.Reason.Text)
	return !named && slices.Contains([]string{"child", "signal"}, x.view.Reason.Code)
}

// limits says how many attempts the execution has used, and when a time limit ends it.
func (x *explainer) limits(e *machine.Execution) {
	p := machine.Defaults(policyOf(e))
	if e.Attempts > 0 {
		x.fact("attempts used: %d of %d", e.Attempts, p.MaxAttempts)
	}
	if e.State.Terminal() {
		return
	}
	if p.StartTimeout > 0 && e.State == belay.Pending && e.Gate == "" && e.AdmitBy == 0 {
		x.fact("it fails unless a run starts within %s: its start_timeout is %s",
			ago(e.DueSince().Add(p.StartTimeout.D()), x.now), brief(p.StartTimeout.D()))
	}
	if !x.view.Deadline.IsZero() {
		x.fact("it fails unless it ends within %s: its timeout is %s", ago(machine.At(x.view.Deadline), x.now),
			brief(p.Timeout.D()))
	}
}

func (x *explainer) ended(e *machine.Execution) {
	x.out.Summary = fmt.Sprintf("It has %s, %s ago.", e.State, ago(x.now, e.FinishedAt))
	if e.State == belay.Cancelled {
		x.out.Summary = fmt.Sprintf("It was cancelled, %s ago.", ago(x.now, e.FinishedAt))
		x.deed("cancel", "cancelled")
		x.fact("`belay retry %s` runs it again; finished steps keep their results", e.ID)
		x.self(belay.ActionRetry, "Retry", "runs it again; finished steps keep their results")
	}
	if e.Class != 0 {
		x.out.Summary = fmt.Sprintf("It has %s, %s ago: %s.", e.State, ago(x.now, e.FinishedAt), headline(e.Message))
		x.fact("the error is %s: %s", e.Class, e.Message)
		if e.FailedBy != 0 {
			x.fact("it was ended by the %s of Belay, not by its owner", e.FailedBy)
		}
		if e.State == belay.Failed {
			x.fact("`belay get %s` shows its runs with their errors", e.ID)
			x.fact("`belay retry %s` runs it again; finished steps keep their results", e.ID)
			x.again(e)
		}
	}
}

// headline is the beginning of the first line of an error, for the summary.
func headline(message string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(message), "\n")
	line = strings.TrimRight(strings.TrimSpace(line), ".")
	if most := 200; len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}

// again adds the actions that run a failed execution again, the one that suits its error first.
func (x *explainer) again(e *machine.Execution) {
	retry := func() {
		x.self(belay.ActionRetry, "Retry", "runs it again with the same input: repair the cause before")
	}
	requeue := func() {
		x.self(belay.ActionRequeue, "Run with another input",
			"runs it again from its beginning, with an input that you correct; effects of finished steps outside of "+
				"Belay may happen again")
	}
	if e.Class == belay.ClassPermanent {
		requeue()
		retry()
		return
	}
	retry()
	requeue()
}

// slowProgress is the time without progress after which an explanation offers to take a run from its owner.
const slowProgress = time.Minute

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
	for _, s := range x.view.Current {
		x.fact("%s", x.step(s))
	}
	x.fact("it last made progress %s ago", ago(x.now, e.ProgressAt))
	if x.now.Sub(e.ProgressAt) >= slowProgress && e.CancelBy == 0 {
		x.self(belay.ActionSteal, "Take it from its owner",
			"lets another worker continue it from its last checkpoint, if its owner hangs")
		x.self(belay.ActionCancel, "Cancel", "ends it")
	}
	if e.CancelBy != 0 {
		x.deed("cancel", "cancelled")
		x.fact("its run must end within %s; then Belay ends it", ago(e.CancelBy, x.now))
	}
	if e.PauseRequested {
		x.deed("pause", "paused")
		x.fact("it pauses at its next step; `belay resume %s` takes the pause back", e.ID)
		x.self(belay.ActionResume, "Resume", "takes the pause back")
	}
}

// step describes a current step.
func (x *explainer) step(s belay.StepRecord) string {
	try := ""
	if s.Attempt > 0 {
		try = fmt.Sprintf(", attempt %d,", s.Attempt)
	}
	began := ago(x.now, machine.At(s.BeganAt))
	switch {
	case s.Over && s.Error != "":
		return fmt.Sprintf("its step %s%s has failed and is about to be tried again: %s", s.Name, try, s.Error)
	case s.Kind == belay.KindWait:
		return fmt.Sprintf("it has waited in %s for %s", s.Name, began)
	}
	return fmt.Sprintf("it has been in step %s%s for %s", s.Name, try, began)
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
		x.fact("it may be locked now: `belay lock exec %s -- COMMAND` runs a command as its owner", e.ID)
	}
	if e.CheckAt != 0 {
		x.fact("the engine checks its timeouts in %s", ago(e.CheckAt, x.now))
	}
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

// brief is a duration without the units at its end that are zero: 1h for 1h0m0s.
func brief(d time.Duration) string {
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

package machine

import (
	"fmt"
	"strings"

	"github.com/belaydev/belay"
)

// Act carries out an action of an operator: cancel, pause, resume, retry, requeue, fork, steal,
// preempt, quarantine, delete or give another budget.
type Act struct{ belay.Control }

// Need asks the store for the execution, the operation, and the rows that a reopening or a fork
// reads.
func (c *Act) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	n.Specs = append(n.Specs, c.Execution)
	if c.reopens() || c.Action == belay.ActionDelete {
		n.Letters = append(n.Letters, LetterRef{Execution: c.Execution})
	}
	if !c.Op.IsZero() {
		n.Ops = append(n.Ops, OpRef{c.Execution, c.Op})
	}
	if c.Action == belay.ActionSteal || c.Action == belay.ActionQuarantine {
		n.Owners = append(n.Owners, c.Execution)
	}
	if c.Action == belay.ActionFork {
		n.Executions = append(n.Executions, c.Fork)
		n.Specs = append(n.Specs, c.Fork)
	}
	if c.Action == belay.ActionFork || c.From != "" {
		n.Checkpoints = append(n.Checkpoints, c.Execution)
	}
	if c.From != "" {
		n.Mailboxes = append(n.Mailboxes, c.Execution)
	}
}

func (c *Act) reopens() bool { return c.Action == belay.ActionRetry || c.Action == belay.ActionRequeue }

// apply carries an operator's action out, and records it in the audit. The action advances the seq of its execution, so
// that the entries of one execution have different versions.
func (c *Act) apply(w *world) (Reply, error) {
	e, was := w.execs[c.Execution], int64(0)
	if e != nil {
		was = e.Seq
	}
	r, err := c.act(w)
	if err == nil && e.Seq != was {
		reason := c.why()
		if c.Action == belay.ActionFork {
			reason = strings.TrimSuffix("the fork is "+c.Fork.String()+"; "+reason, "; ")
		}
		w.out.Audit = append(w.out.Audit, &Audit{
			At: w.Now, Actor: c.Actor, ObjectRef: ObjectRef{ExecutionObject, e.ID.String()}, Version: e.Seq,
			Action: string(c.Action), Reason: reason, Op: c.Op,
		})
	}
	return r, err
}

// act carries an action out. The system's own actions, which the history has, are in no audit.
func (c *Act) act(w *world) (Reply, error) {
	op := string(c.Action)
	e, err := w.execution(op, c.Execution)
	if err != nil {
		return Reply{}, err
	}
	if seq, ok, err := w.repetition(op, e.ID, c.Op, c.sum()); err != nil {
		return Reply{}, err
	} else if ok {
		return c.again(w, e, seq)
	}
	if err := c.check(op); err != nil {
		return Reply{}, err
	}
	was := *e
	switch c.Action {
	case belay.ActionCancel:
		err = c.cancel(w, e)
	case belay.ActionPause:
		err = c.pause(w, e)
	case belay.ActionResume:
		err = c.resume(w, e)
	case belay.ActionRetry, belay.ActionRequeue:
		err = c.reopen(w, e)
	case belay.ActionFork:
		return c.fork(w, e)
	case belay.ActionSteal:
		err = c.steal(w, e)
	case belay.ActionPreempt:
		err = c.preempt(w, e)
	case belay.ActionQuarantine:
		err = c.quarantine(w, e)
	case belay.ActionDelete:
		err = c.delete(w, e)
	case belay.ActionBudget:
		err = c.setBudget(w, e)
	default:
		err = refuse(belay.CodeInvalid, "control", "there is no action %q", c.Action)
	}
	if err != nil {
		return Reply{}, err
	}
	seq := e.Seq
	if c.From != "" { // the action has its own seq; a row about the discarded state may have got the next seq
		seq = w.out.Deeds[len(w.out.Deeds)-1].Seq
	}
	// the action has its own seq; a row about a pause or its end may have got the next seq
	if c.Action == belay.ActionBudget {
		seq = min(seq, was.Seq+1)
	}
	return Reply{
		Seq: seq, Execution: w.copyOf(e), Spec: w.specs[e.ID], Follow: w.vacate(was, e, "taken by "+c.actor()),
	}, nil
}

// The kinds of executions and dead letters in the audit. They are no objects: only their audit uses these kinds.
const (
	ExecutionObject ObjectKind = "execution"
	LetterObject    ObjectKind = "dead_letter" // named by the execution, a point, and the generation that failed
)

// sum returns a hash of the whole action except its actor, because a request may be repeated with
// another API key. The sum is zero if the action has no operation id.
func (c *Act) sum() OpSum {
	if c.Op.IsZero() {
		return OpSum{}
	}
	s := contentOf(string(c.Action)).text(c.Reason).duration(c.Grace.D()).int(c.UpTo).bytes(c.Fork[:])
	if c.Budget != nil {
		s = s.text("budget").cost(c.Budget.Cost)
	}
	if c.From+c.At != "" {
		s = s.text("step").text(c.From).text(c.At)
	}
	if c.KeepResults {
		s = s.text("keep results")
	}
	if len(c.InputPatch) > 0 {
		return s.text("patch").json(c.InputPatch).sum()
	}
	return s.json(c.Input).sum()
}

// again answers an action that was carried out before.
func (c *Act) again(w *world, e *Execution, seq int64) (Reply, error) {
	r := Reply{Seq: seq, Replayed: true, Execution: w.copyOf(e), Spec: w.specs[e.ID]}
	if c.Action != belay.ActionFork {
		return r, nil
	}
	f := w.execs[c.Fork]
	if f == nil {
		return Reply{}, refuse(belay.CodeConflict, "fork", "operation %s made another fork than %s", c.Op, c.Fork)
	}
	r.ID, r.Execution, r.Spec = f.ID, w.copyOf(f), w.specs[f.ID]
	return r, nil
}

func (c *Act) check(op string) error {
	if err := checkName(op, "the actor", c.Actor, false); err != nil {
		return err
	}
	if err := checkName(op, "the reason", c.Reason, false); err != nil {
		return err
	}
	if c.Grace < 0 || c.UpTo < 0 || c.Generation < 0 {
		return refuse(belay.CodeInvalid, op, "the grace, up_to and the generation must not be negative")
	}
	if (c.Budget != nil) != (c.Action == belay.ActionBudget) {
		return refuse(belay.CodeInvalid, op, "the action budget needs a budget, and no other action takes one")
	}
	if err := checkBudget(op, c.Budget); err != nil {
		return err
	}
	if c.From != "" && c.Action != belay.ActionRetry {
		return refuse(belay.CodeInvalid, op, "from is for a retry that keeps its input")
	}
	if c.At != "" && (c.Action != belay.ActionFork || c.UpTo != 0) {
		return refuse(belay.CodeInvalid, op, "at is for a fork without up_to")
	}
	if err := checkName(op, "the step", c.From+c.At, false); err != nil {
		return err
	}
	if len(c.InputPatch) > 0 && (len(c.Input) > 0 || c.Action != belay.ActionRequeue) {
		return refuse(belay.CodeInvalid, op, "an input_patch is for requeue, without an input")
	}
	if c.KeepResults && (c.Action != belay.ActionRequeue || len(c.Input)+len(c.InputPatch) == 0) {
		return refuse(belay.CodeInvalid, op, "keep_results is for a requeue with another input")
	}
	if err := CheckPayload(op, "the input_patch", c.InputPatch, belay.MaxPayload); err != nil {
		return err
	}
	return CheckPayload(op, "the input", c.Input, belay.MaxPayload)
}

// record raises the seq and writes the action with this seq.
func (c *Act) record(w *world, e *Execution) {
	w.advance(e)
	w.deed(e, string(c.Action), c.Actor, c.why(), c.Op, c.sum())
}

// why is the reason that the history records, with the step or the budget that the action names.
func (c *Act) why() string {
	step := strings.TrimPrefix(c.step(), " ")
	if step == "" || c.Reason == "" {
		return step + c.Reason
	}
	return step + ": " + c.Reason
}

// step says which step a retry or a fork names, that a requeue keeps results, or the new budget, after a space; it
// is empty if none of this applies.
func (c *Act) step() string {
	switch {
	case c.From != "":
		return fmt.Sprintf(" from %q on", c.From)
	case c.At != "":
		return fmt.Sprintf(" before %q", c.At)
	case c.KeepResults:
		return " with another input and the present results"
	case c.Budget != nil:
		return " to " + c.Budget.Cost.String()
	}
	return ""
}

// ending describes the end of a run by this action.
func (c *Act) ending(outcome belay.Outcome) ended {
	return ended{outcome: outcome, deed: string(c.Action), actor: c.Actor, reason: c.Reason, op: c.Op, sum: c.sum()}
}

// cancel ends an execution at once if it is not running. A running execution gets its grace period.
func (c *Act) cancel(w *world, e *Execution) error {
	switch {
	case e.State == belay.Cancelled:
		return nil
	case e.State.Terminal():
		return w.illegal("cancel", e, "it has ended already")
	case e.State != belay.Running:
		w.finish(e, belay.Cancelled, c.ending(belay.OutcomeCancelled))
		return nil
	}
	grace := c.Grace
	setDefault(&grace, e.policy().CancelGrace)
	by := w.Now.Add(grace.D())
	if e.CancelBy != 0 && e.CancelBy <= by {
		return nil
	}
	c.record(w, e)
	e.CancelBy, e.Attention = by, true
	return nil
}

func (c *Act) pause(w *world, e *Execution) error {
	switch {
	case (e.State == belay.Paused || e.PauseRequested) && e.SpentBy.IsZero():
		return nil
	case e.State == belay.Paused || e.PauseRequested: // a raise of the budget does not end the operator's pause
		c.record(w, e)
		e.SpentBy = belay.ExecutionID{}
		return nil
	case e.State.Terminal():
		return w.illegal("pause", e, "it has ended already")
	case e.CancelBy != 0:
		return w.illegal("pause", e, "it is being cancelled")
	case e.State == belay.Running:
		c.record(w, e)
		e.PauseRequested, e.Attention = true, true
		return nil
	case e.State == belay.Scheduled:
		e.PauseRequested = true
		w.handBack(e, c.ending(belay.OutcomeReleased), "released", "taken back from its worker by a pause")
		return nil
	}
	c.record(w, e)
	w.withdraw(e)
	e.PausedFrom, e.State = e.State, belay.Paused
	return nil
}

func (c *Act) resume(w *world, e *Execution) error {
	if e.State == belay.Paused || e.PauseRequested {
		if err := w.refuseSpent("resume", e); err != nil {
			return err
		}
		e.SpentBy = belay.ExecutionID{}
	}
	switch {
	case e.PauseRequested:
		c.record(w, e)
		e.PauseRequested, e.Attention = false, true
		return nil
	case e.State == belay.Paused:
		c.record(w, e)
		e.State, e.PausedFrom = e.PausedFrom, 0
		w.markDue(e)
		return nil
	case e.State.Terminal():
		return w.illegal("resume", e, "it has ended; retry it to run it again")
	}
	return nil // the execution is not paused
}

// reopen raises the generation of an execution that has ended. Without a new input the results of
// finished steps stay valid, except those from the step From on; a new input makes them invalid unless the action
// keeps them.
func (c *Act) reopen(w *world, e *Execution) error {
	op := string(c.Action)
	if e.State != belay.Failed && e.State != belay.Cancelled {
		return w.illegal(op, e, "only a failed or cancelled execution can run again; fork it to run a copy")
	}
	if !e.Parent.IsZero() {
		return w.illegal(op, e, "it is a child; "+op+" its root")
	}
	if e.isSwap() {
		return w.illegal(op, e, "it changes the mode of the resource "+e.Gates.Swap+
			", which starts the next swap itself")
	}
	if e.forgotten() {
		return w.illegal(op, e, e.ReasonText)
	}
	if len(c.Input)+len(c.InputPatch) > 0 && e.Workflow == belay.PublishWorkflow {
		return refuse(belay.CodeForbidden, op, "%s", publishInput)
	}
	if len(c.Input) > 0 && c.Action == belay.ActionRetry {
		return refuse(belay.CodeInvalid, op, "a retry keeps its input; use requeue to give another")
	}
	if c.Generation != 0 && c.Generation != e.Generation {
		return w.illegal(op, e, fmt.Sprintf("generation %d was reopened before, and the present one is %d",
			c.Generation, e.Generation))
	}
	d := w.letters[LetterRef{e.ID, e.Generation}]
	if d != nil && d.Resolution != "" && c.Generation != 0 {
		return d.resolved(op)
	}
	input, err := c.input(w, op, e)
	if err != nil {
		return err
	}
	saved, first, err := c.discarded(w, op, e)
	if err != nil {
		return err
	}
	c.record(w, e)
	e.Generation++
	e.State, e.DueAt = belay.Pending, w.Now
	e.Reason, e.ReasonText = "reopened", "run again by "+c.actor()+c.step()
	e.Attempts = 0
	e.setLosses(0)
	e.StartedAt, e.FinishedAt, e.ProgressAt = 0, 0, 0
	e.Class, e.Message, e.FailedBy = 0, "", 0
	if len(input) > 0 {
		newInput(w, e, input)
		if !c.KeepResults {
			forget(e)
		}
	}
	if c.From != "" {
		w.discard(e, saved, first, c.From)
	}
	if d != nil && d.Resolution == "" {
		c.resolve(w, d, len(input) > 0)
	}
	w.join(e)
	w.markDue(e)
	return nil
}

// resolve resolves the dead letter of the generation that the action ends.
func (c *Act) resolve(w *world, d *DeadLetter, requeued bool) {
	resolution := belay.ResolvedRetried
	if requeued {
		resolution = belay.ResolvedRequeued
	}
	if c.Reason != "" && len(d.Notes) < belay.MaxNotes {
		d.Notes = append(d.Notes, LetterNote{At: w.Now, By: c.Actor, Text: c.Reason})
	}
	w.resolve(d, resolution, c.actor())
}

// input returns the new input of a reopened execution, empty if it keeps its input.
func (c *Act) input(w *world, op string, e *Execution) ([]byte, error) {
	if len(c.InputPatch) == 0 {
		return c.Input, nil
	}
	s := w.specs[e.ID]
	if s == nil {
		return nil, refuse(belay.CodeInternal, op, "the input of %s was not read", e.ID)
	}
	input, err := MergePatch(s.Input, c.InputPatch)
	if err != nil {
		return nil, refuse(belay.CodeInvalid, op, "the input_patch cannot be applied: %s", err)
	}
	return input, CheckPayload(op, "the patched input", input, belay.MaxPayload)
}

// forget makes all checkpoints and signals of an execution invalid.
func forget(e *Execution) {
	e.BaseSeq, e.StateSeq, e.Checkpoints = e.Seq, 0, 0
	e.SignalSeq, e.SignalSeen, e.Signals, e.SignalBytes = 0, 0, 0, 0
}

func newInput(w *world, e *Execution, input []byte) {
	e.InputGen = e.Generation
	next := Spec{Execution: e.ID, Generation: e.Generation, Input: input}
	if s := w.specs[e.ID]; s != nil {
		next = *s
		next.Generation, next.Input, next.Large = e.Generation, input, false
	}
	w.specs[e.ID] = &next
	w.out.Specs = append(w.out.Specs, &next)
}

func (c *Act) actor() string { return actorOf(c.Actor) }

// quarantine makes an execution fail at once; its dead letter waits until a person resolves it. The
// owner of a running execution learns from the refusal of its next write that it has lost the
// lease.
func (c *Act) quarantine(w *world, e *Execution) error {
	switch {
	case e.State == belay.Failed:
		return w.illegal("quarantine", e, "it has failed already")
	case e.State.Terminal():
		return w.illegal("quarantine", e, "it has ended")
	case e.CancelBy != 0:
		return w.illegal("quarantine", e, "it is being cancelled")
	case !e.Parent.IsZero():
		return w.illegal("quarantine", e, "it is a child; quarantine its root")
	}
	how := c.ending(belay.OutcomeFailed)
	how.failure = belay.Failure{Class: belay.ClassPermanent, Message: "quarantined by " + c.actor()}
	if c.Reason != "" {
		how.failure.Message += ": " + c.Reason
	}
	how.letter = "manual"
	w.finish(e, belay.Failed, how)
	return nil
}

// steal takes an execution from its owner. The next claim gets a newer token, so that the writes
// of the old owner are refused.
func (c *Act) steal(w *world, e *Execution) error {
	if e.State != belay.Running && e.State != belay.Scheduled {
		return w.illegal("steal", e, "it has no owner")
	}
	w.handBack(e, c.ending(belay.OutcomeReleased), "released", "taken from its owner by "+c.actor())
	return nil
}

func (c *Act) preempt(w *world, e *Execution) error {
	if e.State != belay.Running {
		return w.illegal("preempt", e, "only a running execution can be preempted")
	}
	if e.Preempting {
		return nil
	}
	c.record(w, e)
	e.Preempting, e.Attention = true, true
	return nil
}

// Parting is the reason for which the execution must cancel its open children, encoded as one
// number: its end, its cancellation or its reopening. Parting is 0 if there is no such reason, or
// if [Part] has noted that no child is left to cancel; children that their policy exempts from this
// cancel may still be open.
func (e *Execution) Parting() int64 {
	cause := int64(e.Generation) << 2
	if e.CancelBy != 0 {
		cause |= 2
	}
	if e.State.Terminal() {
		cause |= 1
	}
	if e.Open == 0 || cause == 1<<2 || cause == e.Parted {
		return 0
	}
	return cause
}

// Part notes that the execution has no child left to cancel for its present [Execution.Parting].
type Part struct {
	Execution belay.ExecutionID
	Parting   int64
}

// Need asks the store for the execution.
func (c *Part) Need(n *Need) { n.Executions = append(n.Executions, c.Execution) }

func (c *Part) apply(w *world) (Reply, error) {
	const op = "part"
	e, err := w.execution(op, c.Execution)
	if err != nil {
		return Reply{}, err
	}
	if c.Parting == 0 || e.Parting() != c.Parting {
		return Reply{}, w.illegal(op, e, "there is no such reason to cancel its children")
	}
	e.Parted = c.Parting
	w.changed(e)
	return Reply{Seq: e.Seq}, nil
}

// CancelChild cancels a child whose parent has ended, is being cancelled, or was reopened after it
// started the child. The engine sends CancelChild after the commit that changed the parent. If a
// crash prevents this, a sweep finds in the rows of parent and child that the command is needed.
type CancelChild struct{ Execution belay.ExecutionID }

// Need asks the store for the execution; the store loads its parent too.
func (c *CancelChild) Need(n *Need) { n.Executions = append(n.Executions, c.Execution) }

func (c *CancelChild) apply(w *world) (Reply, error) {
	const op = "cancel child"
	e, err := w.execution(op, c.Execution)
	if err != nil {
		return Reply{}, err
	}
	p := w.execs[e.Parent]
	switch {
	case p == nil || e.policy().Abandon:
		return Reply{}, w.illegal(op, e, "it does not depend on a parent")
	case e.State.Terminal() || e.CancelBy != 0:
		return Reply{Replayed: true}, nil
	case !p.State.Terminal() && p.CancelBy == 0 && e.ParentGen == p.Generation:
		return Reply{}, w.illegal(op, e, "its parent goes on")
	}
	by := &Act{
		belay.Control{Action: belay.ActionCancel, Actor: System, Reason: "its parent was cancelled or has ended"},
	}
	return Reply{}, by.cancel(w, e)
}

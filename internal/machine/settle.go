package machine

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// Settle ends a run on behalf of its owner.
type Settle struct {
	belay.Settlement
	// Jitter is a random number in [0, 1), for the backoff.
	Jitter float64
	judged *judged // the result of Judge; nil before Judge is called
}

// Judge checks the output and computes the operation's sum.
func (c *Settle) Judge() {
	if c.judged != nil {
		return
	}
	c.judged = &judged{err: CheckPayload(c.op(), "the output", c.Output, belay.MaxPayload)}
	if c.judged.err == nil && !c.Op.IsZero() {
		c.judged.sum = c.sum()
	}
}

// sum returns a checksum of the settlement's content and the run that it ends. The lease's secret
// identifies the run, because the token may be missing.
func (c *Settle) sum() OpSum {
	s := contentOf("settle").bytes(c.Lease.Secret[:]).text(c.Outcome.String()).duration(c.RetryAfter)
	s = s.duration(c.Wait).text(c.WaitText).int(c.SignalSeen).cost(c.CostTokens)
	if f := c.Failure; f != nil {
		s = s.text(f.Class.String()).text(f.Message).text(f.Stack)
		if f.Target != "" {
			s = s.text(f.Target)
		}
	}
	return s.json(c.Output).sum()
}

func (c *Settle) op() string { return "settle as " + c.Outcome.String() }

// Need asks the store for the execution and the session, and the run if the command may be a
// repetition.
func (c *Settle) Need(n *Need) {
	needLease(n, c.Lease)
	if c.Outcome == belay.OutcomeFailed || c.Outcome == belay.OutcomeTimedOut {
		n.Reporting = append(n.Reporting, c.Lease.Execution)
	}
	if f := c.Failure; f != nil && f.Target != "" {
		n.Counts = append(n.Counts, belay.Gate(belay.GateTarget, f.Target))
		n.Specs = append(n.Specs, c.Lease.Execution) // the spec has the execution's priority in the line of the target
	}
	if c.Repeat {
		n.Runs = append(n.Runs, c.Lease.Run())
		if !c.Op.IsZero() {
			n.Ops = append(n.Ops, OpRef{c.Lease.Execution, c.Op})
		}
	}
}

func (c *Settle) apply(w *world) (Reply, error) {
	op := c.op()
	c.Judge()
	if seq, ok, err := c.repetition(w, op); ok {
		return Reply{Seq: seq, Replayed: err == nil}, err
	}
	e, err := w.owner(op, c.Lease)
	if err != nil {
		return Reply{}, err
	}
	if err := c.check(op, e); err != nil {
		return Reply{}, err
	}
	w.charge(e, c.CostTokens)
	r := w.run(e)
	r.Op, r.OpSum, r.Output, r.Cost = c.Op, c.judged.sum, c.Output, c.CostTokens
	r.Steps = w.stepsText(e, c.Steps)
	f := c.failure()
	x := w.workers[c.Lease.Worker]
	outside := x.Spec.External
	report := reportOf(e, c.Outcome, f.Class)
	switch c.Outcome {
	case belay.OutcomeSucceeded:
		w.finish(e, belay.Succeeded, ended{outcome: c.Outcome})
	case belay.OutcomeFailed, belay.OutcomeTimedOut:
		if f.Class == belay.ClassCircuitOpen { // the target's circuit breaker is open, so no attempt is counted
			w.handBack(e, ended{outcome: belay.OutcomeReleased, failure: f}, "circuit_open", clip(f.Message, 300))
			w.awaitTarget(e, f.Target, c.RetryAfter)
			break
		}
		w.attemptFailed(e, ended{outcome: c.Outcome, failure: f}, c.RetryAfter, c.Jitter)
	case belay.OutcomeSuspended:
		s := c.Settlement
		if outside {
			setDefault(&s.WaitText, "suspended by "+x.Spec.Name)
		}
		w.suspend(e, s)
	case belay.OutcomePreempted:
		w.yield(e, ended{outcome: c.Outcome})
	case belay.OutcomeReleased:
		w.handBack(e, ended{outcome: c.Outcome}, "released", "given back unfinished by its worker")
	case belay.OutcomeCancelled:
		w.finish(e, belay.Cancelled, ended{outcome: c.Outcome})
	case belay.OutcomeLost: // check refuses this outcome, because an owner that settles its run is not lost
	}
	if report != nil {
		w.report(report)
	}
	if outside {
		w.endSession(x, belay.WorkerClosed, "its run has ended: "+c.Outcome.String())
	}
	return Reply{Seq: e.Seq}, nil
}

// circuitWait is how long an execution waits after its run met an open circuit breaker, if the
// failure does not name the breaker's target or if the breaker lets calls through again. Otherwise
// the execution waits at the gate of the target.
const circuitWait = 5 * time.Second

// reportOf returns the report of a run's end to the circuit breaker of the target that the execution
// names, or nil if the end of the run says nothing about a target. A target is the name of an external
// service that a run calls, such as "payments:charge".
func reportOf(e *Execution, how belay.Outcome, class belay.Class) *Outcome {
	if e.Gates == nil || e.Gates.Target == "" {
		return nil
	}
	probe := e.Places&PlaceTarget != 0
	failed := (how == belay.OutcomeFailed || how == belay.OutcomeTimedOut) && blamesTarget(class)
	if !failed && !(probe && how == belay.OutcomeSucceeded) {
		return nil
	}
	return &Outcome{Target: e.Gates.Target, Failed: failed, Probe: probe}
}

// report counts the end of a run at the circuit breaker of a target in the commit that ends the
// run, so that a claim after this commit finds the breaker in its new state. If the batch has not
// read the gate, report sends the Outcome as a follow-up command.
func (w *world) report(o *Outcome) {
	if g := w.gate(o.gate()); g == nil || g.err != nil || !g.counted {
		w.follow(o)
	} else {
		o.count(w, g)
	}
}

// repetition finds the settlement if it was carried out before. A settlement that is not marked as
// a repetition still counts as a repetition if its operation id is that of the run's end.
func (c *Settle) repetition(w *world, op string) (int64, bool, error) {
	if r := w.runs[c.Lease.Run()]; c.Repeat || r != nil && r.EndedSeq != 0 && r.Op == c.Op {
		return w.repetition(op, c.Lease.Execution, c.Op, c.judged.sum)
	}
	return 0, false, nil
}

func (c *Settle) check(op string, e *Execution) error {
	switch c.Outcome {
	case belay.OutcomeSucceeded, belay.OutcomeFailed, belay.OutcomeTimedOut, belay.OutcomeSuspended,
		belay.OutcomePreempted, belay.OutcomeReleased:
	case belay.OutcomeCancelled:
		if e.CancelBy == 0 {
			return refuse(belay.CodeConflict, op, "%s was not cancelled; release it to give it back", e.ID)
		}
	default:
		return refuse(belay.CodeInvalid, op, "an owner cannot end a run as %q", c.Outcome)
	}
	if c.RetryAfter < 0 || c.Wait < 0 || c.CostTokens < 0 {
		return refuse(belay.CodeInvalid, op, "retry_after, wait and cost must not be negative")
	}
	if f := c.Failure; f != nil && f.Target != "" {
		if f.Class != belay.ClassCircuitOpen {
			return refuse(belay.CodeInvalid, op, "only a failure of the class circuit_open names a target")
		}
		if err := checkName(op, "the target", f.Target, true); err != nil {
			return err
		}
	}
	return c.judged.err
}

func (c *Settle) failure() belay.Failure {
	f := belay.Failure{Class: belay.ClassTransient}
	if c.Failure != nil {
		f = *c.Failure
	}
	if c.Outcome == belay.OutcomeTimedOut {
		f.Class = belay.ClassTimeout
	}
	if f.Class == 0 || f.Class >= belay.ClassLost { // an owner that reports its failure is not lost
		f.Class = belay.ClassTransient
	}
	f.Message, f.Stack, f.FailedBy = clip(f.Message, maxMessage), clip(f.Stack, maxStack), 0
	return f
}

// ended describes how a run ends.
type ended struct {
	outcome belay.Outcome
	failure belay.Failure
	// deed, if set, is the kind of the action that ends the run; the event in the history has
	// this kind.
	deed, actor, reason string
	op                  belay.OpID
	sum                 OpSum
	letter              string // the reason of the dead letter; empty if it follows from the failure
}

// end closes the current run, if there is one, and removes the owner. It raises the seq once, for
// the end of the run and for all other changes of the same transition.
func (w *world) end(e *Execution, how ended) {
	w.advance(e)
	owned := e.State == belay.Running || e.State == belay.Scheduled
	if owned {
		r := w.run(e)
		r.EndedSeq, r.EndedAt, r.Outcome, r.Worker = e.Seq, w.Now, how.outcome, e.Worker
		r.Class, r.Message, r.Stack = how.failure.Class, how.failure.Message, how.failure.Stack
		r.FailedBy = how.failure.FailedBy
	}
	if how.deed != "" {
		d := w.deed(e, how.deed, how.actor, how.reason, how.op, how.sum)
		if owned {
			d.Token = e.Token
		}
	}
	if owned {
		w.leave(e, runPlaces)
	}
	e.Worker, e.Secret, e.ClaimNo = belay.WorkerID{}, belay.Secret{}, 0
	e.RunAt, e.ScheduledAt, e.Preempting = 0, 0, false
}

// finish ends the execution for good, together with its run if it has one. An execution that was
// being cancelled ends as cancelled whatever the outcome of its run (guarantee G7).
func (w *world) finish(e *Execution, state belay.State, how ended) {
	if e.CancelBy != 0 {
		state = belay.Cancelled
	}
	ran := e.State == belay.Running
	if ran || e.State == belay.Scheduled {
		w.run(e).Final = true
	}
	w.end(e, how)
	e.State, e.FinishedAt = state, w.Now
	e.DueAt, e.CancelBy, e.PauseRequested, e.PausedFrom = 0, 0, false, 0
	e.SpentBy = belay.ExecutionID{}
	w.leaveAll(e)
	e.Reason, e.ReasonText, e.Class, e.Message, e.FailedBy = "", "", 0, "", 0
	if how.deed != "" {
		w.out.Deeds[len(w.out.Deeds)-1].Final = true
	}
	if state == belay.Failed {
		e.Class, e.Message, e.FailedBy = how.failure.Class, how.failure.Message, how.failure.FailedBy
		w.writeDeadLetter(e, ran, how.letter)
	}
	if e.isSwap() {
		w.follow(&EndSwap{Gate: belay.Gate(belay.GateResource, e.Gates.Swap), Execution: e.ID})
	}
	w.tellParent(e)
	w.notify(e)
}

// tellParent delivers the end of a child to its parent in the same commit. If the child was started
// before the parent got its present input or a part of its work was discarded, its end is not
// delivered, because the parent must not use its result.
func (w *world) tellParent(e *Execution) {
	if e.Parent.IsZero() {
		return
	}
	p := w.execs[e.Parent]
	if p == nil {
		return // the parent was deleted after its retention
	}
	p.Open--
	w.changed(p)
	if p.State.Terminal() || e.ParentGen < p.InputGen {
		return
	}
	w.advance(p)
	w.deliver(p, &Signal{
		Execution: p.ID, Seq: p.Seq, Name: e.Child, Child: e.ID, At: w.Now,
		Payload: fmt.Appendf(nil, `{"execution":%q,"state":%q}`, e.ID, e.State),
	})
}

// attemptFailed counts a failed or timed-out run as an attempt, and retries the execution or lets
// it fail.
func (w *world) attemptFailed(e *Execution, how ended, atLeast time.Duration, jitter float64) {
	p := e.policy()
	e.Attempts++
	e.setLosses(0)
	if e.CancelBy != 0 || how.failure.Class == belay.ClassPermanent || e.Attempts >= p.MaxAttempts {
		w.finish(e, belay.Failed, how)
		return
	}
	wait := max(Backoff(p, e.Attempts, jitter), atLeast)
	w.handBack(e, how, "retry", fmt.Sprintf("attempt %d of %d failed: %s", e.Attempts, p.MaxAttempts,
		clip(how.failure.Message, 300)))
	e.DueAt = w.Now.Add(wait)
}

// Backoff is the wait after the n-th failure: base·2^(n-1) up to the cap, plus up to a quarter as
// jitter. The jitter only adds time, so no retry comes before its backoff is over (guarantee G8),
// and the retries of many executions come at different times.
func Backoff(p belay.Policy, n int, jitter float64) time.Duration {
	p = Defaults(p)
	d := p.BackoffBase.D()
	most := p.BackoffCap.D()
	for ; n > 1 && d <= most/2; n-- {
		d *= 2
	}
	if n > 1 || d > most {
		d = most
	}
	return d + min(time.Duration(float64(d/4)*jitter), math.MaxInt64-d)
}

// handBack ends the run and makes the execution due now, without counting an attempt.
func (w *world) handBack(e *Execution, how ended, code, text string) {
	if e.CancelBy != 0 {
		w.finish(e, belay.Cancelled, how)
		return
	}
	w.end(e, how)
	e.State, e.DueAt = belay.Pending, w.Now
	e.Reason, e.ReasonText = code, text
	w.pauseOrMarkDue(e)
}

// yield ends a run that gave way to other work, without counting an attempt. A run that gave its resource
// back returns to the head of its lane: it is due since its submission, before all others that wait
// there.
func (w *world) yield(e *Execution, how ended) {
	if !e.yields() {
		w.handBack(e, how, "preempted", "gave way to more urgent work")
		return
	}
	w.handBack(e, how, "preempted", "gave way to another mode of the resource "+e.Gates.Requires.Resource)
	if !e.State.Terminal() {
		e.DueAt, e.ProgressAt = e.CreatedAt, w.Now
	}
}

// suspend ends the run and lets the execution wait without a worker. If a signal has arrived that
// the run had not seen, the execution is due at once, so that no wake-up is lost.
func (w *world) suspend(e *Execution, s belay.Settlement) {
	if e.CancelBy != 0 {
		w.finish(e, belay.Cancelled, ended{outcome: s.Outcome})
		return
	}
	w.end(e, ended{outcome: s.Outcome})
	e.State, e.SignalSeen, e.DueAt = belay.Waiting, s.SignalSeen, 0
	e.Reason, e.ReasonText = waitCode(s), clip(s.WaitText, belay.MaxName)
	if s.Wait > 0 {
		e.DueAt = w.Now.Add(s.Wait)
	}
	if e.SignalSeq > e.SignalSeen {
		e.DueAt = w.Now
	}
	w.pauseOrMarkDue(e)
}

// waitCode is the kind of event for which a suspended execution waits, such as a timer or a signal.
// A wait for a signal or a child keeps this kind if the wait has a timeout too.
func waitCode(s belay.Settlement) string {
	switch word, _, _ := strings.Cut(s.WaitText, " "); {
	case word == "signal", word == "child":
		return word
	case s.Wait > 0:
		return "timer"
	}
	return "signal"
}

// pauseOrMarkDue sets the state of an execution that has lost its owner and will continue: it is
// paused if a pause was requested, and otherwise it is ready to be claimed again.
func (w *world) pauseOrMarkDue(e *Execution) {
	if e.PauseRequested {
		e.PauseRequested = false
		e.PausedFrom, e.State = e.State, belay.Paused
		return
	}
	w.markDue(e)
}

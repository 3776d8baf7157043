package machine

import (
	"fmt"

	"github.com/belaydev/belay"
)

// notPickedUp begins the error of an execution that no worker began in time, whichever timeout was
// over. Programs that watch for this text need not know the timeout.
const notPickedUp = "Execution timeout: worker did not pick up task within timeout"

// System is the actor of actions that Belay carries out by itself.
const System = "belay"

// Tick checks the deadlines of an execution and acts on a deadline that has passed. If the session
// of the owner has ended, Tick takes the execution back instead. Tick may be sent at any time and
// repeated.
type Tick struct {
	Execution belay.ExecutionID
	// Jitter is a random number in [0, 1), for the backoff.
	Jitter float64
}

// Need asks the store for the execution and the session that owns it.
func (c *Tick) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	n.Owners = append(n.Owners, c.Execution)
}

// times are the deadlines of an execution, one for each rule about time; 0 if the rule does not
// apply.
type times struct {
	cancel, total, run, idle, scheduled, start, admit Time
}

func (e *Execution) times() times {
	var t times
	if e.State.Terminal() {
		return t
	}
	p := e.policy()
	after := func(from Time, d belay.Duration) Time {
		if from == 0 || d == 0 {
			return 0
		}
		return from.Add(d.D())
	}
	t.total, t.admit = after(e.StartedAt, p.Timeout), e.AdmitBy
	switch {
	case e.State == belay.Running:
		// The worker itself should end the run when the run timeout or the total timeout is over.
		// If the worker does not do this, the engine ends the run after a grace period.
		t.cancel = e.CancelBy
		t.run = after(after(e.RunAt, p.RunTimeout), p.CancelGrace)
		t.total = after(t.total, p.CancelGrace)
		t.idle = after(e.ProgressAt, p.IdleTimeout)
	case e.State == belay.Scheduled:
		t.scheduled = after(e.ScheduledAt, p.ScheduledTimeout)
	case e.Gate != "" || e.AdmitBy != 0: // the wait at a gate does not count towards the start timeout
	case e.State == belay.Pending, e.PausedFrom == belay.Pending:
		t.start = after(e.DueSince(), p.StartTimeout)
	}
	return t
}

// first is the earliest of the times, 0 if no rule applies.
func (t times) first() Time {
	return first(t.cancel, t.total, t.run, t.idle, t.scheduled, t.start, t.admit)
}

// checkAt is the earliest deadline of the execution.
func checkAt(e *Execution) Time {
	if e.Policy == nil && e.CancelBy == 0 && e.State != belay.Scheduled && e.AdmitBy == 0 {
		return 0 // the default policy has no other deadlines
	}
	return e.times().first()
}

func (c *Tick) apply(w *world) (Reply, error) {
	e, err := w.execution("tick", c.Execution)
	if err != nil {
		return Reply{}, err
	}
	t, p, was := e.times(), e.policy(), *e
	timeout := func(format string, args ...any) belay.Failure {
		return belay.Failure{
			Class: belay.ClassTimeout, Message: fmt.Sprintf(format, args...), FailedBy: belay.FailedByMonitor,
		}
	}
	owner := w.holder(e)
	switch {
	case owner != nil && owner.State.Ended() && t.first().over(w.Now):
		// the loss of the owner comes first; the next Tick checks the deadlines of an execution
		// without an owner
		w.takeBack(e, owner, false, false)
	case t.cancel.over(w.Now):
		w.finish(e, belay.Cancelled, ended{
			outcome: belay.OutcomeCancelled, failure: timeout("the grace to end it was over"),
		})
	case t.total.over(w.Now):
		w.totalTimeout(e, timeout("not finished within its timeout of %s", p.Timeout.D()))
	case t.run.over(w.Now):
		w.attemptFailed(e, ended{
			outcome: belay.OutcomeTimedOut,
			failure: timeout("run timeout: the run lasted longer than %s", p.RunTimeout.D()),
		}, 0, c.Jitter)
	case t.idle.over(w.Now):
		w.attemptFailed(e, ended{
			outcome: belay.OutcomeTimedOut, failure: timeout("idle timeout: no progress for %s", p.IdleTimeout.D()),
		}, 0, c.Jitter)
	case t.admit.over(w.Now):
		w.lapse(e)
	case t.scheduled.over(w.Now):
		w.scheduleTimeout(e, p)
	case t.start.over(w.Now):
		f := timeout(notPickedUp+": no worker started it within %s", p.StartTimeout.D())
		w.finish(e, belay.Failed, ended{deed: "start_timeout", actor: System, reason: f.Message, failure: f})
	case e.CheckAt != checkAt(e):
		w.changed(e) // the end of the batch writes the row with the right CheckAt
	}
	return Reply{Seq: e.Seq, Follow: w.vacate(was, e, "its run was ended by a time limit")}, nil
}

// totalTimeout ends an execution in any state. Only a run that has begun counts as an attempt.
func (w *world) totalTimeout(e *Execution, f belay.Failure) {
	how := ended{outcome: belay.OutcomeReleased, deed: "timeout", actor: System, reason: f.Message, failure: f}
	if e.State == belay.Running {
		how.outcome = belay.OutcomeTimedOut
		e.Attempts++
		e.setLosses(0)
	}
	w.finish(e, belay.Failed, how)
}

func (w *world) scheduleTimeout(e *Execution, p belay.Policy) {
	text := fmt.Sprintf(notPickedUp+": its worker did not accept it within %s", p.ScheduledTimeout.D())
	how := ended{
		outcome: belay.OutcomeReleased, deed: "schedule_timeout", actor: System, reason: text,
		failure: belay.Failure{Class: belay.ClassTimeout, Message: text, FailedBy: belay.FailedByMonitor},
	}
	if p.OnExpired == belay.FailExpired {
		w.finish(e, belay.Failed, how)
		return
	}
	how.failure = belay.Failure{}
	w.handBack(e, how, "released", text)
}

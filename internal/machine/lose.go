package machine

import (
	"fmt"
	"time"

	"github.com/belaydev/belay"
)

// Lose takes an execution back from a session that has ended. If the session was lost, the rules
// assume that its worker has crashed.
type Lose struct {
	Execution belay.ExecutionID
	Token     belay.Token
	Worker    belay.WorkerID
	// Beside says that the session owned other suspects too (executions that were lost several
	// times in a row). Newest says that none of these suspects began its run later than this
	// execution.
	Beside, Newest bool
	// Together says that the session owned other executions too, suspects or not.
	Together bool
}

// Need asks the store for the execution and the session.
func (c *Lose) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	n.Workers = append(n.Workers, c.Worker)
	n.Current = append(n.Current, c.Worker)
}

func (c *Lose) apply(w *world) (Reply, error) {
	const op = "lose"
	e, err := w.execution(op, c.Execution)
	if err != nil {
		return Reply{}, err
	}
	if (e.State != belay.Running && e.State != belay.Scheduled) || e.Worker != c.Worker || e.Token != c.Token {
		return Reply{}, w.illegal(op, e, "it is not owned by that worker with that token")
	}
	x := w.workers[c.Worker]
	if x != nil && !x.State.Ended() {
		return Reply{}, w.illegal(op, e, "the session of its owner has not ended")
	}
	w.takeBack(e, x, c.blames(e, x), c.Together)
	return Reply{Seq: e.Seq}, nil
}

// blames reports whether a loss counts towards the limit of losses of a suspect. The loss counts if
// the session owned no other suspect. Otherwise it counts only if this run began last among the
// suspects, and if the worker's last heartbeat came before the run was belay.AloneFor old; until
// that age the worker claims no other execution.
func (c *Lose) blames(e *Execution, x *Worker) bool {
	switch {
	case !c.Beside:
		return true
	case x == nil:
		return false
	}
	return c.Newest && x.HeartbeatAt < e.RunAt.Add(belay.AloneFor)
}

// takeBack takes an execution from its owner x, whose session has ended; x is nil if even the
// session's row is gone. If the session was closed or drained, the execution is due again, and no
// attempt or loss is counted (guarantee G11). The parameter blamed says that the loss counts
// towards the execution's limit of losses; together says that the session owned other executions
// too.
func (w *world) takeBack(e *Execution, x *Worker, blamed, together bool) {
	if e.State == belay.Scheduled || x != nil && x.State != belay.WorkerLost {
		w.handBack(e, ended{outcome: belay.OutcomeReleased}, "released", "the session of its worker was closed")
		return
	}
	w.lose(e, x, blamed, together)
}

// lose ends a run whose owner was lost. Losses have a limit of their own: after MaxLosses in a row
// without a new checkpoint the execution fails, because a job that crashes its workers must not run
// for ever (guarantee G8). From the third loss on, only losses that are blamed on the execution
// count, and those of every fourth run, so that no execution can kill workers for ever: the
// execution may have been lost only because it ran on the same worker as another job that crashed
// the worker. An execution with an external owner fails at its first loss unless its policy says
// otherwise, because only the lost owner has the information to continue.
func (w *world) lose(e *Execution, x *Worker, blamed, together bool) {
	p, text, outside := e.policy(), lostOwner(x, e.Worker), x != nil && x.Spec.External
	if outside && (e.Policy == nil || e.Policy.OnLost == "") {
		p.OnLost = belay.Fail
	}
	how := ended{
		outcome: belay.OutcomeLost, failure: belay.Failure{
			Class: belay.ClassLost, Message: clip(text, maxMessage), FailedBy: belay.FailedByReaper,
		},
	}
	if steps, _ := x.currentOf(belay.RunID{Execution: e.ID, Token: e.Token}); len(steps) > 0 {
		w.run(e).Steps = encodeSteps(steps) // the steps that the owner has reported before it was lost
	}
	if blamed || !e.Suspect() || e.Token%4 == 0 {
		e.setLosses(e.Losses + 1)
	}
	switch {
	case e.CancelBy != 0:
		w.finish(e, belay.Cancelled, how)
	case p.OnLost == belay.Fail:
		w.finish(e, belay.Failed, how)
	case e.Losses >= p.MaxLosses:
		how.failure.Message = clip(fmt.Sprintf("lost %d times in a row without a new checkpoint; the last: %s",
			e.Losses, text), maxMessage)
		w.finish(e, belay.Failed, how)
	default:
		w.handBack(e, how, "lost", clip(text, 300))
		e.DueAt = w.Now.Add(p.LockDelay.D())
		if together {
			e.DueAt = w.Now.Add(max(p.LockDelay.D(), LossDelay(e.Losses)))
		}
	}
}

// LossDelay is how long an execution waits after a number of losses in a row, if its worker lost
// other executions at the same time. The first loss causes no delay, because most workers crash for
// other reasons than one execution. From the second loss on the execution may be the cause, and the
// delay lets the other executions continue on another worker.
func LossDelay(losses int) time.Duration {
	if losses < suspectAfter {
		return 0
	}
	return min(time.Second<<min(losses-suspectAfter, 10), maxLossDelay)
}

const maxLossDelay = 30 * time.Second

// Release takes back an execution that its worker will never run, and makes it due again: the reply
// to the claim or accept that won it was lost, or it is scheduled to a worker that is draining.
type Release struct {
	Execution belay.ExecutionID
	Token     belay.Token
	Worker    belay.WorkerID
	// AcceptSeen says that the worker does not hold the run if the run began with an accept up to this number: a
	// heartbeat of the worker has named neither the run nor a lower number.
	AcceptSeen int64
}

// Need asks the store for the execution and the session.
func (c *Release) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	n.Workers = append(n.Workers, c.Worker)
}

func (c *Release) apply(w *world) (Reply, error) {
	e, err := w.execution("release", c.Execution)
	if err != nil {
		return Reply{}, err
	}
	x := w.workers[c.Worker]
	owned := e.State == belay.Running || e.State == belay.Scheduled
	if x == nil || !owned || e.Worker != c.Worker || e.Token != c.Token {
		return Reply{}, w.illegal("release", e, "it is not owned by that worker with that token")
	}
	text := unclaimed(e, x)
	if e.State == belay.Running && e.ClaimNo < 0 && -e.ClaimNo <= c.AcceptSeen {
		text = "the reply to its accept never reached the worker"
	}
	if text == "" {
		return Reply{}, w.illegal("release", e, "its worker may hold it, or is yet to accept it")
	}
	w.handBack(e, ended{outcome: belay.OutcomeReleased}, "released", text)
	return Reply{Seq: e.Seq}, nil
}

// unclaimed returns the reason for which a worker will never run an execution that it owns but did
// not name in its heartbeat; empty if the worker may still run it.
func unclaimed(e *Execution, x *Worker) string {
	switch {
	case e.State == belay.Scheduled && (x.State == belay.WorkerDraining || x.State == belay.WorkerCordoned):
		return "its worker is " + x.State.String() + " and will not accept it"
	case e.State == belay.Running && e.ClaimNo > 0 && e.ClaimNo <= x.ClaimFloor:
		return "the reply to its claim never reached the worker"
	}
	return ""
}

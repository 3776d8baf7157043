package machine

import (
	"fmt"
	"time"

	"github.com/belaydev/belay"
)

// Lose takes an execution back from a session that has ended.
type Lose struct {
	Execution belay.ExecutionID
	Token     belay.Token
	Worker    belay.WorkerID
	// Beside says that its session owned other suspects, and Newest that none of them
	// began later.
	Beside, Newest bool
	// Together says that its session owned others, suspects or not.
	Together bool
}

// Need names the execution and the session.
func (c *Lose) Need(n *Need) {
	n.Executions = append(n.Executions, c.Execution)
	n.Workers = append(n.Workers, c.Worker)
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

// blames reports whether the loss is put down to the execution, should it be suspect: no
// other suspect was there, or it was taken last and had not outlived the time in which a
// worker takes nothing else. Every fourth run counts whatever else was there: nothing
// kills workers for ever.
func (c *Lose) blames(e *Execution, x *Worker) bool {
	switch {
	case !c.Beside || e.Token%4 == 0:
		return true
	case x == nil:
		return false
	}
	return c.Newest && x.HeartbeatAt < e.RunAt.Add(belay.AloneFor)
}

// takeBack takes an execution from its owner x, whose session has ended; nil if
// even its row is gone. A session that ended in order gives back what it held
// (G11). Blamed says that a loss is put down to the execution, and
// together that others were lost with it.
func (w *world) takeBack(e *Execution, x *Worker, blamed, together bool) {
	if e.State == belay.Scheduled || x != nil && x.State != belay.WorkerLost {
		w.handBack(e, ended{outcome: belay.OutcomeReleased}, "released", "its worker ended in order")
		return
	}
	w.lose(e, x, blamed, together)
}

// lose ends a run whose owner is gone. Its cap is its own: so many in a row
// without a new checkpoint end the execution, since a job that kills its
// workers must not loop for ever (G8). From the third on only those count that are put
// down to it, since those that run beside such a job are innocent. Nobody but who lost
// it knows how to go on with what was owned from outside, so unless its policy says
// otherwise it fails.
func (w *world) lose(e *Execution, x *Worker, blamed, together bool) {
	p, text, outside := e.policy(), lostOwner(x, e.Worker), x != nil && x.Spec.External
	if outside && (e.Policy == nil || e.Policy.OnLost == "") {
		p.OnLost = belay.Fail
	}
	how := ended{
		outcome: belay.OutcomeLost, failure: belay.Failure{Class: belay.ClassLost, Message: clip(text, maxMessage)},
	}
	if blamed || !e.Suspect() {
		e.lostTimes(e.Losses + 1)
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

// LossDelay is how long an execution waits after so many losses in a row, if others were
// lost with it. The first is made good at once: workers die without its doing. From then
// on each loss may be its own doing, and the others get the time.
func LossDelay(losses int) time.Duration {
	if losses < suspectAfter {
		return 0
	}
	return min(time.Second<<min(losses-suspectAfter, 10), maxLossDelay)
}

const maxLossDelay = 30 * time.Second

// Release gives back a run that its worker does not hold, since the reply to
// the claim that won it was lost on the way, or what is scheduled to a worker
// that drains and will not accept it.
type Release struct {
	Execution belay.ExecutionID
	Token     belay.Token
	Worker    belay.WorkerID
}

// Need names the execution and the session.
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
	if text == "" {
		return Reply{}, w.illegal("release", e, "its worker may hold it, or is yet to accept it")
	}
	w.handBack(e, ended{outcome: belay.OutcomeReleased}, "released", text)
	return Reply{Seq: e.Seq}, nil
}

// unclaimed says why a worker cannot come to hold what it owns and does not
// name; empty if it can.
func unclaimed(e *Execution, x *Worker) string {
	switch {
	case e.State == belay.Scheduled && x.State == belay.WorkerDraining:
		return "its worker drains and will not accept it"
	case e.State == belay.Running && e.ClaimNo != 0 && e.ClaimNo <= x.ClaimFloor:
		return "the reply to its claim never reached the worker"
	}
	return ""
}

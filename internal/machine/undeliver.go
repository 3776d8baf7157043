package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// undelivered is the error of an execution whose message expired in the queue of its worker.
const undelivered = "Message expired in worker queue (worker unavailable)"

// earlier is how much less than the waiting time of messages an execution may have been scheduled when its
// message expires: the broker and the store measure with two clocks.
const earlier = time.Second

// Undeliver takes back an execution that is scheduled to a worker, because its message did not reach the
// worker. Messages are not believed: the execution must be scheduled under the token.
type Undeliver struct {
	Execution belay.ExecutionID
	Worker    belay.WorkerID
	Token     belay.Token
	// Waited is how long messages wait in the queue of a worker, if the message expired there. The execution
	// must have been scheduled for that long, and OnExpired decides what happens to it. With 0, the message
	// did not come into the queue, or the worker did not take it from there, and the execution is due again.
	Waited time.Duration
}

// Need asks the store for the execution.
func (c *Undeliver) Need(n *Need) { n.Executions = append(n.Executions, c.Execution) }

func (c *Undeliver) apply(w *world) (Reply, error) {
	const op = "undeliver"
	e, err := w.execution(op, c.Execution)
	if err != nil {
		return Reply{}, err
	}
	switch {
	case e.State != belay.Scheduled || e.Worker != c.Worker || e.Token != c.Token:
		return Reply{}, w.illegal(op, e, "it is not scheduled to that worker with that token")
	case c.Waited == 0:
		w.handBack(e, ended{outcome: belay.OutcomeReleased}, "released", "its message did not reach its worker")
		return Reply{Seq: e.Seq}, nil
	case !e.ScheduledAt.Add(c.Waited - earlier).over(w.Now):
		return Reply{}, w.illegal(op, e, "its message cannot have expired yet")
	}
	how := ended{
		outcome: belay.OutcomeReleased, deed: "message_expired", actor: System, reason: undelivered,
		failure: belay.Failure{
			Class: belay.ClassTimeout, Message: undelivered, FailedBy: belay.FailedByDeadLetterHandler,
		},
	}
	if e.policy().OnExpired == belay.FailExpired {
		w.finish(e, belay.Failed, how)
		return Reply{Seq: e.Seq}, nil
	}
	how.failure = belay.Failure{}
	w.handBack(e, how, "released", undelivered)
	return Reply{Seq: e.Seq}, nil
}

package machine

import "github.com/belaydev/belay"

// NoWorker fails an execution that is due and that no connected worker can take, if the policy of
// the execution says so. The engine first reads the execution and then the sessions of the workers,
// and sends NoWorker if none of the sessions can take the execution. The rules refuse the command
// if the execution has changed since the engine read it. So at the moment when the engine read the
// sessions, the execution was due and no worker could take it. A worker whose session opens after
// that moment comes too late.
type NoWorker struct {
	Execution belay.ExecutionID
	Seq       int64 // seq of the execution when the engine read it
}

// NoWorkers is the error of an execution that no connected worker could take. Programs watch for
// this text.
const NoWorkers = "no workers available"

// Need asks the store for the execution.
func (c *NoWorker) Need(n *Need) { n.Executions = append(n.Executions, c.Execution) }

func (c *NoWorker) apply(w *world) (Reply, error) {
	e, err := w.execution("no worker", c.Execution)
	if err != nil {
		return Reply{}, err
	}
	if e.Seq != c.Seq || !e.NeedsWorker() || !e.Ready().over(w.Now) {
		return Reply{}, w.illegal("no worker", e, "it is not due, has changed, or may wait for a worker")
	}
	f := belay.Failure{Class: belay.ClassTransient, Message: NoWorkers, FailedBy: belay.FailedByDispatcher}
	w.finish(e, belay.Failed, ended{deed: "no_worker", actor: System, reason: f.Message, failure: f})
	return Reply{Seq: e.Seq}, nil
}

// NeedsWorker reports whether the execution fails if it is due and no connected worker can take it.
// Stores index such executions while they wait for a worker.
func (e *Execution) NeedsWorker() bool {
	return e.Policy != nil && e.Policy.OnNoWorker == belay.FailNoWorker && e.Ready() != 0
}

package engine

import (
	"context"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Assign commits that a due execution is scheduled to a worker, and returns its token. The worker must still
// accept it. Assign returns CodeConflict if the execution is not due or a gate holds it, or if the worker may
// not claim.
func (e *Engine) Assign(ctx context.Context, id belay.ExecutionID, w belay.WorkerID) (belay.Token, error) {
	c := &machine.Schedule{Execution: id, Worker: w}
	e.opt.Random(c.Secret[:])
	r, err := e.do(ctx, c)
	if err != nil {
		return 0, err
	}
	return r.Execution.Token, nil
}

// Accept begins the run of an execution that is scheduled to the worker.
func (e *Engine) Accept(ctx context.Context, r belay.AcceptRequest) (belay.Assignment, error) {
	reply, err := e.do(ctx, &machine.Accept{
		Worker: r.Worker, Execution: r.Execution, Token: r.Token, Number: r.Number,
	})
	if err != nil {
		return belay.Assignment{}, err
	}
	all, err := e.assignments(ctx, reply.Claims)
	if err != nil {
		return belay.Assignment{}, err // the worker repeats the accept
	}
	return all.Assignments[0], nil
}

// Undeliver takes back an execution whose message did not reach its worker. waited is how long messages wait
// in the queue of a worker, if the message expired there, and otherwise 0. Undeliver returns CodeConflict if
// the execution is not scheduled to the worker under the token any more, or if the message cannot have expired
// yet: then the dead letter is of no use.
func (e *Engine) Undeliver(ctx context.Context, id belay.ExecutionID, w belay.WorkerID, t belay.Token,
	waited time.Duration) error {
	_, err := e.do(ctx, &machine.Undeliver{Execution: id, Worker: w, Token: t, Waited: waited})
	return err
}

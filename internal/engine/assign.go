package engine

import (
	"cmp"
	"context"
	"fmt"
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

// Accept begins the runs of executions that are scheduled to the worker. All of them go into one batch.
func (e *Engine) Accept(ctx context.Context, r belay.AcceptRequest) (belay.AcceptReply, error) {
	if n := len(r.Offers); n == 0 || n > belay.MaxOffers {
		return belay.AcceptReply{}, &belay.Error{Code: belay.CodeInvalid, Op: "accept",
			Message: fmt.Sprintf("%d offers; an accept may name 1 to %d", n, belay.MaxOffers)}
	}
	calls := make([]*call, len(r.Offers))
	for i, o := range r.Offers {
		calls[i] = newCall(&machine.Accept{Worker: r.Worker, Execution: o.Execution, Token: o.Token, Number: r.Number})
	}
	e.committer.sendAll(calls...)
	var won []machine.Claimed
	var failed error
	for _, k := range calls {
		reply, err := e.await(ctx, k)
		if err == nil {
			won = append(won, reply.Claims...)
			continue
		}
		if code := belay.CodeOf(err); code != belay.CodeConflict && code != belay.CodeNotFound { // out of date
			failed = cmp.Or(failed, err)
		}
	}
	if failed != nil && len(won) == 0 {
		return belay.AcceptReply{}, failed // the worker repeats the accept
	}
	// The reply to a heartbeat offers the executions that are still scheduled, so one that is locked delays no others.
	all, err := e.assignments(ctx, won)
	return belay.AcceptReply{Assignments: all.Assignments}, err
}

// OpenMailbox makes the queue of a worker in the broker, and stores its name. The name is stored after the queue
// exists, so that no server sends to a queue that is missing.
func (e *Engine) OpenMailbox(ctx context.Context, w belay.WorkerID) (belay.Mailbox, error) {
	if e.scheduler == nil {
		return belay.Mailbox{}, &belay.Error{Code: belay.CodeNotFound, Op: "open the mailbox of " + w.String(),
			Message: "this server has no message broker; the worker gets its executions by claims"}
	}
	if _, err := e.dispatcher.session(ctx, w); err != nil {
		return belay.Mailbox{}, err
	}
	queue, err := e.scheduler.courier.Open(ctx, w)
	if err != nil {
		return belay.Mailbox{}, err
	}
	e.scheduler.forgive(w)
	_, err = e.do(ctx, &machine.Mailbox{Worker: w, Queue: queue})
	return belay.Mailbox{Queue: queue}, err
}

// CloseMailbox ends the messages to a worker. The queue stays until the session ends, because messages may be on
// their way.
func (e *Engine) CloseMailbox(ctx context.Context, w belay.WorkerID) error {
	_, err := e.do(ctx, &machine.Mailbox{Worker: w})
	return err
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

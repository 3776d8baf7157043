package engine

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// window is the maximum number of batches that one call of Submit has in the queue. It is large
// enough to commit some batches while others are prepared, and small enough for the submissions of
// other callers to get their turn.
const window = 4

// submit accepts executions that name no stored document. All executions of one call are usually
// written in one commit, if they fit into one batch. While queued client work has waited too long,
// submit refuses executions (CodeRateLimited), except children, because they belong to a run that
// has begun.
func (e *Engine) submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	for i := range s {
		if s[i].ID.IsZero() {
			s[i].ID = belay.ExecutionID(e.opt.IDs())
		}
	}
	crowded := e.committer.admit()
	calls, sent := make([]*call, len(s)), 0
	out := make([]belay.Submitted, len(s))
	for i := range s {
		if most := window * e.opt.MaxBatch; sent <= i || len(s) > sent && sent-i <= most/2 {
			until := min(len(s), i+most)
			e.enqueue(ctx, calls[sent:until], s[sent:until], crowded)
			sent = until
		}
		out[i] = e.submitted(ctx, calls[i], s[i].ID, crowded)
	}
	return out, nil
}

// enqueue queues the submissions together. If crowded is not nil, enqueue leaves out client work: the
// engine refuses it. If the caller has cancelled the call, enqueue queues no submission.
func (e *Engine) enqueue(ctx context.Context, calls []*call, s []belay.Submission, crowded error) {
	if ctx.Err() != nil {
		return
	}
	queued := make([]*call, 0, len(s))
	for i := range s {
		k := newCall(&machine.Submit{Submission: s[i], Defaults: e.opt.Defaults, RunTrace: e.opt.RunTrace})
		if k.class == clientWork && crowded != nil {
			continue
		}
		e.committer.payloadChecks.precheck(k.command)
		calls[i] = k
		queued = append(queued, k)
	}
	e.committer.sendAll(queued...)
}

// submitted waits for the answer to a submission, if it was queued.
func (e *Engine) submitted(ctx context.Context, k *call, id belay.ExecutionID, crowded error) belay.Submitted {
	switch {
	case k == nil && crowded != nil:
		return belay.Submitted{ID: id, Err: crowded}
	case k == nil:
		return belay.Submitted{ID: id, Err: &belay.Error{
			Code: belay.CodeUnavailable, Op: "submit",
			Message: "the call ended before the submission was queued; it was not accepted",
			Err:     context.Cause(ctx),
		}}
	}
	r, err := e.await(ctx, k)
	if err != nil {
		return belay.Submitted{ID: id, Err: err}
	}
	return belay.Submitted{ID: r.ID, Replayed: r.Replayed}
}

// Control carries out an operator's action.
func (e *Engine) Control(ctx context.Context, c belay.Control) (belay.Execution, error) {
	if c.Action == belay.ActionFork && c.Fork.IsZero() {
		c.Fork = belay.ExecutionID(e.opt.IDs())
		if !c.Op.IsZero() { // a repeated call gets the same id for the fork, and so finds the fork of the first call
			c.Fork = belay.ChildID(c.Execution, 0, "fork "+c.Op.String())
		}
	}
	r, err := e.do(ctx, &machine.Act{Control: c})
	switch {
	case err != nil:
		return belay.Execution{}, err
	case c.Action == belay.ActionDelete:
		e.erase(ctx, r.Execution.ID)
	case r.Execution.State.Terminal(): // the output is in the last run, which must be read
		return e.Execution(ctx, r.Execution.ID)
	}
	return machine.View(&machine.Record{Execution: r.Execution, Spec: r.Spec}), nil
}

// Signal delivers a signal.
func (e *Engine) Signal(ctx context.Context, s belay.SignalRequest) error {
	if err := e.committer.admit(); err != nil {
		return err
	}
	_, err := e.do(ctx, &machine.Deliver{SignalRequest: s})
	return err
}

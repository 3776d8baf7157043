package engine

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Submit accepts executions; all of a call are usually one commit.
func (e *Engine) Submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	calls := make([]*call, len(s))
	out := make([]belay.Submitted, len(s))
	for i := range s {
		if s[i].ID.IsZero() {
			s[i].ID = belay.ExecutionID(e.opt.IDs())
		}
		c := &machine.Submit{Submission: s[i]}
		c.Judge()
		calls[i] = newCall(c)
	}
	e.committer.sendAll(calls...)
	for i, k := range calls {
		r, err := e.await(ctx, k)
		out[i] = belay.Submitted{ID: r.ID, Replayed: r.Replayed, Err: err}
		if err != nil {
			out[i].ID = s[i].ID
		}
	}
	return out, nil
}

// Control carries out an operator's action.
func (e *Engine) Control(ctx context.Context, c belay.Control) (belay.Execution, error) {
	if c.Action == belay.ActionFork && c.Fork.IsZero() {
		c.Fork = belay.ExecutionID(e.opt.IDs())
		if !c.Op.IsZero() { // asked again, it finds the same fork
			c.Fork = belay.ChildID(c.Execution, 0, "fork "+c.Op.String())
		}
	}
	if _, err := e.do(ctx, &machine.Act{Control: c}); err != nil {
		return belay.Execution{}, err
	}
	if c.Action == belay.ActionFork {
		return e.Execution(ctx, c.Fork)
	}
	return e.Execution(ctx, c.Execution)
}

// Signal delivers a signal.
func (e *Engine) Signal(ctx context.Context, s belay.SignalRequest) error {
	_, err := e.do(ctx, &machine.Deliver{SignalRequest: s})
	return err
}

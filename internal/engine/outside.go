package engine

import (
	"context"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Lock gives an execution to an external owner, a program that is not a worker. It reads the
// checkpoints after the commit; only the new owner can write checkpoints by then.
func (e *Engine) Lock(ctx context.Context, r belay.LockRequest) (belay.Lock, error) {
	if r.ID.IsZero() {
		r.ID = belay.WorkerID(e.opt.IDs())
	}
	c := &machine.Lock{LockRequest: r}
	e.opt.Random(c.Secret[:])
	reply, err := e.do(ctx, c)
	if err != nil {
		return belay.Lock{}, err
	}
	won := &reply.Claims[0].Execution
	l := belay.Lock{
		Lease:     belay.Lease{Execution: won.ID, Worker: won.Worker, Token: won.Token, Secret: won.Secret},
		ExpiresIn: reply.Session.TTL.D(), Heartbeat: reply.Session.Heartbeat.D(), Replayed: reply.Replayed,
	}
	rec, err := e.store.Read(store.Urgent(ctx), store.Read{
		Execution: won.ID, Spec: true, Resume: true, Bytes: pageBytes,
	})
	if err != nil {
		return belay.Lock{}, err // the caller can repeat the call, which then finds the lock by its id
	}
	if rec.Execution.Token != won.Token || rec.Execution.Worker != won.Worker {
		return belay.Lock{}, &belay.Error{
			Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Op: "lock " + won.ID.String(),
			Message: "the lock was lost as soon as it was given",
		}
	}
	l.Execution = machine.View(rec)
	from := machine.Resume(rec, e.store.Now())
	l.Checkpoints, l.Signals, l.More = from.Checkpoints, from.Signals, from.More
	return l, nil
}

// Renew is the heartbeat of one run.
func (e *Engine) Renew(ctx context.Context, l belay.Lease) (belay.HeartbeatReply, error) {
	r, err := e.do(ctx, &machine.Renew{Lease: l})
	return r.Heartbeat, err
}

// maxRuns is the maximum number of runs in a list.
const maxRuns = 200

// Runs reads the runs of an execution, the newest 200 of them.
func (r *Reader) Runs(ctx context.Context, id belay.ExecutionID) ([]belay.RunRecord, error) {
	rec, err := r.store.Read(ctx, store.Read{Execution: id, Runs: maxRuns, Spec: true, Generation: 1})
	if err != nil {
		return nil, err
	}
	slices.Reverse(rec.Runs)
	out := make([]belay.RunRecord, len(rec.Runs))
	for i, run := range rec.Runs {
		out[i] = machine.RunView(run, rec.Execution.Workflow)
		out[i].InputsHash, out[i].ConfigHash = rec.Hashes(run.Generation)
	}
	return out, nil
}

package engine

import (
	"context"
	"errors"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// OpenWorker opens a session.
func (e *Engine) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	if s.ID.IsZero() {
		s.ID = belay.WorkerID(e.opt.IDs())
	}
	r, err := e.do(ctx, &machine.Open{WorkerSpec: s})
	return r.Session, err
}

// Heartbeat renews a session. The reply contains the requests to the worker and its runs, such as a
// cancel.
func (e *Engine) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	r, err := e.do(ctx, &machine.Heartbeat{Heartbeat: h})
	return r.Heartbeat, err
}

// Drain makes all further claims of a worker win nothing.
func (e *Engine) Drain(ctx context.Context, id belay.WorkerID) error {
	_, err := e.do(ctx, &machine.Drain{Worker: id})
	return err
}

// Cordon makes a worker claim nothing, or allows its claims again.
func (e *Engine) Cordon(ctx context.Context, c belay.Cordon) error {
	_, err := e.do(ctx, &machine.Cordon{Cordon: c})
	return err
}

// Probed records the result of a health probe of a worker: failure says why the probe failed, and is
// empty if it succeeded. Probed returns the new state of the session, or 0 if the probe has not
// changed the state.
func (e *Engine) Probed(ctx context.Context, id belay.WorkerID, failure string) (belay.WorkerState, error) {
	r, err := e.do(ctx, &machine.Probe{Worker: id, Error: failure})
	return r.Worker, err
}

// CloseWorker ends a session on its worker's request. It wakes the sweeper, which releases the
// executions of the session.
func (e *Engine) CloseWorker(ctx context.Context, id belay.WorkerID) error {
	_, err := e.do(ctx, &machine.End{Worker: id})
	return err
}

// Bury ends the session of a worker whose process is proven dead; proof says how. The worker's
// executions are lost at once.
func (e *Engine) Bury(ctx context.Context, id belay.WorkerID, proof string) error {
	_, err := e.do(ctx, &machine.End{Worker: id, Dead: proof})
	return err
}

// Save writes a checkpoint.
func (e *Engine) Save(ctx context.Context, s belay.Save) (int64, error) {
	r, err := e.owned(ctx, s.Lease, s.Repeat, &machine.Save{Save: s}, func() machine.Command {
		s.Repeat = true
		return &machine.Save{Save: s}
	})
	return r.Seq, err
}

// Settle ends a run.
func (e *Engine) Settle(ctx context.Context, s belay.Settlement) error {
	jitter := e.opt.Jitter()
	_, err := e.owned(ctx, s.Lease, s.Repeat, &machine.Settle{Settlement: s, Jitter: jitter}, func() machine.Command {
		s.Repeat = true
		return &machine.Settle{Settlement: s, Jitter: jitter}
	})
	return err
}

// owned commits a write of an owner. The rules may refuse the write because the lease is lost. In
// two cases owned does not pass this refusal on. First, the write may have been committed before,
// and only the answer was lost: owned then looks the write up by its operation id and returns the
// first answer, even if another worker owns the execution now. Second, the session may only seem to
// have expired, because a heartbeat that arrived in time is not written yet: owned then waits for
// that heartbeat and tries the write again.
func (e *Engine) owned(
	ctx context.Context, l belay.Lease, repeat bool, c machine.Command, again func() machine.Command,
) (*machine.Reply, error) {
	before := e.committer.pendingBeat(l.Worker)
	r, err := e.do(ctx, c)
	if err == nil || belay.CodeOf(err) != belay.CodeLeaseLost {
		return r, err
	}
	waited := e.renewed(ctx, err, before, e.committer.pendingBeat(l.Worker))
	if repeat && !waited {
		return r, err
	}
	r, repeated := e.do(ctx, again())
	switch {
	case repeated == nil && (r.Replayed || waited):
		return r, nil
	case belay.CodeOf(repeated) == belay.CodeUnavailable, belay.CodeOf(repeated) == belay.CodeIdempotencyMismatch:
		return &machine.Reply{}, repeated // the outcome is unknown, or another write has this operation id
	}
	return &machine.Reply{}, err
}

// renewed waits until the heartbeats of a session that seems to have expired have been answered. It
// reports whether the engine had received such heartbeats and not answered them yet.
func (e *Engine) renewed(ctx context.Context, err error, beats ...<-chan struct{}) (waited bool) {
	if !errors.Is(err, &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseExpired}) {
		return false
	}
	for _, answered := range beats {
		if answered == nil {
			continue
		}
		waited = true
		select {
		case <-answered:
		case <-ctx.Done():
		}
	}
	return waited
}

// CallTarget asks a circuit breaker whether a step may call a target, or reports how the call ended.
func (e *Engine) CallTarget(ctx context.Context, c belay.TargetCall) (belay.TargetAnswer, error) {
	r, err := e.do(ctx, &machine.CallTarget{TargetCall: c})
	return r.Target, err
}

// Append writes a chunk of a log or artifact.
func (e *Engine) Append(ctx context.Context, c belay.Chunk) error {
	_, err := e.do(ctx, &machine.Append{Chunk: c})
	return err
}

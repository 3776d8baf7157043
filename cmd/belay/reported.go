package main

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/belaydev/belay"
)

// reported is the Backend of a worker whose log says what it does: what it won,
// how that ended, and when nobody answers.
type reported struct {
	belay.Backend
	log  *slog.Logger
	away atomic.Bool
}

// Claim says what was won.
func (r *reported) Claim(ctx context.Context, c belay.ClaimRequest) (belay.ClaimReply, error) {
	reply, err := r.Backend.Claim(ctx, c)
	for i := range reply.Assignments {
		a := &reply.Assignments[i]
		r.log.Info("run begins", "execution", a.Lease.Execution, "workflow", a.Workflow, "attempt", a.Attempt, "token",
			a.Lease.Token)
	}
	return reply, err
}

// Settle says how a run ended.
func (r *reported) Settle(ctx context.Context, s belay.Settlement) error {
	err := r.Backend.Settle(ctx, s)
	if err != nil {
		return err // whoever calls tries again, or says so
	}
	facts := []any{"execution", s.Lease.Execution, "outcome", s.Outcome, "token", s.Lease.Token}
	if s.Failure != nil {
		facts = append(facts, "error", s.Failure.Message)
	}
	r.log.Info("run ended", facts...)
	return nil
}

// Heartbeat says when nobody answers, and when somebody does again.
func (r *reported) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	reply, err := r.Backend.Heartbeat(ctx, h)
	away := err != nil && ctx.Err() == nil && belay.CodeOf(err) != belay.CodeLeaseLost // which package worker tells
	if was := r.away.Swap(away); away && !was {
		r.log.Warn("the heartbeat fails; what runs is held before its lease ends", "runs", len(h.Holds), "error", err)
	} else if was && err == nil {
		r.log.Info("the heartbeat gets through again", "runs", len(h.Holds))
	}
	return reply, err
}

// failing is a Backend whose store may fail for good in this process.
type failing interface {
	Failed() <-chan struct{}
	Failure() error
}

func failedOf(b belay.Backend) <-chan struct{} {
	if f, ok := b.(failing); ok {
		return f.Failed()
	}
	return nil
}

func failureOf(b belay.Backend) error {
	if f, ok := b.(failing); ok {
		return f.Failure()
	}
	return nil
}

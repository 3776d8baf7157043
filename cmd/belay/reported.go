package main

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/belaydev/belay"
)

// reported is the Backend of a worker, with a log of the worker's claims, the ends of its runs,
// and outages of the server.
type reported struct {
	belay.Backend
	log  *slog.Logger
	away atomic.Bool
}

// Claim logs the runs that the worker begins.
func (r *reported) Claim(ctx context.Context, c belay.ClaimRequest) (belay.ClaimReply, error) {
	reply, err := r.Backend.Claim(ctx, c)
	for i := range reply.Assignments {
		a := &reply.Assignments[i]
		r.log.Info("run begins", "execution", a.Lease.Execution, "workflow", a.Workflow, "attempt", a.Attempt, "token",
			a.Lease.Token)
	}
	return reply, err
}

// Settle logs how a run ended.
func (r *reported) Settle(ctx context.Context, s belay.Settlement) error {
	err := r.Backend.Settle(ctx, s)
	if err != nil {
		return err // the worker repeats the call, or logs the error
	}
	facts := []any{"execution", s.Lease.Execution, "outcome", s.Outcome, "token", s.Lease.Token}
	if s.Failure != nil {
		facts = append(facts, "error", s.Failure.Message)
	}
	r.log.Info("run ended", facts...)
	return nil
}

// Heartbeat logs when heartbeats begin to fail, and when they get through again.
func (r *reported) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	reply, err := r.Backend.Heartbeat(ctx, h)
	// A lost lease is no outage, and package worker logs it.
	away := err != nil && ctx.Err() == nil && belay.CodeOf(err) != belay.CodeLeaseLost
	if was := r.away.Swap(away); away && !was {
		r.log.Warn("the heartbeat fails; runs are frozen before their leases end", "runs", len(h.Holds), "error", err)
	} else if was && err == nil {
		r.log.Info("the heartbeat gets through again", "runs", len(h.Holds))
	}
	return reply, err
}

// failing is a Backend in this process whose store may fail for good. Failed is closed then, and
// Failure says why.
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

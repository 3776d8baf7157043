package main

import (
	"context"
	"log/slog"

	"github.com/belaydev/belay"
)

// reported is the Backend of a worker. It logs the worker's claims, the ends of its runs, and
// outages of the server.
type reported struct {
	outages
	log *slog.Logger
}

func newReported(b belay.Backend, log *slog.Logger) *reported {
	return &reported{log: log, outages: outages{
		Backend: b,
		began: func(runs int, err error) {
			log.Warn("the heartbeat fails; runs are frozen before their leases end", "runs", runs, "error", err)
		},
		ended: func(runs int) { log.Info("the heartbeat gets through again", "runs", runs) },
	}}
}

// Claim logs the runs that the worker begins.
func (r *reported) Claim(ctx context.Context, c belay.ClaimRequest) (belay.ClaimReply, error) {
	reply, err := r.Backend.Claim(ctx, c)
	r.begin(reply.Assignments)
	return reply, err
}

// Accept logs the runs that the worker begins for messages of RabbitMQ.
func (r *reported) Accept(ctx context.Context, q belay.AcceptRequest) (belay.AcceptReply, error) {
	reply, err := r.Backend.Accept(ctx, q)
	r.begin(reply.Assignments)
	return reply, err
}

func (r *reported) begin(all []belay.Assignment) {
	for i := range all {
		a := &all[i]
		r.log.With(slog.Any("", a.Lease)).Info("run begins", "workflow", a.Workflow, "attempt", a.Attempt)
	}
}

// Settle logs how a run ended.
func (r *reported) Settle(ctx context.Context, s belay.Settlement) error {
	err := r.Backend.Settle(ctx, s)
	if err != nil {
		return err // the worker repeats the call, or logs the error
	}
	facts := []any{slog.Any("", s.Lease), "outcome", s.Outcome}
	if s.Failure != nil {
		facts = append(facts, "error", s.Failure.Message)
	}
	r.log.Info("run ended", facts...)
	return nil
}

// failing is a Backend in this process whose store may fail for good. The failure closes the
// channel Failed, and Failure returns the reason.
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

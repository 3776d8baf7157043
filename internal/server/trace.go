package server

import (
	"context"
	"log/slog"

	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/trace"
)

// Traces returns the Tracer for which the variables OTEL_* of the environment ask; nil if they ask for none.
func Traces(cfg *config.Config, version string, log *slog.Logger) *trace.Tracer {
	store := "sqlite"
	if cfg.Shared() {
		store = "postgresql"
	}
	return trace.New(trace.Options{Version: version, Store: store, Log: log})
}

// sendTraces starts to send traces, if the environment asks for them. The returned function sends those that are left,
// unless atOnce ends or the store has failed. It is called when everything else has stopped, so that the executions
// that end in the grace period have traces too.
func (s *Server) sendTraces(atOnce context.Context, b Engine) (stop func()) {
	if s.opt.Traces == nil {
		return func() {}
	}
	s.metrics.Traces(s.opt.Traces)
	ctx, end := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := s.opt.Traces.Run(ctx, b); err != nil {
			s.log.Warn("the server makes no traces", "error", err)
		}
	}()
	return func() {
		end()
		select {
		case <-over:
		case <-atOnce.Done():
		case <-b.Failed():
		}
	}
}

// trace passes a batch to the Tracer.
func (s *Server) trace(o *engine.Observation) {
	for i := range o.Finished {
		x := o.Finished[i].Row
		s.opt.Traces.End(trace.Ended{
			ID: x.ID, Parent: x.Parent, Workflow: x.Workflow, Version: x.Version, Queue: x.Queue, State: x.State,
			Generation: x.Generation, Attempts: x.Attempts, CreatedAt: x.CreatedAt.Time(),
			FinishedAt: x.FinishedAt.Time(), Class: x.Class, Message: x.Message, Trace: x.Trace,
		})
	}
	if o.Wrote {
		s.opt.Traces.Commit(o.Commands, o.Took)
	}
}

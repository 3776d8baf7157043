package server

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/bulk/runner"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/worker"
)

const (
	// bulkPoll is how often the server looks for bulks that another server has accepted or left.
	bulkPoll = 10 * time.Second
	// manyBulks is the largest number of bulks that one server runs at the same time.
	manyBulks = 20
)

// bulks is the service that runs the bulks of a server (belay.Bulk). Its worker has a session only while
// there is a bulk to run: a session that is always there would hide from operators that no worker is
// connected.
type bulks struct {
	s    *Server
	b    Engine
	acts runner.Backend
	// running is the number of bulks that this server runs.
	running atomic.Int64
}

// observe passes the description of a commit to the metrics, and wakes the service of bulks when the
// engine has accepted one.
func (s *Server) observe(o *engine.Observation) {
	s.metrics.Observe(o)
	for i := range o.Submitted {
		if o.Submitted[i].Workflow == belay.BulkWorkflow {
			select {
			case s.bulkNews <- struct{}{}:
			default:
			}
		}
	}
}

// runBulks returns the service of bulks. The actions of bulks pass the same checks as actions of users.
func (s *Server) runBulks(b Engine, admit map[string]httpapi.Admission) func(context.Context) error {
	k := &bulks{s: s, b: b, acts: httpapi.Admitting(b, admit)}
	return k.run
}

func (k *bulks) run(ctx context.Context) error {
	for known := false; ctx.Err() == nil; known = k.wait(ctx) {
		if !known {
			if due, err := k.b.HasReady(ctx, belay.BulkWorkflow); err != nil || !due {
				continue // the engine logs an outage of the store
			}
		}
		if err := k.work(ctx); err != nil && ctx.Err() == nil {
			k.s.log.Warn("run bulks", "error", err)
		}
	}
	return nil
}

// wait waits until the engine has accepted a bulk, and then returns true. It returns false after bulkPoll,
// and when ctx ends.
func (k *bulks) wait(ctx context.Context) bool {
	timer := time.NewTimer(bulkPoll)
	defer timer.Stop()
	select {
	case <-k.s.bulkNews:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// work runs bulks until there are none, or until ctx ends. When ctx ends, the bulks stop at once; another server, or
// this server after a restart, continues them.
func (k *bulks) work(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := worker.New(k.b, worker.Options{
		Name: fmt.Sprintf("bulks of belay serve (pid %d)", os.Getpid()), Version: k.s.opt.Version,
		Concurrency: manyBulks, Queues: []string{belay.BulkWorkflow}, TTL: k.s.cfg.Worker.TTL,
		Heartbeat: k.s.cfg.Worker.Heartbeat, Grace: -1, Log: k.s.log,
	})
	run := &runner.Runner{Backend: k.acts}
	worker.Register(w, belay.BulkWorkflow, func(ctx context.Context, b belay.Bulk) (belay.BulkProgress, error) {
		k.running.Add(1)
		defer k.running.Add(-1)
		return run.Run(ctx, b)
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(bulkPoll):
		}
		if due, err := k.b.HasReady(ctx, belay.BulkWorkflow); err == nil && !due && k.running.Load() == 0 {
			stop()
			return <-ended
		}
	}
}

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/worker"
)

// Builtin is a workflow that the server itself runs. Its worker has a session only while there are
// executions of the workflow: a session that is always there would hide from operators that no worker is
// connected.
type Builtin struct {
	Workflow string
	// Queue is the queue from which the server claims; "" for the default queue.
	Queue string
	// Concurrency is the largest number of executions that the server runs at the same time.
	Concurrency int
	// Grace and Unwind are those of worker.Options.
	Grace, Unwind time.Duration
	// Waits says that executions of the workflow wait for other executions: the worker keeps its session
	// until all of them have ended, so that the next execution that goes on needs no new session.
	Waits bool
	// Backend is the Backend of the worker; nil for the engine.
	Backend belay.Backend
	// Run is the workflow function.
	Run func(ctx context.Context, input json.RawMessage) (any, error)
}

// lookAgain is how often the server looks for executions of its workflows that another server has
// accepted or left, or that a gate has let through. It looks for all workflows together.
const lookAgain = 5 * time.Second

// lookForBuiltins wakes the services of built-in workflows that have due executions.
func (s *Server) lookForBuiltins(b Engine) func(context.Context) error {
	names := slices.Sorted(maps.Keys(s.alarms))
	return func(ctx context.Context) error {
		again := time.NewTicker(lookAgain)
		defer again.Stop()
		for {
			select {
			case <-again.C:
			case <-ctx.Done():
				return nil
			}
			ready, err := b.ReadyAmong(ctx, names...)
			if err != nil {
				continue // the engine logs an outage of the store
			}
			for _, name := range ready {
				ring(s.alarms[name].news)
			}
		}
	}
}

// onDemand is the service that runs one built-in workflow.
type onDemand struct {
	Builtin
	s *Server
	b Engine
	alarm
	// running is the number of executions that this server runs.
	running atomic.Int64
}

// alarm wakes the service of a workflow: news gets a value when the engine has accepted an execution of
// the workflow or the server has found a due one, and look when the engine has taken an execution of any
// workflow back from its worker.
type alarm struct{ news, look chan struct{} }

func newAlarm() alarm { return alarm{make(chan struct{}, 1), make(chan struct{}, 1)} }

// ring puts a value into a channel that has none.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// observe passes the description of a commit to the metrics, and wakes the services of workflows that may
// have work.
func (s *Server) observe(o *engine.Observation) {
	if s.opt.Traces != nil {
		s.trace(o)
	}
	s.metrics.Observe(o)
	s.recent.Observe(o)
	for i := range o.Submitted {
		if a, ok := s.alarms[o.Submitted[i].Workflow]; ok {
			ring(a.news)
		}
	}
	free := func(r engine.RunOne) bool {
		return r.Outcome == belay.OutcomeLost || r.Outcome == belay.OutcomeReleased
	}
	if slices.ContainsFunc(o.Runs, free) {
		for _, a := range s.alarms {
			ring(a.look)
		}
	}
}

// serveBuiltin returns the service of a workflow.
func (s *Server) serveBuiltin(b Engine, w Builtin) func(context.Context) error {
	return (&onDemand{Builtin: w, s: s, b: b, alarm: s.alarms[w.Workflow]}).run
}

func (k *onDemand) run(ctx context.Context) error {
	for known := false; ctx.Err() == nil; known = k.wait(ctx) {
		if !known {
			if due, err := k.b.ReadyAmong(ctx, k.Workflow); err != nil || len(due) == 0 {
				continue // the engine logs an outage of the store
			}
		}
		if err := k.work(ctx); err != nil && ctx.Err() == nil {
			k.s.log.Warn("run a built-in workflow", "workflow", k.Workflow, "error", err)
		}
	}
	return nil
}

// wait waits until the engine has accepted an execution of the workflow, or the server has found one, and
// then returns true. It returns false when the engine has taken an execution of any workflow back, and when
// ctx ends.
func (k *onDemand) wait(ctx context.Context) bool {
	select {
	case <-k.news:
		return true
	case <-k.look:
	case <-ctx.Done():
	}
	return false
}

// work runs executions of the workflow until there are none, or until ctx ends.
func (k *onDemand) work(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	o := worker.Options{
		Name: fmt.Sprintf("%s of belay serve (pid %d)", k.Workflow, os.Getpid()), Version: k.s.opt.Version,
		Concurrency: k.Concurrency, TTL: k.s.cfg.Worker.TTL, Heartbeat: k.s.cfg.Worker.Heartbeat, Grace: k.Grace,
		Unwind: k.Unwind, Log: k.s.log,
	}
	if k.Queue != "" {
		o.Queues = []string{k.Queue}
	}
	var b belay.Backend = k.b
	if k.Backend != nil {
		b = k.Backend
	}
	w := worker.New(b, o)
	worker.Register(w, k.Workflow, func(ctx context.Context, input json.RawMessage) (any, error) {
		k.running.Add(1)
		defer k.running.Add(-1)
		return k.Run(ctx, input)
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(lookAgain):
		}
		if k.running.Load() == 0 && k.idle(ctx) {
			stop()
			return <-ended
		}
	}
}

// idle reports whether no execution of the workflow is due, and, if its executions wait for others, whether
// all have ended.
func (k *onDemand) idle(ctx context.Context) bool {
	if due, err := k.b.ReadyAmong(ctx, k.Workflow); err != nil || len(due) > 0 || !k.Waits {
		return err == nil && len(due) == 0
	}
	queue := k.Queue
	if queue == "" {
		queue = "default"
	}
	page, err := k.b.Executions(ctx, belay.Filter{
		Workflow: k.Workflow, Queue: queue, Children: true, Limit: 1, States: belay.ActiveStates(),
	})
	return err == nil && len(page.Executions) == 0 && page.Next == ""
}

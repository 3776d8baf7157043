package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// mortal is the Backend of a simulated process. After the process was killed (dead is set), every
// call fails.
type mortal struct {
	belay.Backend
	dead atomic.Bool
}

var errKilled = &belay.Error{Code: belay.CodeUnavailable, Message: "the process was killed"}

func alive[T any](m *mortal, call func() (T, error)) (T, error) {
	var none T
	if m.dead.Load() {
		return none, errKilled
	}
	v, err := call()
	if m.dead.Load() {
		return none, errKilled
	}
	return v, err
}

func (m *mortal) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	return alive(m, func() (belay.HeartbeatReply, error) { return m.Backend.Heartbeat(ctx, h) })
}

func (m *mortal) Claim(ctx context.Context, r belay.ClaimRequest) (belay.ClaimReply, error) {
	return alive(m, func() (belay.ClaimReply, error) { return m.Backend.Claim(ctx, r) })
}

func (m *mortal) Save(ctx context.Context, s belay.Save) (int64, error) {
	return alive(m, func() (int64, error) { return m.Backend.Save(ctx, s) })
}

func (m *mortal) Settle(ctx context.Context, s belay.Settlement) error {
	_, err := alive(m, func() (any, error) { return nil, m.Backend.Settle(ctx, s) })
	return err
}

func (m *mortal) CloseWorker(ctx context.Context, id belay.WorkerID) error {
	_, err := alive(m, func() (any, error) { return nil, m.Backend.CloseWorker(ctx, id) })
	return err
}

// supervise runs one worker at a time until ctx ends, and starts the next worker when a worker was
// killed. An execution of "poison" kills the worker that runs it; an execution of "neighbour" takes
// half a minute.
func supervise(ctx context.Context, b belay.Backend, concurrency int) (kills int) {
	for ctx.Err() == nil {
		m := &mortal{Backend: b}
		life, kill := context.WithCancelCause(ctx)
		w := worker.New(m, worker.Options{
			Concurrency: concurrency, TTL: 3 * time.Second, Grace: time.Millisecond, Log: slog.New(slog.DiscardHandler),
		})
		worker.Register(w, "poison", func(ctx context.Context, _ any) (any, error) {
			m.dead.Store(true)
			kill(errKilled)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		worker.Register(w, "neighbour", func(ctx context.Context, _ any) (string, error) {
			select {
			case <-time.After(30 * time.Second):
				return "done", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		})
		_ = w.Run(life) // ignored: the error only names the runs that the worker could not settle
		if errors.Is(context.Cause(life), errKilled) {
			kills++
		}
		kill(nil)
	}
	return kills
}

// Rule: an execution that kills every worker fails with the class lost, and the executions that ran
// on the same workers succeed.
func TestAnExecutionThatKillsWorkersFailsAlone(t *testing.T) {
	for _, concurrency := range []int{1, 2, 10} {
		t.Run(fmt.Sprintf("concurrency %d", concurrency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := engine.New(memory.New(time.Now), engine.Options{Log: slog.New(slog.DiscardHandler)})
				ctx, stop := context.WithCancel(t.Context())
				kills := make(chan int)
				var all []workflow.Handle[string]
				began := time.Now()
				for range 10 {
					h, err := workflow.Start[string](ctx, e, "neighbour", nil)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, h)
				}
				poison, err := workflow.Start[string](ctx, e, "poison", nil)
				if err != nil {
					t.Fatal(err)
				}
				go func() { kills <- supervise(ctx, e, concurrency) }()
				for _, h := range all {
					if got, err := h.Result(ctx); err != nil || got != "done" {
						t.Errorf("a neighbour ended with %q, %v", got, err)
					}
				}
				_, err = poison.Result(ctx)
				x, rerr := e.Execution(ctx, poison.ID())
				if err == nil || rerr != nil || x.Losses != belay.DefaultMaxLosses || x.Error == nil ||
					x.Error.Class != belay.ClassLost {
					t.Errorf("the poison ended with %v, %v: %+v", err, rerr, x)
				}
				took := time.Since(began)
				stop()
				n := <-kills
				if t.Logf("%d kills, all over after %s", n, took); took > 10*time.Minute {
					t.Errorf("the test took %s of virtual time, more than 10m", took)
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

package sdktest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// suspending calls act once: when the worker sends the first settlement that suspends a run, before
// this settlement arrives at the Backend.
func suspending(c *crew, act func()) {
	var once atomic.Bool
	c.wire.set(func(_ context.Context, x call) error {
		if s, ok := x.request.(belay.Settlement); ok && !x.done && s.Outcome == belay.OutcomeSuspended &&
			once.CompareAndSwap(false, true) {
			act()
		}
		return nil
	})
}

var races = []testCase{
	{"signal against suspend", func(e *env) {
		c := e.hire(register("w", approval))
		id := e.start(0)
		suspending(c, func() { e.signal(id, "approved", "ann") })
		want(e, id, "ann")
		e.within("wake-up", time.Since(e.began), 0, 3*time.Second)
		if e.count(id, "suspended") != 1 {
			e.Error("the suspend arrived first\n" + e.history(id))
		}
	}},

	{"signal against suspend, its reply lost", func(e *env) {
		c := e.hire(register("w", approval))
		id := e.start(0)
		c.wire.on("settle", true, 1, func(context.Context, call) error {
			e.signal(id, "approved", "ann")
			return errCut
		})
		want(e, id, "ann")
		e.within("wake-up", time.Since(e.began), 0, 3*time.Second)
	}},

	{"child end against suspend", func(e *env) {
		go1 := make(chan struct{})
		c := e.hire(family(func(_ context.Context, in int) (int, error) {
			<-go1
			return in, nil
		}), func(o *worker.Options) { o.Linger = -1 })
		var kid atomic.Pointer[belay.ExecutionID]
		suspending(c, func() {
			close(go1)
			id := *kid.Load()
			page, err := e.b.Executions(e.ctx, belay.Filter{Parent: id})
			if err != nil || len(page.Executions) != 1 {
				e.Error(page, err)
				return
			}
			_, err = workflow.Attach[int](e.b, page.Executions[0].ID).Result(e.ctx)
			if err != nil {
				e.Error(err)
			}
		})
		h := belay.ExecutionID{0: 1, 6: 0x70, 8: 0x80}
		kid.Store(&h)
		id := e.start(4, belay.WithID(h))
		want(e, id, 4)
		e.within("wake-up", time.Since(e.began), 0, time.Second)
		if e.count(id, "suspended") != 1 {
			e.Error(e.history(id))
		}
	}},

	{"cancel against complete: the cancel arrives first", func(e *env) {
		c := e.hire(register("w", func(context.Context, any) (int, error) { return 1, nil }))
		id := belay.ExecutionID{0: 1, 6: 0x70, 8: 0x80}
		c.wire.on("settle", false, 1, func(context.Context, call) error {
			e.act(id, belay.ActionCancel)
			return nil
		})
		e.start(nil, belay.WithID(id))
		wantEnd(e, id, belay.Cancelled, "")
		e.within("end", time.Since(e.began), 0, time.Second)
	}},

	{"cancel against complete: the end arrives first", func(e *env) {
		c := e.hire(register("w", func(context.Context, any) (int, error) { return 1, nil }))
		id := belay.ExecutionID{0: 1, 6: 0x70, 8: 0x80}
		var refused error
		c.wire.on("settle", true, 1, func(context.Context, call) error {
			_, refused = e.b.Control(e.ctx, belay.Control{Execution: id, Action: belay.ActionCancel})
			return errCut
		})
		e.start(nil, belay.WithID(id))
		want(e, id, 1)
		e.settle()
		if belay.CodeOf(refused) != belay.CodeConflict {
			e.Errorf("cancel of an ended execution: %v", refused)
		}
	}},

	{"pause against claim", func(e *env) {
		var started atomic.Bool
		c := e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			started.Store(true)
			return threeSteps(ctx, nil)
		}))
		id := belay.ExecutionID{0: 1, 6: 0x70, 8: 0x80}
		var once atomic.Bool
		c.wire.set(func(_ context.Context, x call) error {
			if x.op == "claim" && x.done && !once.Load() && e.get(id).State == belay.Running &&
				once.CompareAndSwap(false, true) {
				// the claim won the execution, and the reply has not reached the worker yet
				e.act(id, belay.ActionPause)
			}
			return nil
		})
		e.start(nil, belay.WithID(id))
		e.sleep(2 * time.Minute)
		e.wantState(id, belay.Paused)
		e.act(id, belay.ActionResume)
		want(e, id, "done")
		if !started.Load() {
			e.Error("never started")
		}
	}},

	{"heartbeat against claim reply", func(e *env) {
		// The reply to a claim is late. Heartbeats that the worker sends before the reply arrives
		// must not release the runs that the claim won.
		var runs atomic.Int32
		c := e.hire(register("w", func(context.Context, any) (int, error) { return int(runs.Add(1)), nil }))
		e.settle()
		c.wire.on("claim", true, 1, func(ctx context.Context, _ call) error {
			select {
			case <-time.After(12 * time.Second):
			case <-ctx.Done():
			}
			return nil
		})
		id := e.start(nil)
		want(e, id, 1)
		e.within("end", time.Since(e.began), 12*time.Second, 13*time.Second)
		e.wantKinds(id, "submitted", "started", "succeeded")
	}},

	{"heartbeat against settle reply", func(e *env) {
		// The heartbeat names a run until the settlement of the run is acknowledged. If the
		// settlement has already arrived, the reply reports the run as revoked, which must have no
		// effect.
		c := e.hire(register("w", func(_ context.Context, in int) (int, error) {
			return in, nil
		}), func(o *worker.Options) { o.Concurrency = 1 })
		c.wire.on("settle", true, 1, func(ctx context.Context, _ call) error {
			select {
			case <-time.After(12 * time.Second):
			case <-ctx.Done():
			}
			return nil
		})
		first, second := e.start(1), e.start(2)
		want(e, first, 1)
		want(e, second, 2)
		e.wantKinds(first, "submitted", "started", "succeeded")
		e.wantKinds(second, "submitted", "started", "succeeded")
	}},

	{"loss against save", func(e *env) {
		// The session ends while a checkpoint is in flight.
		var refused error
		c := e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			n, err := workflow.Step(ctx, "step", func(ctx context.Context) (int, error) {
				return int(workflow.Token(ctx) & 0xffff), nil
			})
			if err != nil {
				refused = err
			}
			return n, err
		}))
		c.wire.on("save", false, 1, func(context.Context, call) error {
			all, err := e.b.Workers(e.ctx)
			if err != nil || len(all) == 0 {
				return errors.Join(errCut, err)
			}
			return e.b.CloseWorker(e.ctx, all[0].ID)
		})
		want(e, e.start(nil), 2)
		e.settle()
		if !errors.Is(refused, belay.ErrLeaseLost) {
			e.Errorf("the late checkpoint: %v", refused)
		}
	}},
}

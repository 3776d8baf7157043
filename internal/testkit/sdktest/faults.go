package sdktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// always returns a hook that makes a call, or the reply to it, fail with err.
func always(err error) func(context.Context, call) error {
	return func(context.Context, call) error { return err }
}

var faults = []testCase{
	{"a write whose reply is lost happens once", func(e *env) {
		for _, op := range []string{"save", "settle"} {
			var steps atomic.Int32
			c := e.hire(register(op, func(ctx context.Context, _ any) (int, error) {
				return workflow.Step(ctx, "step", func(context.Context) (int, error) { return int(steps.Add(1)), nil })
			}))
			c.wire.on(op, true, 3, always(errCut))
			h, err := workflow.Start[int](e.ctx, e.b, op, nil)
			if err != nil {
				e.Fatal(err)
			}
			want(e, h.ID(), 1)
			e.wantKinds(h.ID(), "submitted", "started", "step:step", "succeeded")
			if err := c.end(); err != nil {
				e.Error(err)
			}
		}
	}},

	{"a write that does not get through is repeated", func(e *env) {
		for _, op := range []string{"open", "claim", "save", "settle", "heartbeat", "drain", "close"} {
			c := e.hire(register(op, func(ctx context.Context, _ any) (int, error) {
				return workflow.Step(ctx, "step", func(context.Context) (int, error) { return 1, nil })
			}))
			c.wire.on(op, false, 3, always(errCut))
			h, err := workflow.Start[int](e.ctx, e.b, op, nil)
			if err != nil {
				e.Fatal(err)
			}
			want(e, h.ID(), 1)
			e.wantKinds(h.ID(), "submitted", "started", "step:step", "succeeded")
			if err := c.end(); err != nil {
				e.Error(err)
			}
		}
	}},

	{"a repeated claim gets the executions that the claim with the lost reply won", func(e *env) {
		var runs atomic.Int32
		c := e.hire(register("w", func(context.Context, any) (int, error) { return int(runs.Add(1)), nil }))
		c.wire.on("claim", true, 2, func(_ context.Context, c call) error { return errCut })
		id := e.start(nil)
		want(e, id, 1)
		e.wantKinds(id, "submitted", "started", "succeeded")
	}},

	{"an earlier try of a claim that wins after the empty reply to its repeat does not keep the execution",
		func(e *env) {
			var runs atomic.Int32
			var first belay.ClaimRequest
			var id belay.ExecutionID
			c := e.hire(register("w", func(context.Context, any) (int, error) { return int(runs.Add(1)), nil }))
			c.wire.set(func(ctx context.Context, c call) error {
				r, is := c.request.(belay.ClaimRequest)
				switch {
				case !is:
				case !c.done && first.Number == 0: // this try is under way for longer than its repeat
					first = r
					return errCut
				case c.done && r.Repeat && runs.Load() == 0 && first.Slots > 0:
					late := first
					late.Wait, first.Slots = 0, 0
					id = e.start(nil)
					reply, err := e.b.Claim(ctx, late)
					if err != nil || len(reply.Assignments) != 1 {
						e.Errorf("the late claim got %v, %v", reply.Assignments, err)
					}
				}
				return nil
			})
			e.sleep(time.Minute) // the repeat waits for 20 s, and the pause before it is random
			if runs.Load() != 1 {
				e.Errorf("the execution ran %d times: %s", runs.Load(), e.history(id))
			}
		}},

	{"a claim that fails each time is given up, and the other executions that it won run", func(e *env) {
		var runs atomic.Int32
		c := e.hire(register("w", func(context.Context, any) (int, error) { return int(runs.Add(1)), nil }))
		var large atomic.Pointer[belay.ExecutionID] // each claim that wins this execution fails
		c.wire.set(func(ctx context.Context, c call) error {
			id := large.Load()
			if c.op != "claim" || !c.done || c.err != nil || id == nil {
				return nil
			}
			if x, err := e.b.Execution(ctx, *id); err == nil && x.State == belay.Running {
				return &belay.Error{
					Code: belay.CodePayloadTooLarge, Op: "claim", Message: "the answer has more than a client reads",
				}
			}
			return nil
		})
		all := make([]belay.Submission, 6)
		for i := range all {
			all[i] = belay.Submission{ID: belay.ExecutionID(e.op()), Workflow: "w"}
		}
		large.Store(&all[0].ID)
		if _, err := e.b.Submit(e.ctx, all...); err != nil {
			e.Fatal(err)
		}
		for _, s := range all[1:] {
			if x, err := e.b.Await(e.ctx, s.ID, time.Minute); err != nil || x.State != belay.Succeeded {
				e.Errorf("%s is %s (%v)", s.ID, x.State, err)
			}
		}
		large.Store(nil)
		if x, err := e.b.Await(e.ctx, all[0].ID, time.Minute); err != nil || x.State != belay.Succeeded ||
			x.Attempt > 1 {
			e.Errorf("the large one is %s after %d attempts (%v)", x.State, x.Attempt, err)
		}
	}},

	{"executions that a given-up claim won are released at once", func(e *env) {
		// The worker stops while the reply to its claim is in flight. Another worker continues the
		// executions without waiting for the TTL.
		c := e.hire(register("w", threeSteps), func(o *worker.Options) { o.Grace = time.Minute })
		busy := e.start(nil) // this execution keeps the stopping worker running for a while
		e.settle()
		won := make(chan struct{})
		c.wire.on("claim", true, 1, func(ctx context.Context, _ call) error {
			close(won)
			<-ctx.Done() // keeps the reply back until the worker stops waiting for it
			return errCut
		})
		id := e.start(nil)
		<-won
		e.wantState(id, belay.Running)
		c.stop()
		e.settle()
		e.wantState(id, belay.Pending)
		e.wantState(busy, belay.Running)
		e.hire(register("w", threeSteps))
		want(e, id, "done")
		if e.count(id, "lost") != 0 || e.count(id, "released") != 1 {
			e.Error(e.history(id))
		}
	}},

	{"another worker continues a lost worker's execution after its last step", func(e *env) {
		first := e.hire(register("w", threeSteps))
		id := e.start(nil)
		e.sleep(90 * time.Second)
		first.crash()
		e.hire(register("w", threeSteps))
		want(e, id, "done")
		// The run is lost at 1:30, and the loss is noticed after the TTL at the latest; then the
		// interrupted minute of work is repeated.
		e.within("end", time.Since(e.began), 3*time.Minute+30*time.Second, 3*time.Minute+50*time.Second)
		e.wantKinds(id, "submitted", "started", "step:step 0", "lost", "started", "step:step 1", "step:step 2",
			"succeeded")
	}},

	{"a worker whose session was ended opens another", func(e *env) {
		var causes []error
		e.hire(register("w", func(ctx context.Context, in int) (int, error) {
			_, err := work(ctx, "work", time.Minute)
			if err != nil {
				causes = append(causes, context.Cause(ctx))
			}
			return in, err
		}))
		id := e.start(1)
		e.sleep(10 * time.Second)
		all, err := e.b.Workers(e.ctx)
		if err != nil || len(all) != 1 {
			e.Fatal(all, err)
		}
		if err := e.b.CloseWorker(e.ctx, all[0].ID); err != nil {
			e.Fatal(err)
		}
		want(e, id, 1)
		if len(causes) != 1 || belay.CodeOf(causes[0]) != belay.CodeLeaseLost {
			e.Errorf("causes %v", causes)
		}
		e.within("end", time.Since(e.began), 70*time.Second, 80*time.Second)
		if all, err = e.b.Workers(e.ctx); err != nil || len(all) != 2 {
			e.Fatal(all, err)
		}
	}},

	{"a worker whose heartbeats are refused for the TTL ends with the reason", func(e *env) {
		// With a revoked key the server does not report that the session has ended.
		refusal := &belay.Error{Code: belay.CodeUnauthorized, Message: "the key was revoked"}
		var first atomic.Bool
		var lost error
		fn := register("w", func(ctx context.Context, _ any) (int, error) {
			if !first.CompareAndSwap(false, true) {
				return 2, nil
			}
			<-ctx.Done()
			lost = context.Cause(ctx)
			return 1, nil
		})
		c := e.hire(fn)
		id := e.start(nil)
		e.wantState(id, belay.Running)
		c.crashed.Store(true) // this case expects that the worker ends with an error
		c.wire.set(always(refusal))
		refused := time.Now()
		select {
		case <-c.done:
		case <-time.After(time.Minute):
			c.crash()
			e.Fatal("it asks on and on")
		}
		e.settle()
		e.within("end of the worker", time.Since(refused), belay.DefaultTTL.D()/2, belay.DefaultTTL.D()+3*time.Second)
		if belay.CodeOf(c.err) != belay.CodeUnauthorized || !strings.Contains(c.err.Error(), "revoked") {
			e.Errorf("the worker ended with %v", c.err)
		}
		e.hire(fn)
		want(e, id, 2)
		if !errors.Is(lost, belay.ErrLeaseLost) || !strings.Contains(lost.Error(), "refused every heartbeat") {
			e.Errorf("the run ended with %v", lost)
		}
	}},

	{"one heartbeat renews all runs, and none of them waits for another", func(e *env) {
		c := e.hire(register("w", func(ctx context.Context, in int) (int, error) {
			_, err := work(ctx, "work", time.Minute)
			return in, err
		}), func(o *worker.Options) { o.Concurrency = 200 })
		var beats atomic.Int32
		hold := make(chan struct{})
		c.wire.set(func(ctx context.Context, c call) error {
			switch {
			case c.op == "heartbeat" && !c.done:
				beats.Add(1)
			case c.op == "save" && !c.done: // the calls for checkpoints never return
				<-hold
			}
			return nil
		})
		var ids []belay.ExecutionID
		for i := range 200 {
			ids = append(ids, e.start(i))
		}
		e.sleep(90 * time.Second)
		if n := beats.Load(); n < 17 || n > 22 {
			e.Errorf("%d heartbeats in 90 s", n)
		}
		close(hold)
		for i, id := range ids {
			want(e, id, i)
		}
	}},

	{"a call is not repeated for ever after internal errors of the store", func(e *env) {
		c := e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			return workflow.Step(ctx, "step", func(context.Context) (int, error) { return 1, nil })
		}))
		broken := &belay.Error{Code: belay.CodeInternal, Message: "something broke"}
		c.wire.on("save", false, 4, always(broken))
		id := e.start(nil)
		want(e, id, 1) // the execution succeeds in the second attempt
		if e.count(id, "failed") != 1 {
			e.Error(e.history(id))
		}
	}},

	{"a step is not carried out if its run lost the lease while it asked for its target", func(e *env) {
		var stale atomic.Int32
		c := e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			token := workflow.Token(ctx)
			return workflow.Step(ctx, "step", func(ctx context.Context) (int, error) {
				if x, err := e.b.Execution(e.ctx, workflow.Execution(ctx)); err != nil || x.Token != token ||
					x.State != belay.Running {
					stale.Add(1)
				}
				return 1, nil
			}, workflow.Target("t"))
		}))
		var asked atomic.Bool
		c.wire.set(func(_ context.Context, k call) error {
			switch {
			case k.op == "call target" && k.done && !asked.Swap(true):
				time.Sleep(2 * belay.DefaultTTL.D())
			case k.op == "heartbeat" && asked.Load() && stale.Load() == 0:
				return errCut
			}
			return nil
		})
		id := e.start(nil)
		e.sleep(3 * belay.DefaultTTL.D())
		c.wire.set(nil)
		e.hire(register("w", func(context.Context, any) (int, error) { return 1, nil }))
		want(e, id, 1)
		if n := stale.Load(); n > 0 {
			e.Errorf("the step was carried out %d times without a lease", n)
		}
	}},

	{"a cost is not charged twice if the answer to its checkpoint is an internal error again and again", func(e *env) {
		c := e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			return workflow.Step(ctx, "step", func(ctx context.Context) (int, error) {
				workflow.AddExactCost(ctx, 5)
				return 1, nil
			})
		}))
		c.wire.on("save", true, 4, always(&belay.Error{Code: belay.CodeInternal, Message: "something broke"}))
		id := e.start(nil)
		want(e, id, 1)
		if x := e.get(id); x.CostTokens != 5 || e.count(id, "failed") != 1 {
			e.Errorf("it costs %s: %v", x.CostTokens, e.history(id))
		}
	}},

	{"a thousand executions end, each once", func(e *env) {
		var runs atomic.Int32
		e.hire(register("w", func(_ context.Context, in int) (int, error) {
			runs.Add(1)
			return in, nil
		}), func(o *worker.Options) { o.Concurrency = 100 })
		all := make([]belay.Submission, 1000)
		for i := range all {
			all[i] = belay.Submission{Workflow: "w", Input: fmt.Append(nil, i)}
		}
		answers, err := e.b.Submit(e.ctx, all...)
		if err != nil {
			e.Fatal(err)
		}
		for i, a := range answers {
			if a.Err != nil {
				e.Fatal(a.Err)
			}
			want(e, a.ID, i)
		}
		if runs.Load() != 1000 {
			e.Errorf("%d runs", runs.Load())
		}
	}},
}

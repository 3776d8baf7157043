package sdktest

import (
	"context"
	"errors"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

var stops = []testCase{
	{"running functions may finish within the grace period, and the worker claims nothing meanwhile", func(e *env) {
		c := e.hire(register("w", func(ctx context.Context, in string) (string, error) {
			_, err := work(ctx, "work", 20*time.Second)
			return in, err
		}))
		id := e.start("first")
		e.sleep(5 * time.Second)
		c.stop()
		e.settle()
		second := e.start("second")
		want(e, id, "first")
		<-c.done
		if c.err != nil {
			e.Error(c.err)
		}
		e.within("end", time.Since(e.began), 20*time.Second, 21*time.Second)
		e.wantState(second, belay.Pending)
		all, err := e.b.Workers(e.ctx)
		if err != nil || len(all) != 1 || all[0].State != belay.WorkerDrained {
			e.Errorf("%+v, %v", all, err)
		}
	}},

	{"a cordoned worker keeps its run and claims nothing until it is uncordoned", func(e *env) {
		e.hire(register("w", func(ctx context.Context, in any) (string, error) {
			return work(ctx, "done", 20*time.Second)
		}))
		first := e.start(nil)
		e.sleep(5 * time.Second)
		all, err := e.b.Workers(e.ctx)
		if err != nil || len(all) != 1 {
			e.Fatal(err, all)
		}
		cordon := belay.Cordon{Worker: all[0].ID, Actor: "ann", Reason: "its disk is failing"}
		for range 2 { // the second call changes nothing
			if err := e.b.Cordon(e.ctx, cordon); err != nil {
				e.Fatal(err)
			}
		}
		second := e.start(nil)
		want(e, first, "done")
		e.sleep(10 * time.Minute)
		e.wantState(second, belay.Pending)
		if all, err = e.b.Workers(e.ctx); err != nil || len(all) != 1 || all[0].State != belay.WorkerCordoned {
			e.Errorf("%+v, %v", all, err)
		} else if c := all[0].Cordoned; c == nil || c.By != "ann" || c.Reason != cordon.Reason || c.Since.IsZero() {
			e.Errorf("cordoned: %+v", c)
		}
		e.says(second, "ann cordoned it", cordon.Reason,
			"`belay workers uncordon "+cordon.Worker.String()+"` lets this worker claim again")
		cordon.Off = true
		if err := e.b.Cordon(e.ctx, cordon); err != nil {
			e.Fatal(err)
		}
		lifted := time.Now()
		want(e, second, "done")
		e.within("start again", time.Since(lifted), 20*time.Second, 21*time.Second)
		if err := e.b.Drain(e.ctx, cordon.Worker); err != nil {
			e.Fatal(err)
		}
		if err := e.b.Cordon(e.ctx, cordon); belay.CodeOf(err) != belay.CodeConflict &&
			belay.CodeOf(err) != belay.CodeLeaseLost { // the worker drains, or its session has ended already
			e.Errorf("a draining worker was uncordoned: %v", err)
		}
	}},

	{"an execution with on_no_worker fail ends if no connected worker can take it, now or later", func(e *env) {
		start := func() belay.ExecutionID {
			out, err := e.b.Submit(e.ctx, belay.Submission{
				Workflow: "w", Policy: belay.Policy{OnNoWorker: belay.FailNoWorker},
			})
			if err != nil || out[0].Err != nil {
				e.Fatal(err, out)
			}
			return out[0].ID
		}
		failed := func(id belay.ExecutionID) {
			e.Helper()
			x, err := e.b.Await(e.ctx, id, time.Minute)
			if err != nil || x.State != belay.Failed || x.Error.Message != "no workers available" ||
				x.Error.FailedBy != belay.FailedByDispatcher {
				e.Errorf("it is %s with %+v, %v", x.State, x.Error, err)
			}
		}
		failed(start())
		c := e.hire(register("w", func(ctx context.Context, in any) (string, error) {
			return work(ctx, "done", 20*time.Second)
		}), func(o *worker.Options) { o.Concurrency = 1 })
		e.settle()
		first, second := start(), start() // the worker has one slot, so it runs only the first
		e.sleep(5 * time.Second)
		c.stop()
		want(e, first, "done")
		<-c.done
		failed(second)
	}},

	{"an execution that does not finish within the grace period is released, and no attempt is charged", func(e *env) {
		var cause error
		c := e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			if workflow.Token(ctx)&0xffff > 1 {
				return "second", nil
			}
			_, err := work(ctx, "work", time.Hour)
			cause = context.Cause(ctx)
			return "first", err
		}), func(o *worker.Options) { o.Grace = 10 * time.Second })
		id := e.start(nil)
		e.sleep(5 * time.Second)
		if err := c.end(); err != nil {
			e.Error(err)
		}
		e.within("stop", time.Since(e.began), 15*time.Second, 16*time.Second)
		if !errors.Is(cause, workflow.ErrReleased) {
			e.Errorf("cause %v", cause)
		}
		x := e.wantState(id, belay.Pending)
		if x.Attempt != 1 || x.Losses != 0 {
			e.Errorf("an attempt or a loss was charged: %+v", x)
		}
		e.hire(register("w", func(context.Context, any) (string, error) { return "second", nil }))
		want(e, id, "second")
		if e.count(id, "released") != 1 {
			e.Error(e.history(id))
		}
	}},

	{"if a function does not return, Run ends, and the execution continues once its lease has expired", func(e *env) {
		let := make(chan struct{})
		var late error
		c := e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			<-let // the function does not return when its context ends
			late = workflow.Checkpoint(ctx, 1)
			return "first", nil
		}), func(o *worker.Options) { o.Grace = -1 })
		id := e.start(nil)
		e.settle()
		c.stop()
		<-c.done
		if c.err == nil {
			e.Error("Run returned no error about a function that does not return")
		}
		c.err = nil
		stopped := time.Since(e.began)
		e.within("stop", stopped, 0, 10*time.Second)
		e.hire(register("w", func(context.Context, any) (string, error) { return "second", nil }))
		want(e, id, "second")
		e.within("the second run", time.Since(e.began), belay.DefaultTTL.D(), stopped+belay.DefaultTTL.D()+time.Second)
		if e.count(id, "lost") != 1 || e.count(id, "released") != 0 {
			e.Error("released while its function ran\n" + e.history(id))
		}
		close(let)
		e.settle()
		if !errors.Is(late, belay.ErrLeaseLost) {
			e.Errorf("a late checkpoint: %v", late)
		}
	}},

	{"a waiting run suspends at once when the worker stops", func(e *env) {
		c := e.hire(register("w", approval), func(o *worker.Options) { o.Linger = time.Hour })
		id := e.start(0)
		e.sleep(time.Minute)
		e.wantState(id, belay.Running)
		if err := c.end(); err != nil {
			e.Error(err)
		}
		e.within("stop", time.Since(e.began)-time.Minute, 0, time.Second)
		e.wantState(id, belay.Waiting)
		e.hire(register("w", approval))
		e.signal(id, "approved", "ann")
		want(e, id, "ann")
	}},

	{"an operator drains a worker", func(e *env) {
		c := e.hire(register("w", func(ctx context.Context, in string) (string, error) {
			_, err := work(ctx, "work", 20*time.Second)
			return in, err
		}))
		id := e.start("first")
		e.sleep(5 * time.Second)
		all, err := e.b.Workers(e.ctx)
		if err != nil || len(all) != 1 {
			e.Fatal(all, err)
		}
		if err := e.b.Drain(e.ctx, all[0].ID); err != nil {
			e.Fatal(err)
		}
		e.settle()
		second := e.start("second")
		want(e, id, "first")
		<-c.done
		if c.err != nil {
			e.Error(c.err)
		}
		e.wantState(second, belay.Pending)
	}},

	{"a worker stops while the store cannot be reached", func(e *env) {
		c := e.hire(register("w", threeSteps))
		id := e.start(nil)
		e.sleep(10 * time.Second)
		c.wire.cut()
		c.stop()
		<-c.done
		e.within("stop", time.Since(e.began)-10*time.Second, 0, worker.DefaultGrace+20*time.Second)
		c.err = nil // the case expects the error that the run could not be settled
		c.wire.set(nil)
		e.hire(register("w", threeSteps))
		want(e, id, "done")
	}},
}

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

// family registers two workflows: "c", and "w", which starts "c" as a child and returns the child's
// output.
func family(child func(context.Context, int) (int, error), opts ...workflow.ChildOption) func(*worker.Worker) {
	return func(w *worker.Worker) {
		worker.Register(w, "c", child)
		worker.Register(w, "w", func(ctx context.Context, in int) (int, error) {
			return workflow.Child[int](ctx, "kid", "c", in, opts...)
		})
	}
}

func (e *env) childOf(id belay.ExecutionID) belay.Execution {
	e.Helper()
	page, err := e.b.Executions(e.ctx, belay.Filter{Parent: id})
	if err != nil || len(page.Executions) != 1 {
		e.Fatalf("children of %s: %d, %v", id, len(page.Executions), err)
	}
	return page.Executions[0]
}

var children = []testCase{
	{"Child returns the output of the child", func(e *env) {
		e.hire(family(func(_ context.Context, in int) (int, error) { return 2 * in, nil }))
		id := e.start(21)
		want(e, id, 42)
		kid := e.childOf(id)
		if kid.Trigger != belay.TriggerParent || kid.ParentKey != "kid" {
			e.Errorf("child %+v", kid)
		}
		if e.count(id, "suspended") != 0 {
			e.Error("a parent whose child is quick should not suspend\n" + e.history(id))
		}
	}},

	{"a parent gives its only worker to its child", func(e *env) {
		e.hire(family(func(ctx context.Context, in int) (int, error) {
			_, err := work(ctx, "work", time.Minute)
			return in, err
		}), func(o *worker.Options) { o.Concurrency = 1 })
		id := e.start(5)
		e.sleep(time.Second)
		e.wantState(id, belay.Waiting)
		want(e, id, 5)
		e.within("end", time.Since(e.began), time.Minute, time.Minute+time.Second)
	}},

	{"the error of a failed child has its failure", func(e *env) {
		e.hire(func(w *worker.Worker) {
			worker.Register(w, "c", func(context.Context, any) (int, error) {
				return 0, belay.Permanent(belay.WithOutput(errors.New("broken"), 7))
			})
			worker.Register(w, "w", func(ctx context.Context, handle bool) (string, error) {
				_, err := workflow.Child[int](ctx, "kid", "c", nil)
				var ended *workflow.EndedError
				if handle && errors.As(err, &ended) {
					return ended.Failure.Message + string(ended.Output), nil
				}
				return "", err
			})
		})
		want(e, e.start(true), "broken7")
		ended := wantEnd(e, e.start(false), belay.Failed, "broken")
		if ended.Failure.Class != belay.ClassPermanent {
			e.Errorf("class %s: trying again would find the same child", ended.Failure.Class)
		}
	}},

	{"a parent's next run finds the same child", func(e *env) {
		var kids atomic.Int32
		reg := family(func(ctx context.Context, in int) (int, error) {
			_, err := workflow.Step(ctx, "count", func(context.Context) (int, error) { return int(kids.Add(1)), nil })
			if err != nil {
				return 0, err
			}
			return in, workflow.Sleep(ctx, "nap", 10*time.Minute)
		})
		c := e.hire(reg)
		id := e.start(3)
		e.settle()
		c.crash()
		e.sleep(time.Minute)
		e.hire(reg)
		want(e, id, 3)
		if kids.Load() != 1 {
			e.Errorf("%d children", kids.Load())
		}
	}},

	{"a child whose start was not acknowledged is started once", func(e *env) {
		var kids atomic.Int32
		c := e.hire(family(func(_ context.Context, in int) (int, error) { return in + int(kids.Add(1)), nil }))
		c.wire.on("submit", true, 2, func(context.Context, call) error { return errCut })
		id := e.start(1)
		want(e, id, 2)
		e.childOf(id)
	}},

	{"children run concurrently", func(e *env) {
		e.hire(func(w *worker.Worker) {
			worker.Register(w, "c", func(ctx context.Context, in int) (int, error) {
				_, err := work(ctx, "work", time.Minute)
				return in, err
			})
			worker.Register(w, "w", func(ctx context.Context, n int) (int, error) {
				var futures []*workflow.Future[int]
				for i := range n {
					futures = append(futures, workflow.Go(ctx, "kid", func(ctx context.Context) (int, error) {
						return workflow.Child[int](ctx, "c", "c", i, workflow.With(belay.Label("i", "x")))
					}, workflow.Key(i)))
				}
				sum := 0
				for _, f := range futures {
					v, err := f.Wait(ctx)
					if err != nil {
						return 0, err
					}
					sum += v
				}
				return sum, nil
			})
		}, func(o *worker.Options) { o.Concurrency = 100 })
		id := e.start(50)
		want(e, id, 49*50/2)
		e.within("end", time.Since(e.began), time.Minute, time.Minute+5*time.Second)
	}},

	{"cancelling a parent cancels its children", func(e *env) {
		e.hire(family(func(ctx context.Context, in int) (int, error) {
			_, err := work(ctx, "work", time.Hour)
			return in, err
		}))
		id := e.start(1)
		e.sleep(time.Minute)
		kid := e.childOf(id).ID
		e.act(id, belay.ActionCancel)
		wantEnd(e, id, belay.Cancelled, "")
		wantEnd(e, kid, belay.Cancelled, "")
		e.within("end", time.Since(e.began)-time.Minute, 0, 2*time.Second)
	}},

	{"after an operator's retry children that succeeded keep their results and failed ones run again", func(e *env) {
		var good, bad atomic.Int32
		e.hire(func(w *worker.Worker) {
			worker.Register(w, "good", func(context.Context, any) (int, error) { return int(good.Add(1)), nil })
			worker.Register(w, "bad", func(context.Context, any) (int, error) {
				if bad.Add(1) == 1 {
					return 0, belay.Permanent(errors.New("broken"))
				}
				return 10, nil
			})
			worker.Register(w, "w", func(ctx context.Context, _ any) (int, error) {
				a, err := workflow.Child[int](ctx, "one", "good", nil)
				if err != nil {
					return 0, err
				}
				b, err := workflow.Child[int](ctx, "two", "bad", nil)
				return a + b, err
			})
		})
		id := e.start(nil)
		wantEnd(e, id, belay.Failed, "broken")
		e.act(id, belay.ActionRetry)
		want(e, id, 11)
		if good.Load() != 1 || bad.Load() != 2 {
			e.Errorf("good %d, bad %d", good.Load(), bad.Load())
		}
	}},
}

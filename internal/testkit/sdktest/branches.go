package sdktest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/workflow"
)

// work is a step that takes the time d, or ends when its context ends.
func work(ctx context.Context, name string, d time.Duration) (string, error) {
	return workflow.Step(ctx, name, func(ctx context.Context) (string, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return name, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
}

var branches = []testCase{
	{"branches run concurrently and have names of their own", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			var futures []*workflow.Future[string]
			for i := range 3 {
				futures = append(futures, workflow.Go(ctx, "part", func(ctx context.Context) (string, error) {
					return work(ctx, "same", time.Minute)
				}, workflow.Key(i)))
			}
			var all string
			for _, f := range futures {
				s, err := f.Wait(ctx)
				if err != nil {
					return "", err
				}
				all += s
			}
			return all, nil
		}))
		id := e.start(nil)
		want(e, id, "samesamesame")
		e.within("three minutes of work", time.Since(e.began), time.Minute, time.Minute+time.Second)
		for i := range 3 {
			if e.count(id, fmt.Sprintf("step:part[%d]/same", i)) != 1 {
				e.Error(e.history(id))
			}
		}
	}},

	{"a run suspends when every branch waits, and not before", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			nap := workflow.Go(ctx, "a", func(ctx context.Context) (string, error) {
				return sleeper(ctx, 15*time.Minute)
			})
			ask := workflow.Go(ctx, "b", func(ctx context.Context) (string, error) { return approval(ctx, 0) })
			busy := workflow.Go(ctx, "c", func(ctx context.Context) (string, error) {
				return work(ctx, "work", 10*time.Minute)
			})
			var all string
			for _, f := range []*workflow.Future[string]{nap, ask, busy} {
				s, err := f.Wait(ctx)
				if err != nil {
					return "", err
				}
				all += s + " "
			}
			return all, nil
		}))
		id := e.start(nil)
		e.sleep(9 * time.Minute)
		e.wantState(id, belay.Running)
		e.sleep(2 * time.Minute)
		x := e.wantState(id, belay.Waiting)
		if x.Reason.Text != `signal "approved", sleep "a/nap"` {
			e.Errorf("waits for %s", x.Reason.Text)
		}
		e.signal(id, "approved", "ann")
		e.sleep(time.Minute)
		e.wantState(id, belay.Waiting)
		want(e, id, "rested ann work ")
		e.within("end", time.Since(e.began), 15*time.Minute, 15*time.Minute+time.Second)
		if n := e.count(id, "step:c/work"); n != 1 {
			e.Errorf("the work was saved %d times", n)
		}
	}},

	{"a branch that is woken keeps the others from suspending", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			first := workflow.Go(ctx, "a", func(ctx context.Context) (string, error) {
				who, err := approval(ctx, 0)
				if err != nil {
					return "", err
				}
				return work(ctx, "for "+who, 10*time.Minute)
			})
			second := workflow.Go(ctx, "b", func(ctx context.Context) (string, error) {
				return sleeper(ctx, 15*time.Minute)
			})
			a, err := first.Wait(ctx)
			if err != nil {
				return "", err
			}
			b, err := second.Wait(ctx)
			return a + " " + b, err
		}))
		id := e.start(nil)
		e.sleep(time.Minute)
		e.signal(id, "approved", "ann")
		e.sleep(9 * time.Minute)
		e.wantState(id, belay.Running)
		want(e, id, "for ann rested")
	}},

	{"a panic in a branch fails the run", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			workflow.Go(ctx, "a", func(context.Context) (int, error) { panic("out of cheese") })
			return work(ctx, "long", time.Hour) // the step ends when its context ends
		}))
		id := e.start(nil, belay.WithPolicy(belay.Policy{MaxAttempts: 1}))
		wantEnd(e, id, belay.Failed, "panic: out of cheese")
		e.within("end", time.Since(e.began), 0, time.Second)
	}},

	{"branches left running are ended before the run", func(e *env) {
		var ended error
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			workflow.Go(ctx, "left", func(ctx context.Context) (int, error) {
				<-ctx.Done()
				ended = context.Cause(ctx)
				return 0, nil
			})
			return "over", nil
		}))
		want(e, e.start(nil), "over")
		if ended == nil {
			e.Error("the run was settled while a branch was running")
		}
	}},

	{"branches that wait for each other fail with a deadlock", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			var self *workflow.Future[string]
			ready := make(chan struct{})
			self = workflow.Go(ctx, "self", func(ctx context.Context) (string, error) {
				<-ready
				return self.Wait(ctx)
			})
			close(ready)
			return self.Wait(ctx)
		}))
		wantEnd(e, e.start(nil), belay.Failed, "deadlock")
	}},

	{"the author handles the errors of branches", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			f := workflow.Go(ctx, "a", func(context.Context) (string, error) { return "", errors.New("no luck") })
			if _, err := f.Wait(ctx); err == nil || err.Error() != "no luck" {
				return "", belay.Permanent(fmt.Errorf("got %w", err))
			}
			return "handled", nil
		}))
		want(e, e.start(nil), "handled")
	}},
}

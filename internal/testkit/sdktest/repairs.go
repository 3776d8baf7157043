package sdktest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// shop is a workflow whose approval may take 24 minutes. It counts how often its steps run.
type shop struct{ reserved, shipped atomic.Int32 }

type consent struct{ By string }

func (s *shop) order(ctx context.Context, _ any) (string, error) {
	return orderWith[consent](ctx, s, func(c consent) string { return c.By })
}

// early is the workflow in an earlier version, which accepts every payload.
func (s *shop) early(ctx context.Context, _ any) (string, error) {
	return orderWith[any](ctx, s, func(any) string { return "" })
}

func orderWith[T any](ctx context.Context, s *shop, by func(T) string) (string, error) {
	count := func(name string, n *atomic.Int32) error {
		return workflow.Do(ctx, name, func(context.Context) error { n.Add(1); return nil })
	}
	if err := count("reserve", &s.reserved); err != nil {
		return "", err
	}
	c, err := workflow.WaitSignal[T](ctx, "approved", workflow.Timeout(24*time.Minute))
	if errors.Is(err, workflow.ErrTimeout) {
		return "too late", nil
	}
	if err != nil {
		return "", err
	}
	if by(c) == "" {
		return "", belay.Permanent(errors.New("it was approved by nobody"))
	}
	if err := count("ship", &s.shipped); err != nil {
		return "", err
	}
	return by(c), nil
}

func (s *shop) ran(e *env, reserved, shipped int32) {
	e.Helper()
	if r, x := s.reserved.Load(), s.shipped.Load(); r != reserved || x != shipped {
		e.Errorf("reserved %d times, shipped %d times; want %d and %d", r, x, reserved, shipped)
	}
}

// retryFrom reopens an execution from a step.
func (e *env) retryFrom(id belay.ExecutionID, step string) (belay.Execution, error) {
	return e.b.Control(e.ctx, belay.Control{
		Execution: id, Action: belay.ActionRetry, Actor: "ann", Reason: "wrong answer", From: step,
	})
}

// refusedFrom checks that a retry from a step is refused, with a text in the error.
func (e *env) refusedFrom(id belay.ExecutionID, step string, code belay.Code, text string) {
	e.Helper()
	if _, err := e.retryFrom(id, step); belay.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		e.Errorf("a retry from %q: %v; want %s with %q", step, err, code, text)
	}
}

var repairs = []testCase{
	{"a wait that got a payload of the wrong type asks again after a retry, with its whole timeout", func(e *env) {
		var s shop
		e.hire(register("w", s.order))
		id := e.start(nil)
		e.sleep(23 * time.Minute)
		e.signal(id, "approved", "yes")
		wantEnd(e, id, belay.Failed, "the payload of a signal has the wrong type")
		if d := e.letter(id); d.Reason != "permanent_error" || !strings.Contains(d.Message, "signal approved") {
			e.Errorf("%+v", d)
		}
		e.sleep(30 * time.Minute)
		e.act(id, belay.ActionRetry)
		e.sleep(23 * time.Minute)
		e.explained(id, "signal", `signal "approved"`)
		s.ran(e, 1, 0)
		e.signal(id, "approved", consent{"ann"})
		want(e, id, "ann")
		s.ran(e, 1, 1)
		if n := e.count(id, "step:reserve"); n != 1 {
			e.Errorf("reserve was saved %d times\n%s", n, e.history(id))
		}
	}},

	{"a wait that asks again after a wrong payload times out", func(e *env) {
		var s shop
		e.hire(register("w", s.order))
		id := e.start(nil)
		e.signal(id, "approved", 17)
		wantEnd(e, id, belay.Failed, "wrong type")
		e.act(id, belay.ActionRetry)
		e.sleep(23 * time.Minute)
		e.wantState(id, belay.Waiting)
		want(e, id, "too late")
	}},

	{"a workflow can ask again in the same run", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			for wrong := 0; ; wrong++ {
				_, err := workflow.WaitSignal[consent](ctx, "approved")
				if err == nil || !errors.Is(err, workflow.ErrPayload) {
					return wrong, err
				}
			}
		}))
		id := e.start(nil)
		for _, payload := range []any{"yes", 17, consent{"ann"}} {
			e.signal(id, "approved", payload)
		}
		want(e, id, 2)
	}},

	{"a poison answer that was saved is discarded with its wait, and no finished step is lost", func(e *env) {
		var s shop
		old := e.hire(register("w", s.early))
		id := e.start(nil)
		e.sleep(time.Minute)
		e.refusedFrom(id, "reserve", belay.CodeConflict, "only a failed or cancelled execution")
		e.signal(id, "approved", "yes")
		wantEnd(e, id, belay.Failed, "approved by nobody")
		e.must(old.end())
		e.hire(register("w", s.order))
		e.act(id, belay.ActionRetry)
		// a retry without a step keeps the saved answer
		wantEnd(e, id, belay.Failed, "approved: read as sdktest.consent")
		e.refusedFrom(id, "approve", belay.CodeInvalid, `no step or wait "approve"; it has "reserve", "approved"`)
		e.refusedFrom(id, "' OR 1=1 --", belay.CodeInvalid, "no step or wait")
		x, err := e.retryFrom(id, "approved")
		if err != nil || x.Generation != 3 || x.Reason == nil ||
			!strings.Contains(x.Reason.Text, `by ann from "approved" on`) {
			e.Fatalf("%+v, %v", x, err)
		}
		e.sleep(23 * time.Minute)
		e.explained(id, "signal", `signal "approved"`)
		e.signal(id, "approved", consent{"ann"})
		want(e, id, "ann")
		s.ran(e, 1, 1)
	}},

	{"a fork at a step repeats that step and later ones, and leaves its source as it is", func(e *env) {
		var s shop
		e.hire(register("w", s.order))
		id := e.start(nil)
		e.signal(id, "approved", consent{"ann"})
		want(e, id, "ann")
		fork := func(at string) (belay.Execution, error) {
			return e.b.Control(e.ctx, belay.Control{Execution: id, Action: belay.ActionFork, At: at})
		}
		before := e.history(id)
		f, err := fork("approved")
		if err != nil || f.ID == id || !strings.Contains(f.Reason.Text, `before "approved"`) {
			e.Fatalf("%+v, %v", f, err)
		}
		e.sleep(time.Minute)
		e.explained(f.ID, "signal", `signal "approved"`)
		e.signal(f.ID, "approved", consent{"bert"})
		want(e, f.ID, "bert")
		s.ran(e, 1, 2)
		if f, err = fork("ship"); err != nil {
			e.Fatal(err)
		}
		want(e, f.ID, "ann")
		s.ran(e, 1, 3)
		if _, err = fork("pay"); belay.CodeOf(err) != belay.CodeInvalid ||
			!strings.Contains(err.Error(), `it has "reserve", "approved", "ship"`) {
			e.Error(err)
		}
		want(e, id, "ann")
		if after := e.history(id); !strings.HasPrefix(after, before) {
			e.Errorf("the source has the history\n%s\nhad\n%s", after, before)
		}
	}},

	{"a retry from a step in a branch starts the child that came after it again", func(e *env) {
		var a, kids, sums atomic.Int32
		e.hire(func(w *worker.Worker) {
			worker.Register(w, "c", func(_ context.Context, n int32) (int32, error) { return 10*kids.Add(1) + n, nil })
			worker.Register(w, "w", func(ctx context.Context, _ any) (int32, error) {
				f := workflow.Go(ctx, "branch", func(ctx context.Context) (int32, error) {
					n, err := workflow.Step(ctx, "a", func(context.Context) (int32, error) { return a.Add(1), nil },
						workflow.Key(1))
					if err != nil {
						return 0, err
					}
					return workflow.Child[int32](ctx, "kid", "c", n)
				})
				n, err := f.Wait(ctx)
				if err != nil {
					return 0, err
				}
				if n, err = workflow.Step(ctx, "sum", func(context.Context) (int32, error) {
					return n + 100*sums.Add(1), nil
				}); err == nil && sums.Load() == 1 {
					err = belay.Permanent(errors.New("a wrong sum"))
				}
				return n, err
			})
		})
		id := e.start(nil)
		wantEnd(e, id, belay.Failed, "a wrong sum")
		e.refusedFrom(id, "a", belay.CodeInvalid, `it has "branch/a[1]", "branch/kid", "sum"`)
		kid := e.childOf(id).ID
		e.refusedFrom(kid, "a", belay.CodeConflict, "can run again")
		if _, err := e.retryFrom(id, "branch/a[1]"); err != nil {
			e.Fatal(err)
		}
		want(e, id, 222)
		if a.Load() != 2 || kids.Load() != 2 || sums.Load() != 2 {
			e.Errorf("a %d, kids %d, sums %d", a.Load(), kids.Load(), sums.Load())
		}
	}},
}

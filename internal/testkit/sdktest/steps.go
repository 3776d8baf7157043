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

var steps = []testCase{
	{"a workflow's output is its result", func(e *env) {
		e.hire(register("w", func(_ context.Context, in []int) (map[string]int, error) {
			return map[string]int{"n": len(in)}, nil
		}))
		got, err := result[map[string]int](e, e.start([]int{1, 2, 3}))
		if err != nil || got["n"] != 3 {
			e.Fatal(got, err)
		}
	}},

	{"a finished step is not carried out again", func(e *env) {
		var first, second atomic.Int32
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			a, err := workflow.Step(ctx, "first", func(context.Context) (string, error) {
				return fmt.Sprint("a", first.Add(1)), nil
			})
			if err != nil {
				return "", err
			}
			b, err := workflow.Step(ctx, "second", func(context.Context) (string, error) {
				if second.Add(1) < 3 {
					return "", errors.New("not yet")
				}
				return "b", nil
			})
			return a + b, err
		}))
		id := e.start(nil)
		want(e, id, "a1b")
		if first.Load() != 1 || second.Load() != 3 {
			e.Errorf("the first step ran %d times, the second %d", first.Load(), second.Load())
		}
		if n := e.count(id, "failed"); n != 2 {
			e.Errorf("%d failed runs, want 2\n%s", n, e.history(id))
		}
	}},

	{"a name that is used twice is refused, unless the calls have different keys", func(e *env) {
		e.hire(register("w", func(ctx context.Context, in string) (int, error) {
			sum := 0
			for i := range 3 {
				var opts []workflow.StepOption
				if in == "keys" {
					opts = append(opts, workflow.Key(i))
				}
				n, err := workflow.Step(ctx, "same", func(context.Context) (int, error) { return i, nil }, opts...)
				if err != nil {
					return 0, err
				}
				sum += n
			}
			return sum, nil
		}))
		want(e, e.start("keys"), 3)
		id := e.start("none")
		ended := wantEnd(e, id, belay.Failed, "twice")
		if ended.Failure.Class != belay.ClassPermanent {
			e.Errorf("class %s", ended.Failure.Class)
		}
	}},

	{"a step that failed may be called again under its name", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			for n := 1; ; n++ {
				v, err := workflow.Step(ctx, "try", func(context.Context) (int, error) {
					if n < 3 {
						return 0, errors.New("no")
					}
					return n, nil
				})
				if err == nil {
					return v, nil
				}
			}
		}))
		id := e.start(nil)
		want(e, id, 3)
		e.wantKinds(id, "submitted", "started", "step:try", "succeeded")
	}},

	{"a step with the option Retry is retried within its run", func(e *env) {
		var at []time.Duration
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			return workflow.Step(ctx, "try", func(context.Context) (int, error) {
				at = append(at, time.Since(e.began))
				if len(at) < 4 {
					return 0, errors.New("no")
				}
				return len(at), nil
			}, workflow.Retry(4, time.Second))
		}))
		id := e.start(nil)
		want(e, id, 4)
		e.wantKinds(id, "submitted", "started", "step:try", "succeeded")
		e.within("first wait", at[1]-at[0], time.Second/2, time.Second)
		e.within("third wait", at[3]-at[2], 2*time.Second, 4*time.Second)
	}},

	{"a permanent error ends retries of step and execution", func(e *env) {
		var n atomic.Int32
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			return workflow.Step(ctx, "try", func(context.Context) (int, error) {
				n.Add(1)
				return 0, belay.Permanent(errors.New("never"))
			}, workflow.Retry(5, time.Second))
		}))
		ended := wantEnd(e, e.start(nil), belay.Failed, "never")
		if n.Load() != 1 || ended.Failure.Class != belay.ClassPermanent {
			e.Errorf("tried %d times, class %s", n.Load(), ended.Failure.Class)
		}
	}},

	{"attempts are counted and RetryAfter is kept", func(e *env) {
		var at []time.Time
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			at = append(at, time.Now())
			if workflow.Attempt(ctx) != len(at) {
				return 0, belay.Permanent(fmt.Errorf("attempt %d in run %d", workflow.Attempt(ctx), len(at)))
			}
			return 0, belay.RetryAfter(errors.New("busy"), time.Minute)
		}))
		wantEnd(e, e.start(nil), belay.Failed, "busy")
		if len(at) != belay.DefaultMaxAttempts {
			e.Fatalf("%d runs", len(at))
		}
		for i := range at[1:] {
			e.within("wait", at[i+1].Sub(at[i]), time.Minute, time.Minute+time.Second)
		}
	}},

	{"a panic fails the run with its stack", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			return workflow.Step(ctx, "boom", func(context.Context) (int, error) { panic("out of cheese") })
		}))
		id := e.start(nil, belay.WithPolicy(belay.Policy{MaxAttempts: 1}))
		ended := wantEnd(e, id, belay.Failed, "panic: out of cheese")
		if s := ended.Failure.Stack; !strings.Contains(s, "sdktest") || len(s) > 16<<10 {
			e.Errorf("stack of %d bytes: %.200s", len(s), s)
		}
	}},

	{"an execution whose input cannot be decoded fails without a retry", func(e *env) {
		e.hire(register("w", func(_ context.Context, in int) (int, error) { return in, nil }))
		ended := wantEnd(e, e.start("text"), belay.Failed, "read the input as int")
		if ended.Failure.Class != belay.ClassPermanent {
			e.Errorf("class %s", ended.Failure.Class)
		}
	}},

	{"an execution with a result that the store refuses fails without a retry", func(e *env) {
		e.hire(register("w", func(ctx context.Context, in string) (string, error) {
			big := strings.Repeat("x", belay.MaxPayload)
			switch in {
			case "step":
				return workflow.Step(ctx, "big", func(context.Context) (string, error) { return big, nil })
			case "nul":
				return workflow.Step(ctx, "nul", func(context.Context) (string, error) { return "a\x00b", nil })
			}
			return big, nil
		}))
		for in, text := range map[string]string{"step": "limit", "nul": "NUL", "output": "limit"} {
			ended := wantEnd(e, e.start(in), belay.Failed, text)
			if ended.Failure.Class != belay.ClassPermanent {
				e.Errorf("%s: class %s", in, ended.Failure.Class)
			}
		}
	}},

	{"a failed run keeps the output given by WithOutput", func(e *env) {
		e.hire(register("w", func(context.Context, any) (int, error) {
			return 0, belay.Permanent(belay.WithOutput(errors.New("exit code 3"), map[string]int{"exit_code": 3}))
		}))
		ended := wantEnd(e, e.start(nil), belay.Failed, "exit code 3")
		if string(ended.Output) != `{"exit_code":3}` {
			e.Errorf("output %s", ended.Output)
		}
	}},

	{"a step has one idempotency key in every run, a run one token", func(e *env) {
		var keys []string
		var tokens []belay.Token
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			return workflow.Step(ctx, "charge card", func(ctx context.Context) (string, error) {
				keys = append(keys, workflow.IdempotencyKey(ctx))
				tokens = append(tokens, workflow.Token(ctx))
				if len(keys) < 2 {
					return "", errors.New("again")
				}
				return workflow.Execution(ctx).String(), nil
			}, workflow.Key("7"))
		}))
		id := e.start(nil)
		want(e, id, id.String())
		if len(keys) != 2 || keys[0] != keys[1] || keys[0] != id.String()+"/charge%20card%5B7%5D" {
			e.Errorf("keys %q", keys)
		}
		if tokens[1] <= tokens[0] {
			e.Errorf("tokens %d", tokens)
		}
	}},

	{"State is the state that Checkpoint saved last", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			n, ok, err := workflow.State[int](ctx)
			if err != nil || ok != (workflow.Attempt(ctx) > 1) {
				return 0, belay.Permanent(fmt.Errorf("state %d, %v, %w", n, ok, err))
			}
			if n == 20 {
				return n, nil
			}
			return 0, errors.Join(workflow.Checkpoint(ctx, n+5), workflow.Checkpoint(ctx, n+10), errors.New("again"))
		}))
		want(e, e.start(nil), 20)
	}},

	{"an execution with a version runs with the function registered for that version", func(e *env) {
		e.hire(func(w *worker.Worker) {
			worker.Register(w, "w", func(context.Context, any) (string, error) { return "none", nil })
			worker.Register(w, "w", func(context.Context, any) (string, error) {
				return "v2", nil
			}, worker.Version("v2"))
		})
		want(e, e.start(nil), "none")
		want(e, e.start(nil, belay.Version("v2")), "v2")
		e.sleep(time.Minute)
		e.wantState(e.start(nil, belay.Version("v3")), belay.Pending)
	}},

	{"calls with invalid names or contexts are refused", func(e *env) {
		if _, err := workflow.Step(e.ctx, "s", func(context.Context) (int, error) { return 1, nil }); err == nil {
			e.Error("a step outside of a run was carried out")
		}
		e.hire(register("w", func(ctx context.Context, in string) (int, error) {
			return workflow.Step(ctx, "outer", func(ctx context.Context) (int, error) {
				switch in {
				case "step":
					return workflow.Step(ctx, "inner", func(context.Context) (int, error) { return 1, nil })
				case "sleep":
					return 1, workflow.Sleep(ctx, "inner", time.Hour)
				case "go":
					return workflow.Go(ctx, "inner", func(context.Context) (int, error) { return 1, nil }).Wait(ctx)
				}
				return workflow.WaitSignal[int](ctx, "inner")
			})
		}))
		for _, in := range []string{"step", "sleep", "go", "signal"} {
			wantEnd(e, e.start(in), belay.Failed, `inside step "outer"`)
		}
	}},

	{"a submission with the same idempotency key finds the same execution", func(e *env) {
		e.hire(register("w", func(_ context.Context, in int) (int, error) { return in, nil }))
		a, b := e.start(1, belay.IdempotencyKey("k")), e.start(1, belay.IdempotencyKey("k"))
		if a != b {
			e.Errorf("two executions: %s, %s", a, b)
		}
		_, err := workflow.Start[int](e.ctx, e.b, "w", 2, belay.IdempotencyKey("k"))
		if belay.CodeOf(err) != belay.CodeIdempotencyMismatch {
			e.Errorf("another body: %v", err)
		}
		want(e, a, 1)
	}},

	{"an execution begins when it is due, and not before", func(e *env) {
		e.hire(register("w", func(_ context.Context, in int) (int, error) { return in, nil }))
		due := time.Now().Add(10 * time.Minute)
		id := e.start(1, belay.DueAt(due))
		want(e, id, 1)
		if at := e.get(id).StartedAt; at.Before(due) || at.Sub(due) > time.Second {
			e.Errorf("due at %s, it began at %s", due, at)
		}
	}},

	{"costs are added up once", func(e *env) {
		c := e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			workflow.AddCost(ctx, 100)
			err := workflow.Do(ctx, "ask", func(ctx context.Context) error {
				workflow.AddCost(ctx, 20)
				workflow.AddExactCost(ctx, 2_501)
				return nil
			})
			workflow.AddCost(ctx, 3)
			workflow.AddExactCost(ctx, -1)
			workflow.AddCost(ctx, -1)
			return 0, err
		}))
		c.wire.on("save", true, 1, func(context.Context, call) error { return errCut })
		id := e.start(nil)
		want(e, id, 0)
		if got := e.get(id).CostTokens; got.String() != "123.2501" {
			e.Errorf("cost %s, want 123.2501", got)
		}
	}},
}

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

// sleeper is a workflow that sleeps for the time in its input.
func sleeper(ctx context.Context, d time.Duration) (string, error) {
	if err := workflow.Sleep(ctx, "nap", d); err != nil {
		return "", err
	}
	return "rested", nil
}

// approval is a workflow that waits for a signal with the timeout in its input; 0 means no timeout.
func approval(ctx context.Context, timeout time.Duration) (string, error) {
	var opts []workflow.WaitOption
	if timeout != 0 {
		opts = append(opts, workflow.Timeout(timeout))
	}
	who, err := workflow.WaitSignal[string](ctx, "approved", opts...)
	if errors.Is(err, workflow.ErrTimeout) {
		return "nobody", nil
	}
	return who, err
}

// explained checks that a waiting execution has the given reason code and that Explain returns the
// given facts.
func (e *env) explained(id belay.ExecutionID, code string, facts ...string) {
	e.Helper()
	if x := e.wantState(id, belay.Waiting); x.Reason == nil || x.Reason.Code != code {
		e.Errorf("the reason is %+v, want %s", x.Reason, code)
	}
	e.says(id, facts...)
}

// says checks that the explanation of an execution contains texts.
func (e *env) says(id belay.ExecutionID, facts ...string) {
	e.Helper()
	x, err := e.b.Explain(e.ctx, id)
	e.must(err)
	all := strings.Join(append(x.Facts, x.Summary), "\n")
	for _, f := range facts {
		if !strings.Contains(all, f) {
			e.Errorf("the explanation does not say %s:\n%s", f, all)
		}
	}
}

var waits = []testCase{
	{"a wait has the reason of its kind, and signals of other names are explained", func(e *env) {
		e.hire(register("w", approval))
		id := e.start(time.Hour)
		e.signal(id, "aproved", "me")
		e.sleep(time.Minute)
		e.explained(id, "signal", `signal "approved"`, `signal "aproved" (received: 1) was not consumed`,
			"by the timeout of the wait", "`belay signal "+id.String()+" approved` sends this signal")
		e.signal(id, "approved", "you")
		want(e, id, "you")
	}},

	{"the reason of a sleep is timer", func(e *env) {
		e.hire(register("w", sleeper))
		e.explained(e.start(time.Hour), "timer", `sleep "nap"`)
	}},

	{"a wait for a child names the child", func(e *env) {
		e.hire(family(func(ctx context.Context, _ int) (int, error) {
			return 0, workflow.Sleep(ctx, "nap", time.Hour)
		}))
		id := e.start(1)
		e.sleep(time.Minute)
		e.explained(id, "child", `child "kid"`, "its child "+e.childOf(id).ID.String()+", workflow c, is waiting")
	}},

	{"a short sleep keeps its worker", func(e *env) {
		e.hire(register("w", sleeper))
		id := e.start(500 * time.Millisecond)
		want(e, id, "rested")
		e.wantKinds(id, "submitted", "started", "wait:nap", "succeeded")
		e.within("sleep", time.Since(e.began), 500*time.Millisecond, 600*time.Millisecond)
	}},

	{"a long sleep gives its worker back and ends on time", func(e *env) {
		e.hire(register("w", sleeper), func(o *worker.Options) { o.Concurrency = 1 })
		first := e.start(10 * time.Minute)
		e.wantState(first, belay.Waiting)
		second := e.start(time.Millisecond)
		want(e, second, "rested")
		want(e, first, "rested")
		e.within("sleep", time.Since(e.began), 10*time.Minute, 10*time.Minute+time.Second)
		e.wantKinds(first, "submitted", "started", "wait:nap", "suspended", "started", "succeeded")
	}},

	{"a crash does not start a sleep over", func(e *env) {
		// The run sleeps in one branch while another branch keeps it busy.
		begin := func(w *worker.Worker) {
			worker.Register(w, "w", func(ctx context.Context, _ any) (string, error) {
				nap := workflow.Go(ctx, "nap", func(ctx context.Context) (string, error) {
					return sleeper(ctx, 10*time.Minute)
				})
				busy := workflow.Go(ctx, "busy", func(ctx context.Context) (string, error) {
					return workflow.Step(ctx, "work", func(ctx context.Context) (string, error) {
						select {
						case <-time.After(5 * time.Minute):
							return "", nil
						case <-ctx.Done():
							return "", context.Cause(ctx)
						}
					})
				})
				_, err := nap.Wait(ctx)
				_, err2 := busy.Wait(ctx)
				return "rested", errors.Join(err, err2)
			})
		}
		c := e.hire(begin)
		id := e.start(nil)
		e.sleep(4 * time.Minute)
		c.crash()
		e.sleep(time.Minute)
		e.hire(begin)
		want(e, id, "rested")
		// The execution loses its owner at 4:00, and the loss is noticed 15 s later, so the step
		// ends at 10:00 at the earliest.
		e.within("sleep and step", time.Since(e.began), 10*time.Minute, 10*time.Minute+2*time.Second)
		if n := e.count(id, "wait:nap/nap"); n != 1 {
			e.Errorf("the sleep was begun %d times\n%s", n, e.history(id))
		}
	}},

	{"a sleep whose execution is woken early continues", func(e *env) {
		e.hire(register("w", sleeper))
		id := e.start(10 * time.Minute)
		e.sleep(time.Minute)
		e.signal(id, "noise", nil)
		e.wantState(id, belay.Waiting)
		want(e, id, "rested")
		e.within("sleep", time.Since(e.began), 10*time.Minute, 10*time.Minute+time.Second)
	}},

	{"a later run does not repeat a finished sleep", func(e *env) {
		var runs atomic.Int32
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			for i := range 5 {
				if err := workflow.Sleep(ctx, "nap", 800*time.Millisecond, workflow.Key(i)); err != nil {
					return "", err
				}
			}
			if runs.Add(1) < 3 {
				return "", errors.New("again")
			}
			return time.Since(e.began).Truncate(time.Second).String(), nil
		}), func(o *worker.Options) { o.Linger = time.Second })
		// The execution has three runs, with retry delays of at most 1 s and 2 s between them. The
		// first run does all five sleeps; the later runs do not repeat any, so all runs together take
		// less than 8 s.
		got, err := result[string](e, e.start(nil))
		if d, _ := time.ParseDuration(got); err != nil || d > 8*time.Second {
			e.Error(got, err)
		}
	}},

	{"a signal delivered before the wait is taken", func(e *env) {
		id := e.start(0)
		e.signal(id, "approved", "ann")
		e.hire(register("w", approval))
		want(e, id, "ann")
		e.wantKinds(id, "submitted", "signal:approved", "started", "wait:approved", "succeeded")
	}},

	{"a signal reaches a run that lingers", func(e *env) {
		e.hire(register("w", approval), func(o *worker.Options) { o.Linger = time.Minute })
		id := e.start(0)
		e.sleep(30 * time.Second)
		e.signal(id, "approved", "ann")
		want(e, id, "ann")
		e.within("signal", time.Since(e.began)-30*time.Second, 0, time.Second)
		if e.count(id, "suspended") != 0 {
			e.Error(e.history(id))
		}
	}},

	{"signals of other names do not keep a run from suspending", func(e *env) {
		e.hire(register("w", approval))
		id := e.start(0)
		for range 10 {
			e.sleep(500 * time.Millisecond)
			e.signal(id, "noise", nil)
		}
		e.sleep(1200 * time.Millisecond) // during this time, the last signal wakes the execution once more
		e.wantState(id, belay.Waiting)
		if n := e.count(id, "suspended"); n < 3 {
			e.Errorf("suspended %d times in 5 s\n%s", n, e.history(id))
		}
		e.signal(id, "approved", "ann")
		want(e, id, "ann")
	}},

	{"a signal wakes an execution that suspended", func(e *env) {
		e.hire(register("w", approval))
		id := e.start(0)
		e.sleep(time.Minute)
		x := e.wantState(id, belay.Waiting)
		if x.Reason == nil || x.Reason.Code != "signal" || x.Reason.Text != `signal "approved"` {
			e.Errorf("reason %+v", x.Reason)
		}
		e.signal(id, "approved", "ann")
		want(e, id, "ann")
		e.within("wake-up", time.Since(e.began)-time.Minute, 0, time.Second)
	}},

	{"a timeout ends a wait on time, and for good", func(e *env) {
		var runs atomic.Int32
		e.hire(register("w", func(ctx context.Context, d time.Duration) (string, error) {
			who, err := approval(ctx, d)
			if err != nil {
				return "", err
			}
			if runs.Add(1) < 2 {
				return "", belay.RetryAfter(errors.New("again"), time.Minute)
			}
			late, err := workflow.WaitSignal[string](ctx, "approved", workflow.Key("second"))
			return who + " then " + late, err
		}))
		id := e.start(10 * time.Minute)
		e.sleep(10*time.Minute + time.Second)
		e.signal(id, "approved", "late") // the second wait consumes this signal, also if another run repeats that wait
		want(e, id, "nobody then late")
		e.within("end", time.Since(e.began), 11*time.Minute, 11*time.Minute+2*time.Second)
	}},

	{"a wait with a timeout consumes a signal that arrives in time", func(e *env) {
		e.hire(register("w", approval))
		id := e.start(10 * time.Minute)
		e.sleep(9 * time.Minute)
		e.signal(id, "approved", "ann")
		want(e, id, "ann")
	}},

	{"a signal that was accepted in time counts, even if no heartbeat announced it", func(e *env) {
		c := e.hire(register("w", approval), func(o *worker.Options) { o.Linger = time.Minute })
		id := e.start(10 * time.Second)
		e.settle()
		c.wire.set(func(_ context.Context, c call) error { // the worker gets no replies to heartbeats
			if c.op == "heartbeat" || c.op == "claim" {
				return errCut
			}
			return nil
		})
		e.sleep(5 * time.Second)
		e.signal(id, "approved", "ann")
		e.sleep(4500 * time.Millisecond) // still before the fence closes at 10 s
		c.wire.set(nil)
		want(e, id, "ann")
	}},

	{"a wait with timeout 0 does not block", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			_, err := workflow.WaitSignal[string](ctx, "approved", workflow.Timeout(0))
			if !errors.Is(err, workflow.ErrTimeout) {
				return "", fmt.Errorf("looked and got %w", err)
			}
			return "nothing", nil
		}))
		want(e, e.start(nil), "nothing")
		e.within("look", time.Since(e.began), 0, 100*time.Millisecond)
	}},

	{"signals of one name are consumed in order, each once", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			var all string
			for i := range 4 {
				s, err := workflow.WaitSignal[string](ctx, "letter", workflow.Key(i))
				if err != nil {
					return "", err
				}
				all += s
			}
			return all, nil
		}))
		id := e.start(nil)
		for _, s := range []string{"a", "b", "c"} {
			e.signal(id, "letter", s)
		}
		e.sleep(time.Minute)
		e.wantState(id, belay.Waiting)
		e.signal(id, "other", "x")
		e.signal(id, "letter", "d")
		want(e, id, "abcd")
	}},

	{"a run continues from more checkpoints and signals than fit into one reply", large(func(e *env) {
		const steps, letters = 10, 30
		begun := make(map[string]int)
		e.hire(register("w", func(ctx context.Context, in string) (string, error) {
			sum := len(in)
			for i := range steps {
				s, err := workflow.Step(ctx, "large", func(context.Context) (string, error) {
					begun[fmt.Sprint("step ", i)]++
					return strings.Repeat("x", 900_000), nil
				}, workflow.Key(i))
				if err != nil {
					return "", err
				}
				sum += len(s)
			}
			if begun["run"]++; begun["run"] == 1 {
				return "", errors.New("again")
			}
			for i := range letters {
				s, err := workflow.WaitSignal[string](ctx, "letter", workflow.Key(i))
				if err != nil {
					return "", err
				}
				if n := strings.Index(s, " "); s[:n] != fmt.Sprint(i) {
					return "", belay.Permanent(fmt.Errorf("signal %d has the payload %s", i, s[:n]))
				}
				sum += len(s)
			}
			return fmt.Sprint(sum), nil
		}))
		in := strings.Repeat("i", 1_000_000)
		id := e.start(in)
		sum := len(in) + steps*900_000
		for i := range letters {
			s := fmt.Sprint(i, " ", strings.Repeat("y", 60_000))
			sum += len(s)
			e.signal(id, "letter", s)
		}
		want(e, id, fmt.Sprint(sum))
		if begun["run"] != 2 || begun["step 0"] != 1 || len(begun) != steps+1 {
			e.Errorf("begun: %v", begun)
		}
	})},

	{"a signal whose checkpoint's reply was lost is not consumed twice", func(e *env) {
		c := e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			a, err := workflow.WaitSignal[string](ctx, "letter", workflow.Key(1))
			if err != nil {
				return "", err
			}
			b, err := workflow.WaitSignal[string](ctx, "letter", workflow.Key(2))
			return a + b, err
		}))
		c.wire.on("save", true, 3, func(context.Context, call) error { return errCut })
		id := e.start(nil)
		e.signal(id, "letter", "a")
		e.signal(id, "letter", "b")
		want(e, id, "ab")
		if n := e.count(id, "wait:letter[1]"); n != 1 {
			e.Errorf("saved %d times\n%s", n, e.history(id))
		}
	}},

	{"a function that ignores ErrYield suspends all the same", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			who, err := workflow.WaitSignal[string](ctx, "approved")
			if err != nil {
				return "gave up", nil // the function ignores ErrYield, the mistake that this case tests
			}
			return who, nil
		}))
		id := e.start(nil)
		e.sleep(time.Minute)
		e.wantState(id, belay.Waiting)
		e.signal(id, "approved", "ann")
		want(e, id, "ann")
	}},

	{"no step is carried out after a run has suspended", func(e *env) {
		var after atomic.Int32
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			_, err := workflow.WaitSignal[string](ctx, "approved")
			step := workflow.Do(ctx, "after", func(context.Context) error {
				after.Add(1)
				return nil
			})
			if err != nil && !errors.Is(step, workflow.ErrYield) {
				return "", belay.Permanent(fmt.Errorf("a step after the end: %w", step))
			}
			return "done", errors.Join(err, step)
		}))
		id := e.start(nil)
		e.sleep(time.Minute)
		e.signal(id, "approved", nil)
		want(e, id, "done")
		if after.Load() != 1 {
			e.Errorf("the step ran %d times", after.Load())
		}
	}},
}

package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// serve opens a Backend in memory and runs the workflows on it.
func serve(register func(w *worker.Worker)) (b belay.Backend, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	quiet := slog.New(slog.DiscardHandler)
	b, err := open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	w := worker.New(b, worker.Options{Log: quiet})
	register(w)
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	return b, func() {
		cancel()
		if err := errors.Join(<-done, b.Close()); err != nil {
			panic(err)
		}
	}
}

// soon is a policy with a short delay before a retry, so that an Example does not wait for a
// second.
var soon = belay.WithPolicy(belay.Policy{BackoffBase: belay.Duration(10 * time.Millisecond)})

// result runs an execution and prints its result.
func result(workflowName string, input any, register func(w *worker.Worker)) {
	b, stop := serve(register)
	defer stop()
	ctx := context.Background()
	h, err := workflow.Start[any](ctx, b, workflowName, input, soon)
	if err != nil {
		fmt.Println(err)
		return
	}
	v, err := h.Result(ctx)
	fmt.Println(v, err)
}

// A step that has finished is not executed again when the workflow function later returns an error
// and the execution is retried.
func ExampleStep() {
	greet := func(ctx context.Context, name string) (string, error) {
		greeting, err := workflow.Step(ctx, "compose", func(context.Context) (string, error) {
			fmt.Println("composing")
			return "hello " + name, nil
		})
		if err != nil {
			return "", err
		}
		if workflow.Attempt(ctx) == 1 {
			return "", errors.New("the line is busy")
		}
		return greeting, nil
	}
	result("greet", "ann", func(w *worker.Worker) { worker.Register(w, "greet", greet) })
	// Output:
	// composing
	// hello ann <nil>
}

// The author lets this step be tried up to five times within one run, with workflow.Retry, because
// a refused connection usually works again within seconds.
func ExampleRetry() {
	tries := 0
	fetch := func(ctx context.Context, _ any) (string, error) {
		return workflow.Step(ctx, "fetch", func(context.Context) (string, error) {
			if tries++; tries < 3 {
				return "", errors.New("connection refused")
			}
			return fmt.Sprintf("fetched at try %d", tries), nil
		}, workflow.Retry(5, 10*time.Millisecond))
	}
	result("fetch", nil, func(w *worker.Worker) { worker.Register(w, "fetch", fetch) })
	// Output: fetched at try 3 <nil>
}

// All executions whose steps name a target share its circuit breaker. While the breaker is open, such
// steps are not called, and their executions wait without a worker.
func ExampleTarget() {
	pay := func(ctx context.Context, cents int) (string, error) {
		return workflow.Step(ctx, "charge", func(context.Context) (string, error) {
			return fmt.Sprintf("%d cents charged", cents), nil
		}, workflow.Target("payments:charge"), workflow.Retry(3, time.Second))
	}
	result("pay", 500, func(w *worker.Worker) { worker.Register(w, "pay", pay) })
	// Output: 500 cents charged <nil>
}

// A step in a loop needs another key in each iteration.
func ExampleKey() {
	sum := func(ctx context.Context, parts []int) (int, error) {
		total := 0
		for i, part := range parts {
			n, err := workflow.Step(ctx, "square", func(context.Context) (int, error) {
				return part * part, nil
			}, workflow.Key(i))
			if err != nil {
				return 0, err
			}
			total += n
		}
		return total, nil
	}
	result("sum", []int{1, 2, 3}, func(w *worker.Worker) { worker.Register(w, "sum", sum) })
	// Output: 14 <nil>
}

// Do executes a step that has no result: this step sends a mail.
func ExampleDo() {
	notify := func(ctx context.Context, name string) (string, error) {
		err := workflow.Do(ctx, "send mail", func(context.Context) error {
			fmt.Println("mail to", name)
			return nil
		})
		return "sent", err
	}
	result("notify", "ann", func(w *worker.Worker) { worker.Register(w, "notify", notify) })
	// Output:
	// mail to ann
	// sent <nil>
}

// Branches run concurrently.
func ExampleGo() {
	both := func(ctx context.Context, _ any) (string, error) {
		part := func(name string) *workflow.Future[string] {
			return workflow.Go(ctx, name, func(ctx context.Context) (string, error) {
				return workflow.Step(ctx, "fetch", func(context.Context) (string, error) { return name, nil })
			})
		}
		left, right := part("left"), part("right")
		l, err := left.Wait(ctx)
		if err != nil {
			return "", err
		}
		r, err := right.Wait(ctx)
		return l + " and " + r, err
	}
	result("both", nil, func(w *worker.Worker) { worker.Register(w, "both", both) })
	// Output: left and right <nil>
}

// A sleep never ends early, even if the worker crashes during the sleep. During a long sleep the
// execution waits in the store without a worker.
func ExampleSleep() {
	remind := func(ctx context.Context, _ any) (string, error) {
		if err := workflow.Sleep(ctx, "a moment", 20*time.Millisecond); err != nil {
			return "", err
		}
		return "time to go", nil
	}
	result("remind", nil, func(w *worker.Worker) { worker.Register(w, "remind", remind) })
	// Output: time to go <nil>
}

// A workflow waits for the approval of a person.
func ExampleWaitSignal() {
	type approval struct{ By string }
	review := func(ctx context.Context, change string) (string, error) {
		ok, err := workflow.WaitSignal[approval](ctx, "approved", workflow.Timeout(24*time.Hour))
		if err != nil {
			return "", err
		}
		return change + " approved by " + ok.By, nil
	}
	b, stop := serve(func(w *worker.Worker) { worker.Register(w, "review", review) })
	defer stop()
	ctx := context.Background()
	h, err := workflow.Start[string](ctx, b, "review", "pr-17")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := h.Signal(ctx, "approved", approval{By: "ann"}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(h.Result(ctx))
	// Output: pr-17 approved by ann <nil>
}

// A wait returns ErrTimeout when it exceeds its Timeout.
func ExampleTimeout() {
	ask := func(ctx context.Context, _ any) (string, error) {
		_, err := workflow.WaitSignal[string](ctx, "answer", workflow.Timeout(20*time.Millisecond))
		if errors.Is(err, workflow.ErrTimeout) {
			return "nobody answered", nil
		}
		return "", err
	}
	result("ask", nil, func(w *worker.Worker) { worker.Register(w, "ask", ask) })
	// Output: nobody answered <nil>
}

// A workflow starts a child, which is an execution of the workflow "double", and waits for its
// output.
func ExampleChild() {
	double := func(_ context.Context, n int) (int, error) { return 2 * n, nil }
	parent := func(ctx context.Context, n int) (int, error) {
		return workflow.Child[int](ctx, "doubled", "double", n, workflow.With(belay.Priority(5)))
	}
	result("parent", 21, func(w *worker.Worker) {
		worker.Register(w, "double", double)
		worker.Register(w, "parent", parent)
	})
	// Output: 42 <nil>
}

// The error of a failed child has the child's failure.
func ExampleEndedError() {
	broken := func(context.Context, any) (int, error) { return 0, belay.Permanent(errors.New("out of paper")) }
	parent := func(ctx context.Context, _ any) (string, error) {
		_, err := workflow.Child[int](ctx, "print", "broken", nil)
		var ended *workflow.EndedError
		if errors.As(err, &ended) {
			return fmt.Sprintf("the child %s: %s", ended.State, ended.Failure.Message), nil
		}
		return "", err
	}
	result("parent", nil, func(w *worker.Worker) {
		worker.Register(w, "broken", broken)
		worker.Register(w, "parent", parent)
	})
	// Output: the child failed: out of paper <nil>
}

// A long loop saves its position with Checkpoint. After a failure the next run continues from the
// saved position.
func ExampleCheckpoint() {
	count := func(ctx context.Context, _ any) (int, error) {
		done, _, err := workflow.State[int](ctx)
		if err != nil {
			return 0, err
		}
		for ; done < 4; done++ {
			if done == 2 && workflow.Attempt(ctx) == 1 {
				return 0, errors.New("power cut")
			}
			fmt.Println("page", done)
			if err := workflow.Checkpoint(ctx, done+1); err != nil {
				return 0, err
			}
		}
		return done, nil
	}
	result("count", nil, func(w *worker.Worker) { worker.Register(w, "count", count) })
	// Output:
	// page 0
	// page 1
	// page 2
	// page 3
	// 4 <nil>
}

// When an operator preempts an execution for more urgent work, its long step saves its state and
// gives the execution back. The next run continues from the saved state.
func ExamplePreempted() {
	working := make(chan belay.ExecutionID, 1)
	train := func(ctx context.Context, _ any) (string, error) {
		return workflow.Step(ctx, "train", func(ctx context.Context) (string, error) {
			epoch, resumed, err := workflow.State[int](ctx)
			if err != nil || resumed {
				return fmt.Sprint("resumed at epoch ", epoch), err
			}
			working <- workflow.Execution(ctx)
			<-workflow.Preempted(ctx)
			if err := workflow.Checkpoint(ctx, 7); err != nil {
				return "", err
			}
			return "", workflow.ErrYield
		})
	}
	b, stop := serve(func(w *worker.Worker) { worker.Register(w, "train", train) })
	defer stop()
	ctx := context.Background()
	h, err := workflow.Start[string](ctx, b, "train", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := b.Control(ctx, belay.Control{Execution: <-working, Action: belay.ActionPreempt}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(h.Result(ctx))
	// Output: resumed at epoch 7 <nil>
}

// A step with an effect on another system sends two values with its request: the idempotency key,
// which is the same in every run of the execution, and the fencing token, which grows with every
// claim.
func ExampleIdempotencyKey() {
	charge := func(ctx context.Context, _ any) (string, error) {
		return workflow.Step(ctx, "charge card", func(ctx context.Context) (string, error) {
			key := strings.TrimPrefix(workflow.IdempotencyKey(ctx), workflow.Execution(ctx).String())
			return fmt.Sprintf("execution%s, token %d", key, workflow.Token(ctx)), nil
		})
	}
	result("charge", nil, func(w *worker.Worker) { worker.Register(w, "charge", charge) })
	// Output: execution/charge%20card, token 1 <nil>
}

// A long step calls Guard before each effect on a system that does not check the fencing token, to
// make sure that the run still owns its execution.
func ExampleGuard() {
	deploy := func(ctx context.Context, hosts []string) (int, error) {
		return workflow.Step(ctx, "deploy", func(ctx context.Context) (int, error) {
			for _, host := range hosts {
				if err := workflow.Guard(ctx); err != nil {
					return 0, err
				}
				fmt.Println("deploy to", host)
			}
			return len(hosts), nil
		})
	}
	result("deploy", []string{"a", "b"}, func(w *worker.Worker) { worker.Register(w, "deploy", deploy) })
	// Output:
	// deploy to a
	// deploy to b
	// 2 <nil>
}

// Another program reads the log of an execution.
func ExampleOutput() {
	build := func(ctx context.Context, _ any) (string, error) {
		log := workflow.Output(ctx, "log")
		fmt.Fprintln(log, "compiling")
		fmt.Fprintln(log, "linking")
		if err := log.Close(); err != nil {
			return "", err
		}
		_, err := workflow.Artifact(ctx, "binary", strings.NewReader("\x7fELF…"))
		return "built", err
	}
	b, stop := serve(func(w *worker.Worker) { worker.Register(w, "build", build) })
	defer stop()
	ctx := context.Background()
	h, err := workflow.Start[string](ctx, b, "build", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(h.Result(ctx))
	chunks, err := b.Chunks(ctx, belay.ChunkQuery{Execution: h.ID(), Name: "log"})
	for _, c := range chunks {
		fmt.Print(string(c.Data))
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// built <nil>
	// compiling
	// linking
}

// An artifact is the content of a reader, stored with the execution.
func ExampleArtifact() {
	report := func(ctx context.Context, _ any) (int64, error) {
		return workflow.Artifact(ctx, "report", io.LimitReader(strings.NewReader("all is well, and more"), 11))
	}
	result("report", nil, func(w *worker.Worker) { worker.Register(w, "report", report) })
	// Output: 11 <nil>
}

// Two submissions with the same idempotency key create one execution.
func ExampleStart() {
	b, stop := serve(func(w *worker.Worker) {
		worker.Register(w, "review", func(_ context.Context, change string) (string, error) {
			fmt.Println("reviewing", change)
			return "looks good", nil
		})
	})
	defer stop()
	ctx := context.Background()
	for range 2 {
		h, err := workflow.Start[string](ctx, b, "review", "pr-17", belay.IdempotencyKey("pr-17@3f2c"))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(h.Result(ctx))
	}
	// Output:
	// reviewing pr-17
	// looks good <nil>
	// looks good <nil>
}

// A submission names a limit: while a deployment of the shop is under way, a second one is refused.
func ExampleStart_gates() {
	release := make(chan struct{})
	b, stop := serve(func(w *worker.Worker) {
		worker.Register(w, "deploy", func(_ context.Context, version string) (string, error) {
			<-release
			return version + " deployed", nil
		})
	})
	defer stop()
	ctx := context.Background()
	alone := belay.WithGates(belay.Gates{
		Concurrency: &belay.Concurrency{Name: "shop", Max: 1, WhenFull: belay.RejectWhenFull},
	})
	first, err := workflow.Start[string](ctx, b, "deploy", "v1", alone)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = workflow.Start[string](ctx, b, "deploy", "v2", alone)
	fmt.Println(belay.CodeOf(err))
	close(release)
	fmt.Println(first.Result(ctx))
	// Output:
	// conflict
	// v1 deployed <nil>
}

// The context of a cancelled workflow ends; the function may still save its progress.
func ExampleHandle_Cancel() {
	working := make(chan struct{})
	saved := make(chan error, 1)
	b, stop := serve(func(w *worker.Worker) {
		worker.Register(w, "long", func(ctx context.Context, _ any) (string, error) {
			close(working)
			<-ctx.Done()
			fmt.Println(errors.Is(context.Cause(ctx), workflow.ErrCancelled))
			saved <- workflow.Checkpoint(ctx, "half of it")
			return "", ctx.Err()
		})
	})
	defer stop()
	ctx := context.Background()
	h, err := workflow.Start[string](ctx, b, "long", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	<-working
	if err := h.Cancel(ctx, "not needed any more"); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-saved)
	_, err = h.Result(ctx)
	var ended *workflow.EndedError
	fmt.Println(errors.As(err, &ended), ended.State)
	// Output:
	// true
	// <nil>
	// true cancelled
}

// While the worker cannot reach the store, the freeze function must stop everything that has
// effects of its own. In a real program, freeze would send SIGSTOP to a child process, and thaw
// would send SIGCONT.
func ExampleOnFreeze() {
	job := func(ctx context.Context, _ any) (string, error) {
		remove := workflow.OnFreeze(ctx,
			func() { fmt.Println("stop the process tree") },
			func() { fmt.Println("let it go on") },
		)
		defer remove()
		return "never cut off", nil
	}
	result("job", nil, func(w *worker.Worker) { worker.Register(w, "job", job) })
	// Output: never cut off <nil>
}

package workflow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// A workflow function gets the id of its execution; this function uses the id in the name of a
// file.
func ExampleExecution() {
	export := func(ctx context.Context, _ any) (bool, error) {
		name := "/var/tmp/export-" + workflow.Execution(ctx).String()
		return strings.HasPrefix(name, "/var/tmp/export-ex_"), nil
	}
	result("export", nil, func(w *worker.Worker) { worker.Register(w, "export", export) })
	// Output: true <nil>
}

// A database that stores the highest token it has received refuses the writes of an earlier owner.
// The token grows with every claim.
func ExampleToken() {
	write := func(ctx context.Context, _ any) (string, error) {
		fmt.Println("UPDATE t SET v = 'x', token =", workflow.Token(ctx), "WHERE token <=", workflow.Token(ctx))
		if workflow.Attempt(ctx) == 1 {
			return "", errors.New("no answer")
		}
		return "written", nil
	}
	result("write", nil, func(w *worker.Worker) { worker.Register(w, "write", write) })
	// Output:
	// UPDATE t SET v = 'x', token = 1 WHERE token <= 1
	// UPDATE t SET v = 'x', token = 2 WHERE token <= 2
	// written <nil>
}

// The line of the log names the run with the same attributes as Belay's own lines.
func ExampleLogAttr() {
	charge := func(ctx context.Context, _ any) (bool, error) {
		var line bytes.Buffer
		log := slog.New(slog.NewTextHandler(&line, nil)).With(workflow.LogAttr(ctx))
		log.InfoContext(ctx, "charged", "cents", 250)
		_, about, _ := strings.Cut(line.String(), "msg=charged ")
		return strings.HasPrefix(about, "execution=ex_") && strings.Contains(about, " token=1 worker=wk_"), nil
	}
	result("charge", nil, func(w *worker.Worker) { worker.Register(w, "charge", charge) })
	// Output: true <nil>
}

// A request names the span of the run, so that the receiver's spans belong to the trace of the submitter.
func ExampleTrace() {
	call := func(ctx context.Context, _ any) (bool, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://example.org/", http.NoBody)
		if err != nil {
			return false, err
		}
		if t := workflow.Trace(ctx); t.Parent != "" {
			r.Header.Set("traceparent", t.Parent)
			r.Header.Set("tracestate", t.State)
		}
		return r.Header.Get("traceparent") != "", nil // this submission has no trace
	}
	result("call", nil, func(w *worker.Worker) { worker.Register(w, "call", call) })
	// Output: false <nil>
}

// The id of a run consists of the execution's id and the run's token.
func ExampleRunID() {
	show := func(ctx context.Context, _ any) (bool, error) {
		id := workflow.RunID(ctx)
		return id.Execution == workflow.Execution(ctx) && id.Token == workflow.Token(ctx), nil
	}
	result("show", nil, func(w *worker.Worker) { worker.Register(w, "show", show) })
	// Output: true <nil>
}

// The first run returns an error, so the execution is retried; the second run prints its attempt
// number.
func ExampleAttempt() {
	call := func(ctx context.Context, _ any) (string, error) {
		if workflow.Attempt(ctx) == 1 {
			return "", errors.New("the line is busy")
		}
		return fmt.Sprint("answered at attempt ", workflow.Attempt(ctx)), nil
	}
	result("call", nil, func(w *worker.Worker) { worker.Register(w, "call", call) })
	// Output: answered at attempt 2 <nil>
}

// A long step reports its progress. Without these reports, the run would time out after a minute,
// because the policy has an IdleTimeout.
func ExampleProgress() {
	b, stop := serve(func(w *worker.Worker) {
		worker.Register(w, "convert", func(ctx context.Context, frames int) (string, error) {
			return workflow.Step(ctx, "convert", func(ctx context.Context) (string, error) {
				for range frames {
					workflow.Progress(ctx)
				}
				return "converted", nil
			})
		})
	})
	defer stop()
	ctx := context.Background()
	h, err := workflow.Start[string](ctx, b, "convert", 1000,
		belay.WithPolicy(belay.Policy{IdleTimeout: belay.Duration(time.Minute)}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(h.Result(ctx))
	// Output: converted <nil>
}

// The tokens that a language model charges are summed over all steps and runs.
func ExampleAddCost() {
	b, stop := serve(func(w *worker.Worker) {
		worker.Register(w, "ask", func(ctx context.Context, questions []string) (int, error) {
			for i := range questions {
				err := workflow.Do(ctx, "ask", func(ctx context.Context) error {
					workflow.AddCost(ctx, 1200)
					return nil
				}, workflow.Key(i))
				if err != nil {
					return 0, err
				}
			}
			return len(questions), nil
		})
	})
	defer stop()
	ctx := context.Background()
	h, err := workflow.Start[int](ctx, b, "ask", []string{"who?", "why?"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(h.Result(ctx))
	x, err := b.Execution(ctx, h.ID())
	fmt.Println(x.CostTokens, err)
	// Output:
	// 2 <nil>
	// 2400 <nil>
}

// Costs that are no whole numbers of tokens are added exactly: a hundred times 0.0125 is 1.25.
func ExampleAddExactCost() {
	b, stop := serve(func(w *worker.Worker) {
		worker.Register(w, "ask", func(ctx context.Context, questions int) (int, error) {
			price, err := belay.ParseCost("0.0125")
			if err != nil {
				return 0, belay.Permanent(err)
			}
			for range questions {
				workflow.AddExactCost(ctx, price)
			}
			return questions, nil
		})
	})
	defer stop()
	ctx := context.Background()
	h, err := workflow.Start[int](ctx, b, "ask", 100)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(h.Result(ctx))
	x, err := b.Execution(ctx, h.ID())
	fmt.Println(x.CostTokens, err)
	// Output:
	// 100 <nil>
	// 1.25 <nil>
}

// A later run reads the artifact that an earlier run stored.
func ExampleReadArtifact() {
	build := func(ctx context.Context, _ any) (string, error) {
		if workflow.Attempt(ctx) == 1 {
			if _, err := workflow.Artifact(ctx, "notes", strings.NewReader("half done")); err != nil {
				return "", err
			}
			return "", errors.New("power cut")
		}
		notes, err := workflow.ReadArtifact(ctx, "notes")
		return string(notes), err
	}
	result("build", nil, func(w *worker.Worker) { worker.Register(w, "build", build) })
	// Output: half done <nil>
}

// After a failure the next run reads the state that the failed run saved with Checkpoint.
func ExampleState() {
	copyAll := func(ctx context.Context, _ any) (string, error) {
		page, ok, err := workflow.State[int](ctx)
		if err != nil {
			return "", err
		}
		if !ok {
			if err := workflow.Checkpoint(ctx, 41); err != nil {
				return "", err
			}
			return "", errors.New("power cut")
		}
		return fmt.Sprint("goes on after page ", page), nil
	}
	result("copy", nil, func(w *worker.Worker) { worker.Register(w, "copy", copyAll) })
	// Output: goes on after page 41 <nil>
}

// A workflow starts a child with options of a submission: one attempt and a high priority.
func ExampleWith() {
	printer := func(context.Context, any) (int, error) { return 0, errors.New("out of paper") }
	parent := func(ctx context.Context, _ any) (string, error) {
		_, err := workflow.Child[int](ctx, "print", "print", nil,
			workflow.With(belay.Priority(10), belay.WithPolicy(belay.Policy{MaxAttempts: 1})))
		var ended *workflow.EndedError
		if errors.As(err, &ended) {
			return "not printed: " + ended.Failure.Message, nil
		}
		return "printed", err
	}
	result("parent", nil, func(w *worker.Worker) {
		worker.Register(w, "print", printer)
		worker.Register(w, "parent", parent)
	})
	// Output: not printed: out of paper <nil>
}

// Children name gates: at most one of them is under way at the same time, and at most ten start within
// a second. All of them wait while the circuit breaker of the service that they call is open.
func ExampleWith_gates() {
	var underWay atomic.Int64
	charge := func(_ context.Context, cents int) (string, error) {
		defer underWay.Add(-1)
		return fmt.Sprintf("%d cents charged, %d under way", cents, underWay.Add(1)), nil
	}
	gates := belay.Gates{
		Concurrency: &belay.Concurrency{Name: "customer-7", Max: 1},
		Rate:        &belay.Rate{Name: "bank", Max: 10, Per: belay.Duration(time.Second)},
		Target:      "bank:charge",
	}
	bill := func(ctx context.Context, parts []int) ([]string, error) {
		var all []*workflow.Future[string]
		for _, cents := range parts {
			all = append(all, workflow.Go(ctx, "part", func(ctx context.Context) (string, error) {
				return workflow.Child[string](ctx, "charge", "charge", cents, workflow.With(belay.WithGates(gates)))
			}, workflow.Key(cents)))
		}
		var out []string
		for _, f := range all {
			s, err := f.Wait(ctx)
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		}
		return out, nil
	}
	result("bill", []int{100, 200, 300}, func(w *worker.Worker) {
		worker.Register(w, "charge", charge)
		worker.Register(w, "bill", bill)
	})
	// Output: [100 cents charged, 1 under way 200 cents charged, 1 under way 300 cents charged, 1 under way] <nil>
}

// A program that did not start an execution, and knows only its id, waits for its result.
func ExampleAttach() {
	b, stop := serve(func(w *worker.Worker) {
		worker.Register(w, "double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	})
	defer stop()
	ctx := context.Background()
	started, err := workflow.Start[int](ctx, b, "double", 21)
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := belay.ParseExecutionID(started.ID().String()) // the id as text, for example from a mail
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(workflow.Attach[int](b, id).Result(ctx))
	// Output: 42 <nil>
}

package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// A program runs its own workflows and stores all data in one directory.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	quiet := slog.New(slog.DiscardHandler)
	dir, err := os.MkdirTemp("", "belay")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	b, err := open(ctx, "sqlite:"+dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()

	w := worker.New(b, worker.Options{Concurrency: 10, Log: quiet})
	worker.Register(w, "greet", func(ctx context.Context, name string) (string, error) {
		return workflow.Step(ctx, "compose", func(context.Context) (string, error) { return "hello " + name, nil })
	})
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()

	h, err := workflow.Start[string](ctx, b, "greet", "ann", belay.IdempotencyKey("ann"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(h.Result(ctx))
	stop() // the worker claims nothing more; running functions may finish within Options.Grace
	fmt.Println(<-done)
	// Output:
	// hello ann <nil>
	// <nil>
}

// A worker claims executions until its context ends. Run returns nil after a graceful shutdown.
func ExampleNew() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	b, err := open(ctx, "memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	w := worker.New(b, worker.Options{Concurrency: 4, Log: slog.New(slog.DiscardHandler)})
	worker.Register(w, "stop", func(context.Context, any) (string, error) {
		stop() // like Ctrl-C
		return "stopped", nil
	})
	h, err := workflow.Start[string](ctx, b, "stop", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(w.Run(ctx)) // blocks
	fmt.Println(h.Result(context.Background()))
	// Output:
	// <nil>
	// stopped <nil>
}

// Input and output may have any Go type that can be encoded as JSON. If an input cannot be decoded,
// its execution fails without a retry.
func ExampleRegister() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	b, err := open(ctx, "memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	w := worker.New(b, worker.Options{Log: slog.New(slog.DiscardHandler)})
	type order struct{ Cents int }
	worker.Register(w, "euros", func(_ context.Context, o order) (string, error) {
		return fmt.Sprintf("%d.%02d €", o.Cents/100, o.Cents%100), nil
	})
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()

	for _, input := range []any{order{Cents: 1250}, "twelve"} {
		h, err := workflow.Start[string](ctx, b, "euros", input)
		if err != nil {
			fmt.Println(err)
			return
		}
		result, err := h.Result(ctx)
		var ended *workflow.EndedError
		fmt.Println(result, errors.As(err, &ended))
	}
	stop()
	fmt.Println(<-done)
	// Output:
	// 12.50 € false
	//  true
	// <nil>
}

// A worker registers two versions of a workflow, so that executions of the old version continue
// with the old code.
func ExampleVersion() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	quiet := slog.New(slog.DiscardHandler)
	b, err := open(ctx, "memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	w := worker.New(b, worker.Options{Log: quiet})
	worker.Register(w, "greet", func(_ context.Context, name string) (string, error) { return "hello " + name, nil })
	worker.Register(w, "greet", func(_ context.Context, name string) (string, error) {
		return "good day, " + name, nil
	}, worker.Version("v2"))
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()

	for _, version := range []string{"", "v2"} {
		h, err := workflow.Start[string](ctx, b, "greet", "ann", belay.Version(version))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(h.Result(ctx))
	}
	stop()
	fmt.Println(<-done)
	// Output:
	// hello ann <nil>
	// good day, ann <nil>
	// <nil>
}

// A worker that stops releases the executions whose functions do not return within the grace
// period.
func ExampleOptions() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	quiet := slog.New(slog.DiscardHandler)
	b, err := open(ctx, "memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	w := worker.New(b, worker.Options{
		Concurrency: 2,
		Queues:      []string{"default", "nightly"},
		Labels:      map[string]string{"gpu": "a100"},
		TTL:         3 * time.Second,
		Grace:       10 * time.Millisecond,
		Log:         quiet,
	})
	started := make(chan struct{})
	worker.Register(w, "train", func(ctx context.Context, _ any) (string, error) {
		close(started)
		<-ctx.Done()
		fmt.Println(errors.Is(context.Cause(ctx), workflow.ErrReleased))
		return "", ctx.Err()
	})
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()

	h, err := workflow.Start[string](ctx, b, "train", nil, belay.Queue("nightly"), belay.WorkerLabel("gpu", "a100"))
	if err != nil {
		fmt.Println(err)
		return
	}
	<-started
	stop()
	fmt.Println(<-done)
	x, err := b.Execution(context.Background(), h.ID())
	fmt.Println(x.State, x.Attempt, err)
	// Output:
	// true
	// <nil>
	// pending 1 <nil>
}

// A worker answers health probes. While the check of the program fails, the server to which the
// worker connects gives it no new work.
func ExampleListenHealth() {
	var full atomic.Bool // a real check would look at the disk
	h, err := worker.ListenHealth("127.0.0.1:0", func(context.Context) error {
		if full.Load() {
			return errors.New("the disk is full")
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close() // after the worker has stopped
	_ = worker.Options{Health: h}

	full.Store(true)
	answer, err := http.Get("http://" + h.Addr().String() + "/healthz")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	fmt.Print(answer.StatusCode, " ", string(text))
	fmt.Println(err)
	// Output:
	// 503 the disk is full
	// <nil>
}

// The program orders is a worker for the tests of upgrades, which build it with the SDK of the
// older version and with the SDK of the newer version. It connects to the server at ORDERS_URL, and
// runs the orders that require a worker with the label at=ORDERS_NAME.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	quiet := slog.New(slog.DiscardHandler)
	b, err := client.Dial(ctx, os.Getenv("ORDERS_URL"), client.Lazy(), client.Logger(quiet))
	if err != nil {
		return err
	}
	name := os.Getenv("ORDERS_NAME")
	w := worker.New(b, worker.Options{
		Name: name, Labels: map[string]string{"at": name}, Concurrency: 20, Grace: 2 * time.Second, Linger: -1,
		Log: quiet,
	})
	worker.Register(w, "order", order)
	worker.Register(w, "half", half)
	return errors.Join(w.Run(ctx), b.Close())
}

// order adds up the results of three steps, a child and a signal: 17 times n.
func order(ctx context.Context, n int) (sum int, err error) {
	for i := 1; i <= 3; i++ {
		part, err := workflow.Step(ctx, "part", func(ctx context.Context) (int, error) {
			return n, work(ctx)
		}, workflow.Key(i))
		if err != nil {
			return 0, err
		}
		sum += part
	}
	child, err := workflow.Child[int](ctx, "half", "half", n)
	if err != nil {
		return 0, err
	}
	signal, err := workflow.WaitSignal[int](ctx, "more")
	if err != nil {
		return 0, err
	}
	return sum + child + signal, nil
}

// half is the child workflow: it returns four times n, in two steps.
func half(ctx context.Context, n int) (sum int, err error) {
	for i := 1; i <= 2; i++ {
		part, err := workflow.Step(ctx, "part", func(ctx context.Context) (int, error) {
			return 2 * n, work(ctx)
		}, workflow.Key(i))
		if err != nil {
			return 0, err
		}
		sum += part
	}
	return sum, nil
}

// work takes a moment, so that at any time some orders are in progress.
func work(ctx context.Context) error {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

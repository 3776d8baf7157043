// Command approval is an order that waits for the approval of a person.
//
//	go run ./examples/approval 17                      # prints the command that approves the order
//	belay signal ID approved --payload '{"by": "ann"}' # in another shell
//
// The order reserves its goods, requests an approval, and ships the goods when the approval
// arrives. If no approval arrives within a day, the order gives the goods back. The program may be
// killed and started again at any time, even while the order waits; the order then continues where
// it stopped.
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

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// approval is the payload of the signal.
type approval struct {
	By string `json:"by"`
}

// order is the workflow. Its input is the number of the order.
func order(ctx context.Context, number string) (string, error) {
	if err := step(ctx, "reserve", number); err != nil {
		return "", err
	}
	if err := ask(ctx, number); err != nil {
		return "", err
	}
	ok, err := workflow.WaitSignal[approval](ctx, "approved", workflow.Timeout(24*time.Hour))
	if errors.Is(err, workflow.ErrTimeout) {
		return "not approved in time", step(ctx, "give back", number)
	}
	if err != nil {
		return "", err
	}
	if err := step(ctx, "ship", number); err != nil {
		return "", err
	}
	return "shipped, approved by " + ok.By, nil
}

// step simulates a call to another service.
func step(ctx context.Context, name, number string) error {
	return workflow.Do(ctx, name, func(context.Context) error {
		fmt.Printf("order %s: %s\n", number, name)
		return nil
	})
}

// ask simulates a mail to the person who approves the order.
func ask(ctx context.Context, number string) error {
	return workflow.Do(ctx, "ask", func(ctx context.Context) error {
		fmt.Printf("order %s: belay signal %s approved --payload '{\"by\": \"you\"}'\n", number,
			workflow.Execution(ctx))
		return nil
	})
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: approval NUMBER")
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // no deferred call is needed any more
	}
}

// run runs a worker until the order has ended, or ctx ends.
func run(ctx context.Context, number string) error {
	quiet := slog.New(slog.DiscardHandler)
	b, err := embedded.Open(ctx, "sqlite:./belay-data", embedded.Listen(), embedded.Logger(quiet))
	if err != nil {
		return err
	}
	w := worker.New(b, worker.Options{Log: quiet})
	worker.Register(w, "order", order)
	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(working) }()

	h, err := workflow.Start[string](ctx, b, "order", number, belay.IdempotencyKey("order-"+number))
	var result string
	if err == nil {
		result, err = h.Result(ctx)
	}
	if err == nil {
		fmt.Printf("order %s: %s\n", number, result)
	}
	stop()
	return errors.Join(err, <-done, b.Close())
}

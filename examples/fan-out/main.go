// Command fan-out counts the primes below a number with many children.
//
//	go run ./examples/fan-out 2000000
//
// The workflow splits the numbers into ranges and starts a child for each. The children run
// concurrently, in this program and in every other program on the same store. Kill the program
// while it counts, and start it again: it does not count the finished ranges again.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// parts is the number of children.
const parts = 20

// span is a range of numbers: From is its first number, and To is the number after its last.
type span struct{ From, To int }

// primes counts the primes below n, with a child for each range; all children run concurrently.
func primes(ctx context.Context, n int) (int, error) {
	var counts []*workflow.Future[int]
	for i := range parts {
		s := span{From: n * i / parts, To: n * (i + 1) / parts}
		counts = append(counts, workflow.Go(ctx, "part", func(ctx context.Context) (int, error) {
			return workflow.Child[int](ctx, "count", "count", s)
		}, workflow.Key(i)))
	}
	total := 0
	for _, c := range counts {
		n, err := c.Wait(ctx)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// count counts the primes of a span. It has no steps, so it begins again if its worker crashes. Its
// result is saved when it ends.
func count(ctx context.Context, s span) (int, error) {
	n := 0
	for i := max(2, s.From); i < s.To; i++ {
		if i%1024 == 0 && ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if prime(i) {
			n++
		}
	}
	fmt.Printf("%d primes from %d to %d\n", n, s.From, s.To-1)
	return n, nil
}

func prime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: fan-out NUMBER")
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // no deferred call is needed any more
	}
}

// run runs a worker until all primes are counted, or ctx ends.
func run(ctx context.Context, number string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	b, err := embedded.Open(ctx, "sqlite:./belay-data", embedded.Logger(quiet))
	if err != nil {
		return err
	}
	w := worker.New(b, worker.Options{Concurrency: 4, Log: quiet})
	worker.Register(w, "primes", primes)
	worker.Register(w, "count", count)
	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(working) }()

	h, err := workflow.Start[int](ctx, b, "primes", n, belay.IdempotencyKey("primes-"+number))
	var total int
	if err == nil {
		total, err = h.Result(ctx)
	}
	if err == nil {
		fmt.Printf("%d primes below %d\n", total, n)
	}
	stop()
	return errors.Join(err, <-done, b.Close())
}

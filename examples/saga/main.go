// Command saga books a trip at three services. When a service refuses, the program cancels the
// bookings that it has made.
//
//	go run ./examples/saga spring         # all bookings succeed
//	go run ./examples/saga spring-nocar   # there is no car: hotel and flight are cancelled
//
// Each booking and each cancellation is a step. After a crash the workflow is called again and its
// finished steps return their saved results, so that the list of bookings to cancel is complete
// again. Kill the program between two cancellations and start it again: it cancels the remaining
// bookings. The services are simulated by lines in the file bookings.txt.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// errNone is the error of a service that is sold out. A retry does not help.
var errNone = errors.New("none is left")

// trip books a flight, a hotel and a car, or none of the three.
func trip(ctx context.Context, name string) (string, error) {
	var booked []string
	for _, what := range []string{"flight", "hotel", "car"} {
		free, err := workflow.Step(ctx, "book "+what, func(ctx context.Context) (bool, error) {
			err := book(ctx, name, what)
			if errors.Is(err, errNone) {
				return false, nil // sold out is a result of the step, and is saved
			}
			return err == nil, err
		})
		if err != nil {
			return "", err // after this failure the policy retries the workflow
		}
		if !free {
			return "there is no " + what, cancelAll(ctx, name, booked)
		}
		booked = append(booked, what)
	}
	return "booked: " + strings.Join(booked, ", "), nil
}

// cancelAll cancels the bookings, the newest first.
func cancelAll(ctx context.Context, name string, booked []string) error {
	for i := len(booked) - 1; i >= 0; i-- {
		what := booked[i]
		err := workflow.Do(ctx, "cancel "+what, func(ctx context.Context) error {
			return note(ctx, "cancel", name, what)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// book simulates a call to a booking service.
func book(ctx context.Context, name, what string) error {
	if what == "car" && strings.HasSuffix(name, "nocar") {
		return errNone
	}
	return note(ctx, "book", name, what)
}

// note appends a line for a service's action to bookings.txt, and takes as long as a call to a
// service. A real service would get workflow.IdempotencyKey(ctx), so that a call repeated after a
// crash does not book a second time.
func note(ctx context.Context, did, name, what string) error {
	f, err := os.OpenFile("bookings.txt", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s: %s %s\n", name, did, what)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	select {
	case <-time.After(300 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: saga NAME")
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // no deferred call is needed any more
	}
}

// run runs a worker until the trip is booked or cancelled, or ctx ends.
func run(ctx context.Context, name string) error {
	quiet := slog.New(slog.DiscardHandler)
	b, err := embedded.Open(ctx, "sqlite:./belay-data", embedded.Logger(quiet))
	if err != nil {
		return err
	}
	w := worker.New(b, worker.Options{Log: quiet})
	worker.Register(w, "trip", trip)
	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(working) }()

	h, err := workflow.Start[string](ctx, b, "trip", name, belay.IdempotencyKey(name))
	var result string
	if err == nil {
		result, err = h.Result(ctx)
	}
	if err == nil {
		fmt.Println(result)
	}
	stop()
	return errors.Join(err, <-done, b.Close())
}

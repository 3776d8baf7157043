package repo

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// The following code is the program in the section "A tour" of the README, word for word.

type (
	Change   struct{ Diff string }
	Approval struct{ By string }
	Verdict  struct {
		By    string
		Lines int
	}
)

func fetch(_ context.Context, change Change) (string, error) { return change.Diff, nil }

func Review(ctx context.Context, change Change) (Verdict, error) {
	diff, err := workflow.Step(ctx, "fetch diff", func(ctx context.Context) (string, error) {
		return fetch(ctx, change)
	})
	if err != nil {
		return Verdict{}, err
	}
	ok, err := workflow.WaitSignal[Approval](ctx, "approved", workflow.Timeout(24*time.Hour))
	if err != nil {
		return Verdict{}, err // ErrYield too: the run ends here while the execution waits
	}
	return Verdict{By: ok.By, Lines: strings.Count(diff, "\n")}, nil
}

func serve(ctx context.Context) error {
	b, err := embedded.Open(ctx, "sqlite:./belay-data") // the engine and its database, in this process
	if err != nil {
		return err
	}
	w := worker.New(b, worker.Options{Concurrency: 10})
	worker.Register(w, "review", Review)
	return errors.Join(w.Run(ctx), b.Close()) // Run blocks until ctx ends, then shuts down gracefully
}

func dial(ctx context.Context) (belay.Backend, error) {
	b, err := client.Dial(ctx, "https://belay.example.com", client.Key(os.Getenv("BELAY_KEY")))
	return b, err
}

var _ = dial // it is only compiled, since it needs a server to run

func ask(ctx context.Context, b belay.Backend, change Change) (Verdict, error) {
	h, err := workflow.Start[Verdict](ctx, b, "review", change, belay.IdempotencyKey("pr-17@3f2c"))
	if err != nil {
		return Verdict{}, err
	}
	if err := h.Signal(ctx, "approved", Approval{By: "ann"}); err != nil { // from anywhere, at any time
		return Verdict{}, err
	}
	return h.Result(ctx)
}

// Rule: the worker of the README serves its data directory until its context ends, and then stops
// without an error.
func TestReadmeServes(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx) }()
	deadline := time.After(30 * time.Second)
	for {
		if _, err := os.Stat("belay-data/belay.db"); err == nil {
			break
		}
		select {
		case err := <-done:
			t.Fatalf("the worker stopped unexpectedly: %v", err)
		case <-deadline:
			t.Fatal("no database after 30 s")
		case <-time.After(5 * time.Millisecond):
		}
	}
	stop()
	// The error is the cause of ctx if ctx ended while serve was still opening the store.
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Rule: the review that the README starts ends with its verdict.
func TestReadmeAsks(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	b, err := embedded.Open(t.Context(), "memory:", embedded.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(b, worker.Options{Log: quiet})
	worker.Register(w, "review", Review)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()

	verdict, err := ask(t.Context(), b, Change{Diff: "one\ntwo\n"})
	if want := (Verdict{By: "ann", Lines: 2}); verdict != want || err != nil {
		t.Errorf("the review ends with %+v and %v, want %+v", verdict, err, want)
	}
	stop()
	if err := errors.Join(<-done, b.Close()); err != nil {
		t.Error(err)
	}
}

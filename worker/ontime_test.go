package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// clock is a clock of the fence that follows the virtual time of synctest.
type clock struct{ began time.Time }

func (c clock) Boottime() time.Duration { return time.Since(c.began) }

// Rule: an execution that becomes ready at a later time starts at that time, and not when a poll
// finds it. A defect shows only in some orders of the first claims, so the test runs a hundred times.
func TestARetryStartsOnTime(t *testing.T) {
	for range 100 {
		synctest.Test(t, retryOnce)
	}
}

func retryOnce(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	b := engine.New(memory.New(time.Now), engine.Options{Log: quiet})
	defer b.Close()
	w := worker.New(b, worker.Options{Log: quiet, Clock: clock{time.Now()}})
	worker.Register(w, "w", func(ctx context.Context, in string) (string, error) {
		if workflow.Attempt(ctx) == 1 {
			return "", errors.New("again")
		}
		return in, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- w.Run(ctx) }()
	start := time.Now()
	h, err := workflow.Start[string](ctx, b, "w", "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Result(ctx); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d < time.Second || d > 1300*time.Millisecond {
		t.Errorf("retried after %s; the backoff is 1 s and up to a quarter of jitter", d)
	}
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

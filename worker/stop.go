package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/retry"
)

// farewell is how long the worker tries to report to the store that its session ends.
const farewell = 5 * time.Second

// stop ends the session in two stages: first, running functions may finish within the grace period;
// then the contexts of the remaining functions end. The worker must have stopped sending claims
// before stop is called.
func (s *session) stop(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	s.w.o.Log.Info("worker stops", "worker", s.id, "runs", len(s.runs()), "grace", s.w.o.Grace)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.tell(ctx, s.w.b.Drain)
	}()
	for _, r := range s.runs() {
		r.Drain()
	}
	err := s.w.awaitAll(s.w.o.Grace)
	if err != nil {
		for _, r := range s.runs() {
			r.Stop()
		}
		err = s.w.awaitAll(s.w.o.Unwind)
	}
	left := s.leave()
	<-drained
	s.end(errStopped)
	s.abandon()
	if left == 0 {
		s.tell(ctx, s.w.b.CloseWorker)
	}
	return err
}

// leave ends the runs that have not ended, and returns the number of functions that still run.
// While a function runs, the session must not be closed, because closing would release the
// execution at once, and another worker would begin it while the function still runs. The lease
// ends when it expires, or when the end of this process is proven.
func (s *session) leave() (left int) {
	for _, r := range s.runs() {
		if !r.Over() {
			left++
			s.w.o.Log.With(slog.Any("", r.Assignment().Lease)).Error(
				"a function has not returned; its execution is not released before its lease expires",
				"workflow", r.Assignment().Workflow, "ttl", s.ttl)
		}
		r.Lose(&belay.Error{
			Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Op: "stop worker " + s.w.o.Name,
			Message: "the run did not end after its context had ended",
		})
	}
	return left
}

var errStopped = errors.New("the worker has stopped")

// tell makes the call that reports the end of the session to the store, and repeats it for the
// duration of farewell. If no try succeeds, the store ends the session when it expires.
func (s *session) tell(ctx context.Context, call func(context.Context, belay.WorkerID) error) {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	delays := retry.NewDelays(s.w.o.IDs)
	for ctx.Err() == nil && !s.isLost() {
		err := call(retry.Once(ctx), s.id)
		if err == nil || !unknown(err) {
			return
		}
		delays.Wait(ctx, err)
	}
}

// awaitAll waits until every run is settled, at most for the time d.
func (w *Worker) awaitAll(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		n := w.unsettled()
		if n == 0 {
			return nil
		}
		select {
		case <-w.freed:
		case <-timer.C:
			return fmt.Errorf("worker %s: %d runs did not end within %s", w.o.Name, n, d)
		}
	}
}

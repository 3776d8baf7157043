package workflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/uid"
)

// Handle refers to an execution whose output is a T, for programs that have started the execution
// or have its id.
type Handle[T any] struct {
	c  belay.Client
	id belay.ExecutionID
}

// Start submits an execution. The input is encoded as JSON, of at most belay.MaxPayload bytes. With
// [belay.IdempotencyKey] a repeated Start returns a handle to the first execution. While the store
// is unavailable, Start tries again until ctx ends; it never creates more than one execution.
func Start[T any](ctx context.Context, c belay.Client, workflow string, input any,
	opts ...belay.SubmitOption) (Handle[T], error) {
	h := Handle[T]{c: c}
	in, err := encode(input, "input of", workflow)
	if err != nil {
		return h, err
	}
	s := belay.Submission{Workflow: workflow, Input: in}
	for _, set := range opts {
		set(&s)
	}
	if s.ID.IsZero() {
		s.ID = belay.ExecutionID(uid.New())
	}
	err = retryUnavailable(ctx, func() error {
		answers, err := c.Submit(ctx, s)
		if err != nil {
			return err
		}
		if len(answers) != 1 {
			return fmt.Errorf("%d answers to one submission", len(answers))
		}
		h.id = answers[0].ID
		return answers[0].Err
	})
	if err != nil {
		return h, fmt.Errorf("start %s: %w", workflow, err)
	}
	return h, nil
}

// Attach returns a handle to an execution that another program started.
func Attach[T any](c belay.Client, id belay.ExecutionID) Handle[T] { return Handle[T]{c: c, id: id} }

// ID returns the id of the execution.
func (h Handle[T]) ID() belay.ExecutionID { return h.id }

// Result waits until the execution has ended and returns its output, or an *EndedError if the
// execution failed or was cancelled. It waits until ctx ends, even while the store is unavailable.
func (h Handle[T]) Result(ctx context.Context) (T, error) {
	var zero T
	x, err := h.wait(ctx)
	if err != nil {
		return zero, fmt.Errorf("result of %s: %w", h.id, err)
	}
	out, err := outcome(x)
	if err != nil {
		return zero, err
	}
	v, err := decode[T](out, "output")
	if err != nil {
		return zero, fmt.Errorf("result of %s: %w", h.id, err)
	}
	return v, nil
}

// Signal delivers a signal to the execution. The payload is encoded as JSON, of at most
// belay.MaxSignal bytes; nil means no payload. The store keeps the signal until the execution waits
// for it. The error has CodeConflict if the execution has ended.
func (h Handle[T]) Signal(ctx context.Context, name string, payload any) error {
	s := belay.SignalRequest{Execution: h.id, Name: name, Op: belay.OpID(uid.New())}
	if payload != nil {
		data, err := encode(payload, "signal", name)
		if err != nil {
			return err
		}
		s.Payload = data
	}
	return retryUnavailable(ctx, func() error { return h.c.Signal(ctx, s) })
}

// Cancel cancels the execution. A running function then has the CancelGrace of its policy to end.
func (h Handle[T]) Cancel(ctx context.Context, reason string) error {
	c := belay.Control{Execution: h.id, Action: belay.ActionCancel, Reason: reason, Op: belay.OpID(uid.New())}
	return retryUnavailable(ctx, func() error {
		_, err := h.c.Control(ctx, c)
		return err
	})
}

// awaitPoll is how long one call of Await waits for the end of the execution.
const awaitPoll = 30 * time.Second

// wait blocks until the execution has ended and returns it.
func (h Handle[T]) wait(ctx context.Context) (x belay.Execution, err error) {
	for err == nil && !x.State.Terminal() {
		err = retryUnavailable(ctx, func() (err error) {
			x, err = h.c.Await(ctx, h.id, awaitPoll)
			return err
		})
		if err == nil {
			err = context.Cause(ctx)
		}
	}
	return x, err
}

// retryUnavailable repeats call until call returns no error with CodeUnavailable, or ctx ends.
func retryUnavailable(ctx context.Context, call func() error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := call()
		if err == nil || ctx.Err() != nil || belay.CodeOf(err) != belay.CodeUnavailable {
			return err
		}
		var e *belay.Error
		if errors.As(err, &e) {
			wait = max(wait, e.RetryAfter)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

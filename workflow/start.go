package workflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/uid"
)

// Handle is an execution as seen from outside of it, whose output is a T.
type Handle[T any] struct {
	c  belay.Client
	id belay.ExecutionID
}

// Start submits an execution. The input is written as JSON, of at most
// belay.MaxPayload bytes. With [belay.IdempotencyKey] a repeat finds the first
// execution. While the store is unavailable Start tries again, without
// submitting twice, until ctx ends.
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
	err = patiently(ctx, func() error {
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

// Attach is a handle to an execution that was started elsewhere.
func Attach[T any](c belay.Client, id belay.ExecutionID) Handle[T] { return Handle[T]{c: c, id: id} }

// ID names the execution.
func (h Handle[T]) ID() belay.ExecutionID { return h.id }

// Result waits until the execution has ended and gives its output, or an
// *EndedError if it failed or was cancelled. It waits for as long as ctx allows,
// also while the store is unavailable.
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

// Signal delivers a signal to the execution, its payload written as JSON of at
// most belay.MaxSignal bytes, or none if payload is nil. It is kept if nobody
// waits for it yet. CodeConflict if the execution has ended.
func (h Handle[T]) Signal(ctx context.Context, name string, payload any) error {
	s := belay.SignalRequest{Execution: h.id, Name: name, Op: belay.OpID(uid.New())}
	if payload != nil {
		data, err := encode(payload, "signal", name)
		if err != nil {
			return err
		}
		s.Payload = data
	}
	return patiently(ctx, func() error { return h.c.Signal(ctx, s) })
}

// Cancel cancels the execution. One that runs has its policy's grace to end.
func (h Handle[T]) Cancel(ctx context.Context, reason string) error {
	c := belay.Control{Execution: h.id, Action: belay.ActionCancel, Reason: reason, Op: belay.OpID(uid.New())}
	return patiently(ctx, func() error {
		_, err := h.c.Control(ctx, c)
		return err
	})
}

// awaitPoll is how long one question for the end may wait for it.
const awaitPoll = 30 * time.Second

// wait reads the execution once it has ended.
func (h Handle[T]) wait(ctx context.Context) (x belay.Execution, err error) {
	for err == nil && !x.State.Terminal() {
		err = patiently(ctx, func() (err error) {
			x, err = h.c.Await(ctx, h.id, awaitPoll)
			return err
		})
		if err == nil {
			err = context.Cause(ctx)
		}
	}
	return x, err
}

// patiently repeats call while the store is unavailable, until ctx ends.
func patiently(ctx context.Context, call func() error) error {
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

package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/run"
)

// Step calls fn, saves its result as JSON, and then returns the result. Once the result is saved,
// every further run returns the saved result and does not call fn again.
//
// An error of fn is returned to the caller, and nothing is saved. The next time that this run or a
// later one reaches the step, it calls fn again.
//
// The context given to fn carries the step's IdempotencyKey; steps and waits called with that
// context are refused. A result of more than belay.MaxPayload bytes is refused with
// CodePayloadTooLarge, and a result with a NUL character with CodeInvalid; neither is retried.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error), opts ...StepOption) (T,
	error) {
	var o options
	for _, opt := range opts {
		opt.step(&o)
	}
	data, err := run.Step(ctx, name, o.key, o.retry, func(ctx context.Context) (json.RawMessage, error) {
		v, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		return encode(v, "step", name)
	})
	if err != nil {
		var zero T
		return zero, err
	}
	// Return the value decoded from the saved JSON also the first time, so that a result that JSON
	// changes is noticed before the first crash.
	return decode[T](data, "step", name)
}

// Do is Step for a function without a result.
func Do(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...StepOption) error {
	var o options
	for _, opt := range opts {
		opt.step(&o)
	}
	_, err := run.Step(ctx, name, o.key, o.retry, func(ctx context.Context) (json.RawMessage, error) {
		return nil, fn(ctx)
	})
	return err
}

// encode writes a value as JSON. The words of what describe the value in the error.
func encode(v any, what ...string) (json.RawMessage, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, belay.Permanent(fmt.Errorf("%s: write as JSON: %w", strings.Join(what, " "), err))
	}
	return data, nil
}

// decode reads a value from JSON; no data gives the zero value.
func decode[T any](data json.RawMessage, what ...string) (T, error) {
	var v T
	if len(data) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, belay.Permanent(fmt.Errorf("%s: read as %T: %w", strings.Join(what, " "), v, err))
	}
	return v, nil
}

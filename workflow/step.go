package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/run"
)

// Step calls fn, saves its result as JSON, and returns the result. After that, every later run
// returns the saved result and does not call fn again.
//
// If fn returns an error, Step returns it and saves nothing. The next time that this run or a later
// run reaches the step, Step calls fn again.
//
// The context of fn carries the step's IdempotencyKey; steps and waits with that context are
// refused. A result of more than belay.MaxPayload bytes is refused with CodePayloadTooLarge, and a
// result with a NUL character with CodeInvalid; neither is retried.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error), opts ...StepOption) (T,
	error) {
	var o options
	for _, opt := range opts {
		opt.step(&o)
	}
	data, err := run.Step(ctx, name, o.of(), func(ctx context.Context) (json.RawMessage, error) {
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
	// Even the first time, Step returns the value decoded from JSON. So an author notices before
	// the first crash if JSON changes the value.
	return decode[T](data, "step", name)
}

// Do is like Step, for a function that returns only an error.
func Do(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...StepOption) error {
	var o options
	for _, opt := range opts {
		opt.step(&o)
	}
	_, err := run.Step(ctx, name, o.of(), func(ctx context.Context) (json.RawMessage, error) {
		return nil, fn(ctx)
	})
	return err
}

func (o *options) of() run.StepOptions {
	return run.StepOptions{Key: o.key, Retry: o.retry, Target: o.target}
}

// encode encodes a value as JSON. The words of the parameter what, such as "input of" and a name,
// describe the value in an error.
func encode(v any, what ...string) (json.RawMessage, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, belay.Permanent(fmt.Errorf("%s: write as JSON: %w", strings.Join(what, " "), err))
	}
	return data, nil
}

// decode decodes a value from JSON; empty data gives the zero value.
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

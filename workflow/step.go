package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/run"
)

// Step carries out fn and saves what it returns, as JSON, before it returns
// itself. Once that is saved, every further run gets it from there and fn is
// not called again.
//
// An error of fn is the author's to handle: nothing is saved, and the next run
// that comes here calls fn again. So does this run if it comes here again.
//
// The context given to fn carries the step's IdempotencyKey; other steps and
// waits are refused in it. A result of more than belay.MaxPayload bytes is
// refused with CodePayloadTooLarge, and one that holds a NUL character with
// CodeInvalid; neither is retried.
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
	// What was saved is answered the first time too, so that a result that does
	// not survive JSON shows before the first crash.
	return decode[T](data, "step", name)
}

// Do is Step for what has no result.
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

// encode writes a value as JSON. An error names what it is, in so many words.
func encode(v any, what ...string) (json.RawMessage, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, belay.Permanent(fmt.Errorf("%s: write as JSON: %w", strings.Join(what, " "), err))
	}
	return data, nil
}

// decode reads what was saved; nothing is the zero value.
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

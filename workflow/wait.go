package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/run"
)

// Sleep waits until d has passed, by the store's clock, since the first run of the execution
// reached this sleep. It never ends early.
func Sleep(ctx context.Context, name string, d time.Duration, key ...KeyOption) error {
	return run.Sleep(ctx, name, keyOf(key), d)
}

// WaitSignal waits for a signal of that name and consumes it. If several have arrived, it takes the
// oldest signal that no other wait has consumed; a signal that arrived before the wait began counts
// too. If the option [Timeout] is given, it returns ErrTimeout when this time has passed without a
// signal. The result of the wait is saved and is the same in later runs. To wait for a signal of
// the same name again, give the wait a [Key]; the key is not part of the signal's name.
//
// If the payload of the signal cannot be read as a T, WaitSignal consumes the signal and returns an
// error marked belay.Permanent that is an [ErrPayload]. No result of the wait is saved: the next call
// for this wait, in the same run or after an operator's retry, waits for another signal, with the
// whole timeout. So if a function returns the error, its execution fails, and after `belay retry` it
// waits for a new signal.
func WaitSignal[T any](ctx context.Context, name string, opts ...WaitOption) (T, error) {
	o := options{timeout: run.Forever}
	for _, opt := range opts {
		opt.wait(&o)
	}
	data, err := run.WaitSignal(ctx, name, o.key, o.timeout, func(payload json.RawMessage) error {
		if _, err := decode[T](payload, "signal", name); err != nil {
			return fmt.Errorf("%w: %w; a retry waits for another signal", ErrPayload, err)
		}
		return nil
	})
	if err != nil {
		var zero T
		return zero, err
	}
	return decode[T](data, "signal", name)
}

// Child starts an execution of another workflow, waits until that execution has ended, and returns
// its output. A later run finds the same child, which keeps its first input. Children are cancelled
// with their parent, unless their policy says Abandon.
//
// The error of a failed or cancelled child is an *EndedError marked belay.Permanent, because the
// next run would find the same child. If an operator retries the parent, children that succeeded
// keep their results, and the other children are started again.
func Child[T any](ctx context.Context, name, workflow string, input any, opts ...ChildOption) (T, error) {
	var zero T
	var o options
	for _, opt := range opts {
		opt.child(&o)
	}
	in, err := encode(input, "input of child", name)
	if err != nil {
		return zero, err
	}
	s := belay.Submission{Workflow: workflow, Input: in}
	for _, set := range o.submit {
		set(&s)
	}
	x, err := run.Child(ctx, name, o.key, s)
	if err != nil {
		return zero, err
	}
	data, err := outcome(x)
	if err != nil {
		return zero, belay.Permanent(err)
	}
	return decode[T](data, "child", name)
}

// Checkpoint saves a free-form state, as JSON of at most belay.MaxPayload bytes. The new state
// replaces the state saved before. Checkpoint may be called anywhere, even inside a step. It works
// even after ctx has ended, as long as the run owns its execution, so that a cancelled function can
// save its progress.
func Checkpoint(ctx context.Context, state any) error {
	r := run.From(ctx)
	if r == nil {
		return run.ErrNoRun
	}
	data, err := encode(state, "checkpoint")
	if err != nil {
		return err
	}
	return r.Checkpoint(data)
}

// State returns the state that Checkpoint saved last, in this run or an earlier run; ok is false if
// no state was saved.
func State[T any](ctx context.Context) (state T, ok bool, err error) {
	r := run.From(ctx)
	if r == nil {
		return state, false, run.ErrNoRun
	}
	data := r.State()
	if data == nil {
		return state, false, nil
	}
	state, err = decode[T](data, "state")
	return state, err == nil, err
}

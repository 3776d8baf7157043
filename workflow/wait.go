package workflow

import (
	"context"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/run"
)

// Sleep waits until d has passed since the first time that any run came to it,
// by the store's clock. It never ends early.
func Sleep(ctx context.Context, name string, d time.Duration, key ...KeyOption) error {
	return run.Sleep(ctx, name, keyOf(key), d)
}

// WaitSignal waits for a signal of that name and takes it: of those nobody took,
// the oldest, whether it was delivered before the wait or after. With a
// [Timeout] it answers ErrTimeout when that is over. What it answered is saved
// and does not change in later runs. To wait for the same signal again, give the
// wait a [Key]; it is not part of the signal's name.
func WaitSignal[T any](ctx context.Context, name string, opts ...WaitOption) (T, error) {
	o := options{timeout: run.Forever}
	for _, opt := range opts {
		opt.wait(&o)
	}
	data, err := run.WaitSignal(ctx, name, o.key, o.timeout)
	if err != nil {
		var zero T
		return zero, err
	}
	return decode[T](data, "signal", name)
}

// Child starts an execution of another workflow, waits until it has ended, and
// gives its output. A later run finds the same child, which keeps the input it
// was first started with. Children are cancelled with their parent unless their
// policy says Abandon.
//
// A child that failed or was cancelled is an *EndedError marked
// belay.Permanent, since the next run would find the same child. After the
// parent is retried by an operator, children that succeeded still count and the
// others are started anew.
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

// Checkpoint saves free-form state in place of what was saved so before, as JSON
// of at most belay.MaxPayload bytes. It may be called anywhere, also inside of a
// step, and saves even when ctx has ended, as long as the run owns its
// execution: that is how a cancelled function keeps what it has.
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

// State is what Checkpoint saved last, in this run or an earlier one; ok is
// false if nothing was.
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

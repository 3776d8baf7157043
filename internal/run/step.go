package run

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/retry"
)

// Retry configures how often, and after which delay, a step is repeated within its run.
type Retry struct {
	// Attempts is the total number of tries; 0 and 1 mean one try.
	Attempts int
	// Base is the delay after the first failure. The delay doubles with each failure, up to Cap.
	Base, Cap time.Duration
}

// StepOptions configure a step.
type StepOptions struct {
	Key   string
	Retry Retry
	// Target is the external service that the step calls, empty if no circuit breaker counts its
	// failures.
	Target string
}

// Step calls fn and saves its result. If an earlier run has saved the result, Step returns the
// saved result and does not call fn.
func Step(ctx context.Context, name string, o StepOptions, fn func(ctx context.Context) (json.RawMessage,
	error)) (json.RawMessage, error) {
	c, full, err := within(ctx, "step", name, o.Key)
	if err != nil {
		return nil, err
	}
	r := c.r
	e, err := r.take(call{"step", name}, full, belay.KindStep)
	if err != nil {
		return nil, err
	}
	if e.kind != 0 {
		return e.data, nil
	}
	if target, call := o.Target, fn; target != "" {
		fn = func(ctx context.Context) (json.RawMessage, error) { return callTarget(ctx, r, target, full, call) }
	}
	d := r.reports.newDoing(full, o.Retry.Attempts > 1)
	defer r.done(d) // runs even if fn calls runtime.Goexit
	data, err := r.carryOut(&scope{Context: ctx, r: r, b: c.b, step: full}, d, o.Retry, fn)
	if err == nil {
		err = r.save(belay.Save{
			Kind: belay.KindStep, Key: full, Data: data, Took: d.lasted, Attempt: d.try(),
		})
	}
	if err != nil {
		r.release(full)
		return nil, err
	}
	return data, nil
}

func (r *Run) carryOut(ctx context.Context, d *doing, policy Retry, fn func(ctx context.Context) (json.RawMessage,
	error)) (json.RawMessage, error) {
	r.busy(1)
	defer r.busy(-1)
	for n := 1; ; n++ {
		if err := r.pass(ctx); err != nil {
			return nil, err
		}
		r.beginTry(d, n)
		data, err := fn(ctx)
		if err == nil {
			d.lasted = time.Since(d.began)
			return data, nil
		}
		r.failTry(d, err)
		r.Progress()
		if n >= policy.Attempts || belay.IsPermanent(err) || errors.Is(err, ErrYield) || ctx.Err() != nil {
			return nil, err
		}
		delay := policy.delay(n)
		r.pause(ctx, max(retry.Spread(r.s.IDs, delay, delay/2), belay.RetryDelay(err)))
	}
}

// delay returns the delay after the n-th failure.
func (t Retry) delay(n int) time.Duration {
	d := t.Base
	for range n - 1 {
		if d >= t.Cap {
			break
		}
		d *= 2
	}
	return min(d, t.Cap)
}

// pause waits for d between two tries of a step. It returns earlier if ctx ends or an operator
// pauses or preempts the execution.
func (r *Run) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-r.Asked():
	}
}

// busy adds n to the number of steps that are being executed; n may be negative. While a step is
// being executed, the run does not suspend.
func (r *Run) busy(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits.busy += n
	if n < 0 {
		r.decideLocked()
	}
}

// Checkpoint saves a free-form state, which replaces the state saved before.
func (r *Run) Checkpoint(data json.RawMessage) error {
	return r.SaveState(data, nil)
}

// stateKey is the key of the checkpoint with the free-form state.
const stateKey = "state"

// State returns the state that was saved last; nil if no state was saved.
func (r *Run) State() json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

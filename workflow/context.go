package workflow

import (
	"context"
	"net/url"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/run"
)

// Execution is the id of the execution that ctx belongs to, zero outside of one.
func Execution(ctx context.Context) belay.ExecutionID {
	if r := run.From(ctx); r != nil {
		return r.ID().Execution
	}
	return belay.ExecutionID{}
}

// Token is the fencing token of the run that ctx belongs to, 0 outside of one.
// It grows with every claim of the execution: a target that remembers the
// highest it has seen can refuse whoever comes with a lower one.
func Token(ctx context.Context) belay.Token { return RunID(ctx).Token }

// RunID names the run that ctx belongs to, zero outside of one.
func RunID(ctx context.Context) belay.RunID {
	if r := run.From(ctx); r != nil {
		return r.ID()
	}
	return belay.RunID{}
}

// Attempt is the number of this run among those that spend the retry budget,
// from 1; 0 outside of a run.
func Attempt(ctx context.Context) int {
	if r := run.From(ctx); r != nil {
		return r.Assignment().Attempt
	}
	return 0
}

// IdempotencyKey names the step that ctx belongs to, the same in every run: hand
// it to whatever refuses a repeat of what it has done already. Outside of a step
// it names the execution. It is printable ASCII and fits into a header; outside
// of an execution it is empty.
func IdempotencyKey(ctx context.Context) string {
	r := run.From(ctx)
	if r == nil {
		return ""
	}
	key := r.ID().Execution.String()
	if step := run.StepKey(ctx); step != "" {
		key += "/" + url.PathEscape(step)
	}
	return key
}

// Preempted is closed when the execution is asked back, for a pause or for
// something more urgent. The next step or wait gives it back by itself; a long
// step may save a Checkpoint and return ErrYield before that. Outside of a run
// it is nil and never closes.
func Preempted(ctx context.Context) <-chan struct{} {
	if r := run.From(ctx); r != nil {
		return r.Asked()
	}
	return nil
}

// Guard blocks while the worker is cut off from the store and returns nil once
// it is certain that the run still owns its execution, or an error that is
// belay.ErrLeaseLost. Steps, checkpoints and output pass it by themselves; call
// it inside of a long step right before each effect that nothing else fences.
func Guard(ctx context.Context) error {
	r := run.From(ctx)
	if r == nil {
		return run.ErrNoRun
	}
	return r.Enter()
}

// OnFreeze has freeze called when the worker is cut off from the store for so
// long that the lease may be lost, and thaw if it turns out that it is not,
// until the returned function is called. In between stop what has effects of its
// own, such as a child process (SIGSTOP). Both must be quick and call nothing of
// this package. If the lease is lost, ctx ends instead of thaw being called:
// then kill what is frozen. Outside of a run neither is ever called.
func OnFreeze(ctx context.Context, freeze, thaw func()) (remove func()) {
	if r := run.From(ctx); r != nil {
		return r.OnFreeze(freeze, thaw)
	}
	return func() {}
}

// Progress notes that the execution makes progress, where it has an idle
// timeout. Steps, checkpoints and output do so by themselves.
func Progress(ctx context.Context) {
	if r := run.From(ctx); r != nil {
		r.Progress()
	}
}

// AddCost adds tokens, of a language model for instance, to the execution's
// cost. It is saved with the next step, wait or checkpoint, or with the run's
// end.
func AddCost(ctx context.Context, tokens int64) {
	if r := run.From(ctx); r != nil && tokens > 0 {
		r.AddCost(tokens)
	}
}

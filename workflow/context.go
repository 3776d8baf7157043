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

// Token is the fencing token of the run that ctx belongs to, 0 outside of one. It grows with every
// claim of the execution: a system that remembers the highest token it has seen can refuse writes
// with a lower one.
func Token(ctx context.Context) belay.Token { return RunID(ctx).Token }

// RunID names the run that ctx belongs to, zero outside of one.
func RunID(ctx context.Context) belay.RunID {
	if r := run.From(ctx); r != nil {
		return r.ID()
	}
	return belay.RunID{}
}

// Attempt is the number of this run, from 1; only failed and timed-out runs raise it. It is 0
// outside of a run.
func Attempt(ctx context.Context) int {
	if r := run.From(ctx); r != nil {
		return r.Assignment().Attempt
	}
	return 0
}

// IdempotencyKey names the step that ctx belongs to. It is the same in every run of the execution.
// Send it to systems that refuse a second request with the same key. Outside of a step it names the
// execution; outside of an execution it is empty. It is printable ASCII and may be sent in a
// header.
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

// Preempted returns a channel that is closed when the run shall give its execution back, because an
// operator paused the execution or preempted it for more urgent work. The next step or wait does so
// without code of the author; a long step may save a Checkpoint and return ErrYield earlier.
// Outside of a run the channel is nil and never closes.
func Preempted(ctx context.Context) <-chan struct{} {
	if r := run.From(ctx); r != nil {
		return r.Asked()
	}
	return nil
}

// Guard blocks while the worker is cut off from the store. It returns nil once it is certain that
// the run still owns its execution, or an error that is belay.ErrLeaseLost if the run does not.
// Steps, checkpoints and output call it themselves. Call it inside a long step right before each
// effect on a system that does not check the fencing token.
func Guard(ctx context.Context) error {
	r := run.From(ctx)
	if r == nil {
		return run.ErrNoRun
	}
	return r.Enter()
}

// OnFreeze registers two functions until remove is called. The worker calls freeze when it is cut
// off from the store for so long that the lease may be lost, and thaw when it learns that the lease
// is still valid. Between the two calls, stop everything that has effects of its own, such as a
// child process (SIGSTOP). Both functions must be quick and call nothing of this package. If the
// lease is lost, ctx ends and thaw is not called: then kill the stopped processes. Outside of a run
// neither function is ever called.
func OnFreeze(ctx context.Context, freeze, thaw func()) (remove func()) {
	if r := run.From(ctx); r != nil {
		return r.OnFreeze(freeze, thaw)
	}
	return func() {}
}

// Progress tells the engine that the execution makes progress, which matters if its policy has an
// IdleTimeout. Steps, checkpoints and output count as progress without this call.
func Progress(ctx context.Context) {
	if r := run.From(ctx); r != nil {
		r.Progress()
	}
}

// AddCost adds tokens, of a language model for instance, to the execution's cost. The sum is saved
// with the next step, wait or checkpoint, or with the end of the run.
func AddCost(ctx context.Context, tokens int64) {
	if r := run.From(ctx); r != nil && tokens > 0 {
		r.AddCost(tokens)
	}
}

package workflow

import (
	"context"
	"log/slog"
	"net/url"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/run"
)

// Execution returns the id of the execution that ctx belongs to; zero if ctx belongs to no
// execution.
func Execution(ctx context.Context) belay.ExecutionID {
	if r := run.From(ctx); r != nil {
		return r.ID().Execution
	}
	return belay.ExecutionID{}
}

// Token returns the fencing token of the run that ctx belongs to; 0 if ctx belongs to no run. The
// token grows with every claim of the execution. So a system that stores the highest token it has
// received can refuse writes with a lower token.
func Token(ctx context.Context) belay.Token { return RunID(ctx).Token }

// RunID returns the id of the run that ctx belongs to; zero if ctx belongs to no run.
func RunID(ctx context.Context) belay.RunID {
	if r := run.From(ctx); r != nil {
		return r.ID()
	}
	return belay.RunID{}
}

// Attempt returns the number of this attempt, from 1; only failed and timed-out runs raise it. It
// returns 0 if ctx belongs to no run.
func Attempt(ctx context.Context) int {
	if r := run.From(ctx); r != nil {
		return r.Assignment().Attempt
	}
	return 0
}

// Trace returns the trace of the run that ctx belongs to. Send it to the systems that the workflow calls, as the
// headers traceparent and tracestate of HTTP requests, so that their spans belong to the span of the run. It is zero
// if there is no trace, or if ctx belongs to no run.
func Trace(ctx context.Context) belay.Trace {
	if r := run.From(ctx); r != nil {
		return r.Assignment().Trace
	}
	return belay.Trace{}
}

// LogAttr returns the attributes execution, token and worker of the run that ctx belongs to, with which Belay itself
// writes log lines about runs; it is empty if ctx belongs to no run:
//
//	slog.With(workflow.LogAttr(ctx)).InfoContext(ctx, "charged", "amount", amount)
func LogAttr(ctx context.Context) slog.Attr {
	if r := run.From(ctx); r != nil {
		return slog.Any("", r.Assignment().Lease)
	}
	return slog.Attr{}
}

// IdempotencyKey returns a key for the step that ctx belongs to, the same in every run of the
// execution. Send the key to systems that refuse a second request with the same key. Outside of a
// step the key belongs to the execution; if ctx belongs to no execution, it is empty. The key is
// printable ASCII and may be sent in a header.
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

// Preempted returns a channel that is closed when the run must give its execution back, because an operator has paused
// the execution or preempted it for more urgent work, or because a circuit breaker has refused a step's call of its
// [Target]. The next step or wait then gives the execution back by itself. A long step delays this; to avoid the delay,
// it may save a Checkpoint and return ErrYield. If ctx belongs to no run, the channel is nil and is never closed.
func Preempted(ctx context.Context) <-chan struct{} {
	if r := run.From(ctx); r != nil {
		return r.Asked()
	}
	return nil
}

// Guard blocks while the worker cannot reach the store. It returns nil when it is certain that the
// run still owns its execution, or an error that is belay.ErrLeaseLost if the run does not own it
// any more. The functions of this package that write to the store call Guard themselves. In a long
// step, call Guard right before each effect on a system that does not check the fencing token.
func Guard(ctx context.Context) error {
	r := run.From(ctx)
	if r == nil {
		return run.ErrNoRun
	}
	return r.Enter()
}

// OnFreeze registers two functions until remove is called. The worker calls freeze when it has not
// reached the store for so long that the lease may be lost, and thaw when it learns that the lease
// is still valid. Between the two calls, nothing may have effects on other systems: freeze must
// stop, for example, a child process (SIGSTOP), and thaw lets it continue. Both functions must be
// quick and must not call functions of this package. If the lease is lost, ctx ends and thaw is not
// called; the stopped processes must then be killed. If ctx belongs to no run, neither function is
// called.
func OnFreeze(ctx context.Context, freeze, thaw func()) (remove func()) {
	if r := run.From(ctx); r != nil {
		return r.OnFreeze(freeze, thaw)
	}
	return func() {}
}

// Progress reports to the engine that the execution makes progress, which matters if its policy has
// an IdleTimeout. Steps, checkpoints and output count as progress without this call.
func Progress(ctx context.Context) {
	if r := run.From(ctx); r != nil {
		r.Progress()
	}
}

// AddCost adds tokens, for example of a language model, to the execution's cost. The sum is saved
// with the next step, wait or checkpoint, or at the end of the run.
func AddCost(ctx context.Context, tokens int64) { AddExactCost(ctx, belay.CostOf(tokens)) }

// AddUsage adds the usage of language models to the execution's usage, which GET /v1/usage and belay usage
// report, and its tokens to the execution's cost. Both are saved with the next step, wait or checkpoint. A
// correction may have negative fields; it lowers the usage, but not the cost.
func AddUsage(ctx context.Context, u belay.ModelUsage) {
	if r := run.From(ctx); r != nil {
		r.AddUsage(u)
	}
}

// AddExactCost is AddCost for a cost that is no whole number of tokens.
func AddExactCost(ctx context.Context, cost belay.Cost) {
	if r := run.From(ctx); r != nil && cost > 0 {
		r.AddCost(cost)
	}
}

package run

import (
	"context"
	"errors"

	"github.com/belaydev/belay"
)

// circuit is the reason for which the run ends before a step calls a target: the circuit breaker of
// the target has refused the call.
type circuit struct {
	target string
	answer belay.TargetAnswer
}

// callTarget calls fn if the circuit breaker of the target lets the call through, and reports how
// the call ended. If the breaker refuses the call, the run gives its execution back: callTarget
// returns ErrYield, and steps that are running may finish.
func callTarget[T any](ctx context.Context, r *Run, target, step string, fn func(ctx context.Context) (T, error)) (T,
	error) {
	var zero T
	c := belay.TargetCall{Lease: r.a.Lease, Target: target, Step: step}
	answer, err := r.askTarget(c)
	if err != nil {
		return zero, r.answer("ask for the target "+target, err)
	}
	if !answer.Open {
		r.meet(&circuit{target, answer})
		return zero, r.pass(ctx)
	}
	v, err := fn(ctx)
	c.Outcome = blame(ctx, err)
	if answer.Probe || c.Outcome == belay.OutcomeFailed {
		r.reportTarget(c, answer.Probe)
	}
	return v, err
}

// blame says whether the target is to blame for the end of a call.
func blame(ctx context.Context, err error) belay.Outcome {
	switch {
	case err == nil:
		return belay.OutcomeSucceeded
	case belay.IsPermanent(err), errors.Is(err, ErrYield):
		return belay.OutcomeReleased
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrTimedOut):
		return belay.OutcomeReleased // the run was cancelled, or has lost its lease
	}
	return belay.OutcomeFailed
}

// askTarget asks the circuit breaker whether the call may begin, until the Backend answers. The run may
// have lost its lease while it waited for the answer, for example if its process was stopped: then
// askTarget returns an error.
func (r *Run) askTarget(c belay.TargetCall) (belay.TargetAnswer, error) {
	ctx, t := r.calls(r.life)
	for {
		if err := r.enter(); err != nil {
			return belay.TargetAnswer{}, err
		}
		answer, err := r.s.Backend.CallTarget(ctx, c)
		if err == nil {
			return answer, r.enter()
		}
		if !r.again(ctx, &t, err) {
			return answer, err
		}
	}
}

// reportTarget reports the end of a call. The report of a probe is repeated until the Backend answers. Any other report
// is sent only once, because the engine may count a repeated report as a second failure. A lost report does not change
// the result of the step.
func (r *Run) reportTarget(c belay.TargetCall, repeat bool) {
	ctx, t := r.calls(r.life)
	for r.enter() == nil {
		_, err := r.s.Backend.CallTarget(ctx, c)
		if err == nil || !repeat || !r.again(ctx, &t, err) {
			return
		}
	}
}

// meet makes the run give its execution back, because the circuit breaker of a target has refused a
// call.
func (r *Run) meet(c *circuit) {
	r.mu.Lock()
	if r.circuit == nil {
		r.circuit = c
	}
	r.mu.Unlock()
	r.Ask(belay.OutcomeFailed)
}

// settle sets the outcome and the failure of a run that an open circuit breaker has ended.
func (c *circuit) settle(s *belay.Settlement) {
	s.Outcome, s.RetryAfter = belay.OutcomeFailed, c.answer.RetryAfter
	s.Failure = &belay.Failure{
		Class: belay.ClassCircuitOpen, Message: c.answer.Why, Target: c.target,
	}
}

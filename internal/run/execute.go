package run

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// Func is a workflow function whose input and output are JSON.
type Func func(ctx context.Context, input json.RawMessage) (json.RawMessage, error)

// result is the output and the error of the workflow function.
type result struct {
	output json.RawMessage
	err    error
}

// Execute calls the workflow function and blocks until the function and all branches have returned.
// The caller must call Settle afterwards, even if the function called runtime.Goexit.
func (r *Run) Execute(fn Func) {
	r.result.err = errGoexit
	defer r.close()
	if err := r.resume(); err != nil {
		r.result.err = err
		return
	}
	err := r.root.call(r.ctx, func(ctx context.Context) error {
		out, err := fn(ctx, r.a.Input)
		r.result.output = out
		return err
	})
	r.result.err = err
}

// close waits for branches that are still running when the workflow function returns. It ends their
// contexts, unless the run gives its execution back: in this case the steps that are being executed
// may finish.
func (r *Run) close() {
	r.mu.Lock()
	r.returned = true
	if r.stop == stopNot && r.asked != 0 && errors.Is(r.result.err, ErrYield) {
		r.stop = stopGive // the function has returned ErrYield after it learned of the request from Asked
	}
	r.waits.branches--
	if r.waits.branches > 0 {
		r.waits.allOver = make(chan struct{})
		over := r.waits.allOver
		if r.stop == stopNot {
			r.end(errOver)
		}
		r.mu.Unlock()
		<-over
		r.mu.Lock()
	}
	if r.waits.timer != nil {
		r.waits.timer.Stop()
	}
	r.mu.Unlock()
}

// Failed reports, after Execute, whether the function of the run has failed by itself. A run that
// suspends, is cancelled or gives its execution back has not failed.
func (r *Run) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stop == stopNot && (r.fault != nil || r.result.err != nil && !r.cancelled)
}

// Settle ends the run in the store, unless the lease is lost. It must be called once, after
// Execute. An error means that the store did not accept the outcome; the engine then takes the
// execution back when the lease expires.
func (r *Run) Settle() error {
	r.over.Store(true)
	defer r.discard()
	s := r.settlement()
	ctx, t := r.calls(r.life)
	for {
		if err := r.enter(); err != nil {
			return err
		}
		err := r.s.Backend.Settle(ctx, s)
		switch {
		case err == nil:
			return nil
		case s.Steps != nil && Refused(err):
			s.Steps = nil
		case s.Output != nil && belay.IsPermanent(refused("", err)):
			// The store would refuse this output again, so the run is settled without the output.
			s.Output, s.Op, s.Repeat = nil, r.op(), false
			if s.Outcome == belay.OutcomeSucceeded {
				s.Outcome = belay.OutcomeFailed
				s.Failure = &belay.Failure{Class: belay.ClassPermanent, Message: "save the output: " + err.Error()}
			}
		case !r.again(ctx, &t, err):
			return r.answer("settle as "+s.Outcome.String(), err)
		default:
			s.Repeat = true
		}
	}
}

// discard releases the resources of the run's contexts.
func (r *Run) discard() {
	if r.free != nil {
		r.free()
	}
	r.end(errOver)
	r.kill(errOver)
}

// settlement returns the settlement with the outcome of the run.
func (r *Run) settlement() belay.Settlement {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := belay.Settlement{Lease: r.a.Lease, Op: r.op(), CostTokens: r.takeCost()}
	if r.s.reports() {
		s.Steps = r.reports.takeLocked()
	}
	err := r.result.err
	switch {
	case r.fault != nil && r.stop == stopNot:
		r.failedLocked(&s, r.fault)
	case r.stop != stopNot && r.cancelled:
		s.Outcome = belay.OutcomeCancelled
	case r.stop == stopSuspend:
		s.Outcome, s.WaitText, s.SignalSeen = belay.OutcomeSuspended, r.waits.text, r.signals.seen
		if !r.waits.until.IsZero() {
			s.Wait = max(time.Until(r.waits.until), time.Millisecond)
		}
	case r.stop == stopGive && r.asked == belay.OutcomeFailed:
		r.circuit.settle(&s)
	case r.stop == stopGive:
		s.Outcome = r.asked
	case err == nil:
		s.Outcome, s.Output = belay.OutcomeSucceeded, r.result.output
	case r.cancelled:
		s.Outcome = belay.OutcomeCancelled
	case r.stopped && !belay.IsPermanent(err):
		s.Outcome = belay.OutcomeReleased
	case errors.Is(context.Cause(r.ctx), ErrTimedOut), errors.Is(err, ErrTimedOut):
		s.Outcome = belay.OutcomeTimedOut
		s.Failure = &belay.Failure{Class: belay.ClassTimeout, Message: err.Error()}
		s.RetryAfter = belay.RetryDelay(err)
	default:
		r.failedLocked(&s, err)
	}
	if out, ok := belay.OutputOf(err); ok && r.stop == stopNot {
		s.Output = outputOf(out)
	}
	return s
}

// outputOf returns the output of a failed run as JSON; nil if it cannot be encoded.
func outputOf(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return data
}

func (r *Run) failedLocked(s *belay.Settlement, err error) {
	s.Outcome, s.RetryAfter = belay.OutcomeFailed, belay.RetryDelay(err)
	s.Failure = &belay.Failure{Class: belay.ClassTransient, Message: strings.ToValidUTF8(err.Error(), "\uFFFD")}
	if belay.IsPermanent(err) {
		s.Failure.Class = belay.ClassPermanent
	}
	var p *Panic
	if errors.As(err, &p) {
		s.Failure.Stack = p.Stack
	}
}

package workflow

import (
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/run"
)

// StepOption is an option of Step and Do.
type StepOption interface{ step(*options) }

// WaitOption is an option of WaitSignal.
type WaitOption interface{ wait(*options) }

// ChildOption is an option of Child.
type ChildOption interface{ child(*options) }

// KeyOption distinguishes calls that have the same name. Every call with a name accepts a
// KeyOption.
type KeyOption struct{ key string }

// Key distinguishes calls that have the same name, for example in a loop. The key is formatted with
// fmt.Sprint and becomes part of the name, whose maximum length is belay.MaxName bytes.
func Key(k any) KeyOption {
	if s, ok := k.(string); ok {
		return KeyOption{s}
	}
	return KeyOption{fmt.Sprint(k)}
}

type options struct {
	key     string
	retry   run.Retry
	target  string
	timeout time.Duration
	submit  []belay.SubmitOption
}

func (k KeyOption) step(o *options)  { o.key = k.key }
func (k KeyOption) wait(o *options)  { o.key = k.key }
func (k KeyOption) child(o *options) { o.key = k.key }

// keyOf returns the last key of the options; "" if there is none.
func keyOf(opts []KeyOption) string {
	if len(opts) == 0 {
		return ""
	}
	return opts[len(opts)-1].key
}

type retryOption run.Retry

func (r retryOption) step(o *options) { o.retry = run.Retry(r) }

// DefaultRetryCap is the maximum delay between two tries of a step.
const DefaultRetryCap = 30 * time.Second

// Retry makes a step run up to attempts times in total. The delay after the first failure is base,
// or the delay that [belay.RetryAfter] sets if that is longer. The delay doubles with each further
// failure, up to DefaultRetryCap; jitter subtracts up to half of the delay. After an error marked
// [belay.Permanent] the step is not tried again.
//
// All tries belong to one run and keep its slot in the worker, so use Retry for errors whose cause
// passes within seconds. For longer delays, return the error from the workflow; the execution is
// then retried according to its policy.
func Retry(attempts int, base time.Duration) StepOption {
	return retryOption{Attempts: attempts, Base: base, Cap: max(base, DefaultRetryCap)}
}

type targetOption string

func (t targetOption) step(o *options) { o.target = string(t) }

// Target names the external service that a step calls, such as "payments:charge", with at most
// belay.MaxName bytes. All executions that name a target share its circuit breaker, over all servers:
// after five failures within a minute it is open for 30 seconds. Then it lets one call at a time
// through, to find out whether the service is available again, and closes after two successes. Errors
// marked [belay.Permanent] are no failures of the target.
//
// While the breaker is open, or an operator has paused the target, the step does not begin: the run
// gives its execution back, and a later run continues at this step. Meanwhile the execution occupies
// no worker, and no attempt is counted. Steps that are running may finish and save their results.
//
// Before each try of the step, one request to the server asks whether the breaker lets the call
// through.
func Target(name string) StepOption { return targetOption(name) }

type timeoutOption time.Duration

func (t timeoutOption) wait(o *options) { o.timeout = max(0, time.Duration(t)) }

// Timeout ends the wait with ErrTimeout when d has passed, by the store's clock, since the first
// run of the execution reached the wait. With 0 the wait does not block: it takes a signal that has
// already arrived, or returns ErrTimeout.
func Timeout(d time.Duration) WaitOption { return timeoutOption(d) }

type submitOption []belay.SubmitOption

func (s submitOption) child(o *options) { o.submit = append(o.submit, s...) }

// With submits the child with the given options, such as [belay.Queue] or [belay.WithGates]. The options
// apply when the child is started: a later run of the parent that calls Child with other options finds
// the child that was started before, and does not change it.
func With(opts ...belay.SubmitOption) ChildOption { return submitOption(opts) }

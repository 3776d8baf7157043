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

// KeyOption distinguishes calls with the same name. It is an option of every call that takes a
// name.
type KeyOption struct{ key string }

// Key distinguishes calls with the same name, in a loop for instance. The key is formatted with
// fmt.Sprint and becomes part of the name, which has belay.MaxName bytes at most.
func Key(k any) KeyOption {
	if s, ok := k.(string); ok {
		return KeyOption{s}
	}
	return KeyOption{fmt.Sprint(k)}
}

type options struct {
	key     string
	retry   run.Retry
	timeout time.Duration
	submit  []belay.SubmitOption
}

func (k KeyOption) step(o *options)  { o.key = k.key }
func (k KeyOption) wait(o *options)  { o.key = k.key }
func (k KeyOption) child(o *options) { o.key = k.key }

// keyOf is the last of the key options, "" if there is none.
func keyOf(opts []KeyOption) string {
	if len(opts) == 0 {
		return ""
	}
	return opts[len(opts)-1].key
}

type retryOption run.Retry

func (r retryOption) step(o *options) { o.retry = run.Retry(r) }

// DefaultRetryCap is the longest wait between two tries of a step.
const DefaultRetryCap = 30 * time.Second

// Retry tries the step up to attempts times in all. The delay after the first failure is base, or
// the delay that [belay.RetryAfter] asks for if that is longer. It doubles with each further
// failure, up to DefaultRetryCap; jitter subtracts up to half. An error marked [belay.Permanent] is
// not tried again.
//
// All tries belong to one run and keep its worker busy, so use them for errors that are over in
// seconds. For longer delays return the error from the workflow; the execution is then retried as
// its policy says.
func Retry(attempts int, base time.Duration) StepOption {
	return retryOption{Attempts: attempts, Base: base, Cap: max(base, DefaultRetryCap)}
}

type timeoutOption time.Duration

func (t timeoutOption) wait(o *options) { o.timeout = max(0, time.Duration(t)) }

// Timeout ends the wait with ErrTimeout once d has passed, by the store's clock, since the first
// run of the execution reached the wait. With 0 the wait does not block: it takes a signal that has
// arrived already or returns ErrTimeout.
func Timeout(d time.Duration) WaitOption { return timeoutOption(d) }

type submitOption []belay.SubmitOption

func (s submitOption) child(o *options) { o.submit = append(o.submit, s...) }

// With submits the child with the given options, such as belay.Queue.
func With(opts ...belay.SubmitOption) ChildOption { return submitOption(opts) }

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

// KeyOption tells calls of one name apart. It is an option of every call that
// takes a name.
type KeyOption struct{ key string }

// Key tells calls of one name apart, in a loop for instance. It is written with
// fmt.Sprint and becomes part of the name, which has belay.MaxName bytes at
// most.
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

// keyOf is the key among options that can be nothing else.
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

// Retry tries the step up to attempts times in all. The wait after the first
// failure is base, or what [belay.RetryAfter] asks for if that is longer; it
// doubles with each further failure up to DefaultRetryCap, less up to half as
// jitter. An error marked [belay.Permanent] is not tried again.
//
// The tries are those of one run and keep its worker busy: they are for what is
// over in seconds. For more patience return the error; the execution is then
// run again as its policy says.
func Retry(attempts int, base time.Duration) StepOption {
	return retryOption{Attempts: attempts, Base: base, Cap: max(base, DefaultRetryCap)}
}

type timeoutOption time.Duration

func (t timeoutOption) wait(o *options) { o.timeout = max(0, time.Duration(t)) }

// Timeout ends the wait with ErrTimeout once d has passed, by the store's clock,
// since the first time that any run came to it. With 0 the wait only looks.
func Timeout(d time.Duration) WaitOption { return timeoutOption(d) }

type submitOption []belay.SubmitOption

func (s submitOption) child(o *options) { o.submit = append(o.submit, s...) }

// With starts the child with options of a submission, such as belay.Queue.
func With(opts ...belay.SubmitOption) ChildOption { return submitOption(opts) }

package belay

import (
	"errors"
	"fmt"
	"time"
)

// Code is the kind of an Error. The list of codes is closed, so that programs can switch on them.
// The table codes maps each code to an HTTP status and to an exit code of the command line.
type Code string

// The codes of errors.
const (
	CodeMalformed           Code = "malformed"            // the request cannot be parsed
	CodeInvalid             Code = "invalid"              // the request breaks a rule, which the message names
	CodeLeaseLost           Code = "lease_lost"           // the caller is not the owner any more; Cause says why
	CodeLeaseHeld           Code = "lease_held"           // the execution has another owner
	CodeIdempotencyMismatch Code = "idempotency_mismatch" // another body has used this key or operation id
	CodeQueueFull           Code = "queue_full"
	CodeNoWorker            Code = "no_worker"
	CodeCircuitOpen         Code = "circuit_open"
	CodeSwapInProgress      Code = "swap_in_progress"
	CodePayloadTooLarge     Code = "payload_too_large" // the data is too large; the message names the limit
	CodeNotFound            Code = "not_found"
	CodeConflict            Code = "conflict" // the action is not legal in the current state
	CodeUnauthorized        Code = "unauthorized"
	CodeForbidden           Code = "forbidden"
	CodeTokenRequired       Code = "token_required"
	CodeCursorExpired       Code = "cursor_expired"
	CodeRateLimited         Code = "rate_limited"
	CodeUnavailable         Code = "unavailable" // the store or server cannot answer now; try again later
	CodeInternal            Code = "internal"
)

// codes maps each code of an Error to an HTTP status and to an exit code of the command line. All
// conversions use this table.
var codes = []struct {
	Code   Code
	Status int
	Exit   int
}{
	{CodeMalformed, 400, 64},
	{CodeInvalid, 422, 65},
	{CodeLeaseLost, 412, 75},
	{CodeLeaseHeld, 409, 75},
	{CodeIdempotencyMismatch, 422, 65},
	{CodeQueueFull, 429, 75},
	{CodeNoWorker, 500, 69},
	{CodeCircuitOpen, 500, 69},
	{CodeSwapInProgress, 423, 75},
	{CodePayloadTooLarge, 413, 65},
	{CodeNotFound, 404, 66},
	{CodeConflict, 409, 73},
	{CodeUnauthorized, 401, 77},
	{CodeForbidden, 403, 77},
	{CodeTokenRequired, 428, 65},
	{CodeCursorExpired, 410, 66},
	{CodeRateLimited, 429, 75},
	{CodeUnavailable, 503, 69},
	{CodeInternal, 500, 70},
}

// Status returns the HTTP status of the code.
func (c Code) Status() int {
	for _, row := range codes {
		if row.Code == c {
			return row.Status
		}
	}
	return 500
}

// Exit returns the exit code, from sysexits.h, of a command that fails with this code.
func (c Code) Exit() int {
	for _, row := range codes {
		if row.Code == c {
			return row.Exit
		}
	}
	return 70
}

// Cause says why a lease is not valid any more.
type Cause string

// The causes for which a lease is lost.
const (
	CauseExpired    Cause = "expired"    // the worker's session expired or was closed
	CauseReassigned Cause = "reassigned" // another claim has taken the execution in the meantime
	CauseCancelled  Cause = "cancelled"  // the execution was cancelled and its grace period is over
	CauseFinished   Cause = "finished"   // the execution has ended
)

// Error is the error type of all calls of Belay.
type Error struct {
	// Code is the kind of the error.
	Code Code `json:"code"`
	// Op names the operation that failed, as in "settle ex_01…".
	Op string `json:"op,omitempty"`
	// Message says in one sentence what is wrong and what to do about it.
	Message string `json:"message"`
	// Cause says why the lease is not valid any more. It is set when Code is CodeLeaseLost.
	Cause Cause `json:"cause,omitempty"`
	// Holder describes the current owner. It is set when Code is CodeLeaseHeld.
	Holder *Holder `json:"holder,omitempty"`
	// RetryAfter is how long to wait before sending the request again. It is zero when a repetition
	// cannot succeed.
	RetryAfter time.Duration `json:"-"`
	// Err is the wrapped error, or nil.
	Err error `json:"-"`
}

// Error returns the operation, the message, the cause and the wrapped error as one text.
func (e *Error) Error() string {
	s := e.Message
	if s == "" {
		s = string(e.Code)
	}
	if e.Cause != "" {
		s = fmt.Sprintf("%s (%s)", s, e.Cause)
	}
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether the target is an *Error that has the same code and no message and, if it names
// a cause, the same cause. So errors.Is(err, ErrLeaseLost) is true for every lost lease.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == "" && (t.Cause == "" || t.Cause == e.Cause)
}

// ErrLeaseLost is the cause of a run's context once its worker does not own the execution any more.
// The run cannot write anything then, so the function may return this error or any other.
var ErrLeaseLost error = &Error{Code: CodeLeaseLost}

// CodeOf returns the code of the first *Error in err's chain, or CodeInternal if there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// permanent marks an error that a retry cannot avoid.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks err as an error that a retry cannot avoid: the execution fails at once instead of
// being retried. Permanent returns nil if err is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// IsPermanent reports whether err, or an error that it wraps, was marked with Permanent.
func IsPermanent(err error) bool {
	var p permanent
	return errors.As(err, &p)
}

// delayed is an error together with a minimum delay before the next attempt.
type delayed struct {
	error
	after time.Duration
}

func (d delayed) Unwrap() error { return d.error }

// RetryAfter marks err so that the next attempt begins no sooner than d from now. A longer delay of
// the retry policy still applies. The failed attempt is charged to the retry budget. RetryAfter
// returns nil if err is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return delayed{err, d}
}

// RetryDelay returns the longest delay with which RetryAfter marked err or an error that err wraps,
// or 0 if there is none.
func RetryDelay(err error) time.Duration {
	var d delayed
	if !errors.As(err, &d) {
		return 0
	}
	return max(d.after, RetryDelay(d.error))
}

// failedWith is an error with the output of the failed run.
type failedWith struct {
	error
	output any
}

func (f failedWith) Unwrap() error { return f.error }

// WithOutput gives a failed run an output. The store keeps the output with the run and, if this run
// is the execution's last, also with the execution. For example, the output of a failed command
// contains its exit code and its changes. WithOutput returns nil if err is nil.
func WithOutput(err error, output any) error {
	if err == nil {
		return nil
	}
	return failedWith{err, output}
}

// OutputOf returns the output that WithOutput gave to err or to an error that err wraps, and false
// if there is none.
func OutputOf(err error) (any, bool) {
	var f failedWith
	if !errors.As(err, &f) {
		return nil, false
	}
	return f.output, true
}

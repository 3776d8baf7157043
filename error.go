package belay

import (
	"errors"
	"fmt"
	"time"
)

// Code says what kind of refusal an error is. The list is closed: programs
// switch on it, HTTP and the command line map it by one table.
type Code string

// The codes.
const (
	CodeMalformed           Code = "malformed"            // cannot be read at all
	CodeInvalid             Code = "invalid"              // can be read and breaks a rule; say which
	CodeLeaseLost           Code = "lease_lost"           // final for that owner; Cause says why
	CodeLeaseHeld           Code = "lease_held"           // somebody else owns it
	CodeIdempotencyMismatch Code = "idempotency_mismatch" // the same key with another body
	CodeQueueFull           Code = "queue_full"
	CodeNoWorker            Code = "no_worker"
	CodeCircuitOpen         Code = "circuit_open"
	CodeSwapInProgress      Code = "swap_in_progress"
	CodePayloadTooLarge     Code = "payload_too_large" // the message names the limit
	CodeNotFound            Code = "not_found"
	CodeConflict            Code = "conflict" // the transition is not legal from here
	CodeUnauthorized        Code = "unauthorized"
	CodeForbidden           Code = "forbidden"
	CodeTokenRequired       Code = "token_required"
	CodeCursorExpired       Code = "cursor_expired"
	CodeRateLimited         Code = "rate_limited"
	CodeUnavailable         Code = "unavailable" // try again later
	CodeInternal            Code = "internal"
)

// codes is the one table from codes to HTTP statuses and exit codes of the
// command line, used in both directions.
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

// Status is the HTTP status of the code.
func (c Code) Status() int {
	for _, row := range codes {
		if row.Code == c {
			return row.Status
		}
	}
	return 500
}

// Exit is the exit code of a command that ends with this code, from sysexits.h.
func (c Code) Exit() int {
	for _, row := range codes {
		if row.Code == c {
			return row.Exit
		}
	}
	return 70
}

// Cause says why a lease is lost.
type Cause string

// The causes.
const (
	CauseExpired    Cause = "expired"    // the session ran out of time or was ended
	CauseReassigned Cause = "reassigned" // a newer claim owns the execution
	CauseCancelled  Cause = "cancelled"  // the cancel's grace is over
	CauseFinished   Cause = "finished"   // the execution has ended
)

// Error is what Belay refuses with.
type Error struct {
	// Code is the kind of refusal.
	Code Code `json:"code"`
	// Op is what was attempted, as in "settle ex_01…".
	Op string `json:"op,omitempty"`
	// Message says what is wrong and what to do, in one sentence.
	Message string `json:"message"`
	// Cause says why, when Code is CodeLeaseLost.
	Cause Cause `json:"cause,omitempty"`
	// Holder says who owns the execution, when Code is CodeLeaseHeld.
	Holder *Holder `json:"holder,omitempty"`
	// RetryAfter is how long to wait before asking again; zero when asking
	// again is no use.
	RetryAfter time.Duration `json:"-"`
	// Err is what lies below, if anything.
	Err error `json:"-"`
}

// Error writes the operation, the message and what lies below.
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

// Unwrap gives what lies below.
func (e *Error) Unwrap() error { return e.Err }

// Is matches an error of the same code, and of the same cause where the target
// names one, so that errors.Is(err, ErrLeaseLost) holds for every lost lease.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == "" && (t.Cause == "" || t.Cause == e.Cause)
}

// ErrLeaseLost is the cause of a run's context once its worker does not own the
// execution any more. Return it, or any error: nothing more can be written.
var ErrLeaseLost error = &Error{Code: CodeLeaseLost}

// CodeOf is the code of err, CodeInternal if it has none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// permanent marks an error that will not go away.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks err as one that will not go away: the execution fails at once
// instead of being retried.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// IsPermanent reports whether err, or what lies below it, was marked Permanent.
func IsPermanent(err error) bool {
	var p permanent
	return errors.As(err, &p)
}

// delayed asks for a delay before the next attempt.
type delayed struct {
	error
	after time.Duration
}

func (d delayed) Unwrap() error { return d.error }

// RetryAfter asks that the next attempt come no sooner than d from now, if the
// retry policy would have it sooner. The attempt is still charged.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return delayed{err, d}
}

// RetryDelay is the longest delay that err asks for with RetryAfter.
func RetryDelay(err error) time.Duration {
	var d delayed
	if !errors.As(err, &d) {
		return 0
	}
	return max(d.after, RetryDelay(d.error))
}

// failedWith carries what a failed run has nevertheless to show.
type failedWith struct {
	error
	output any
}

func (f failedWith) Unwrap() error { return f.error }

// WithOutput gives a failing run an output: it is kept with the run, and with
// the execution if that ends by it. A command that failed still has its exit
// code and what it changed.
func WithOutput(err error, output any) error {
	if err == nil {
		return nil
	}
	return failedWith{err, output}
}

// OutputOf is the output that err, or what lies below it, carries.
func OutputOf(err error) (any, bool) {
	var f failedWith
	if !errors.As(err, &f) {
		return nil, false
	}
	return f.output, true
}

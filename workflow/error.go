package workflow

import (
	"github.com/belaydev/belay/internal/run"
)

var (
	// ErrYield says that the run gives its execution back here: it waits for
	// something far off, or an operator asked for a pause or something more
	// urgent for the worker. Just return it. A function that heard of it
	// through Preempted may return it by itself.
	ErrYield = run.ErrYield
	// ErrTimeout is the answer of a wait whose Timeout is over.
	ErrTimeout = run.ErrTimeout
	// ErrCancelled is the cause of the context of a cancelled execution. What
	// is saved until the cancel's grace is over counts.
	ErrCancelled = run.ErrCancelled
	// ErrReleased is the cause of the context when the worker stops; another
	// one goes on with the execution.
	ErrReleased = run.ErrReleased
	// ErrTimedOut is the cause of the context when the run lasted longer than
	// its policy allows. It is a context.DeadlineExceeded.
	ErrTimedOut = run.ErrTimedOut
)

// CancelCause is the cause of the context of a cancelled execution; it is an
// ErrCancelled. Within is how much time was left to end when the worker heard of
// it.
type CancelCause = run.Cancelled

// PanicError is what a panic of a workflow or one of its branches becomes.
type PanicError = run.Panic

// EndedError says that an execution failed or was cancelled. Failure says how it
// failed and is nil if it was cancelled; Output is what it had to show
// nevertheless, as JSON (see belay.WithOutput).
type EndedError = run.Ended

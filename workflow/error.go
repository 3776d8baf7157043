package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay"
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
	ErrCancelled = errors.New("the execution was cancelled")
	// ErrReleased is the cause of the context when the worker stops; another
	// one goes on with the execution.
	ErrReleased = run.ErrReleased
	// ErrTimedOut is the cause of the context when the run lasted longer than
	// its policy allows. It is a context.DeadlineExceeded.
	ErrTimedOut = run.ErrTimedOut
)

// CancelCause is the cause of the context of a cancelled execution; it is an
// ErrCancelled.
type CancelCause struct {
	// Within is how much of the cancel's grace was left when the worker heard
	// of it.
	Within time.Duration
}

// Error says how much time is left.
func (c *CancelCause) Error() string {
	return fmt.Sprintf("%s; %s are left to end", ErrCancelled, c.Within)
}

// Is makes the cause an ErrCancelled.
func (c *CancelCause) Is(target error) bool { return target == ErrCancelled }

// EndedError says that an execution failed or was cancelled.
type EndedError struct {
	Execution belay.ExecutionID
	Workflow  string
	State     belay.State
	// Failure is how it failed; nil if it was cancelled.
	Failure *belay.Failure
	// Output is what it had to show nevertheless, as JSON; see belay.WithOutput.
	Output json.RawMessage
}

// Error names the execution, its end and its failure.
func (e *EndedError) Error() string {
	s := fmt.Sprintf("%s %s %s", e.Workflow, e.Execution, e.State)
	if e.Failure != nil {
		s += ": " + e.Failure.Message
	}
	return s
}

// outcome is the output of an execution that has ended, or an *EndedError.
func outcome(x belay.Execution) (json.RawMessage, error) {
	if x.State == belay.Succeeded {
		return x.Output, nil
	}
	return nil, &EndedError{Execution: x.ID, Workflow: x.Workflow, State: x.State, Failure: x.Error, Output: x.Output}
}

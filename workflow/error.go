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
	// ErrYield says that the run gives its execution back: the execution begins a long wait, or an
	// operator has paused it or preempted it for more urgent work. Return the error from the
	// workflow function. A function that has learned from Preempted that it must give the execution
	// back may also return ErrYield itself.
	ErrYield = run.ErrYield
	// ErrTimeout is the error of a wait that exceeded its Timeout.
	ErrTimeout = run.ErrTimeout
	// ErrPayload is the error of a WaitSignal that has consumed a signal with a payload of another
	// type. The next call for this wait waits for another signal.
	ErrPayload = errors.New("the payload of a signal has the wrong type")
	// ErrCancelled is the cause of the context of a cancelled execution. The run may still save
	// checkpoints until the policy's CancelGrace is over.
	ErrCancelled = errors.New("the execution was cancelled")
	// ErrReleased is the cause of a context that ended because the worker stops; another worker
	// continues the execution.
	ErrReleased = run.ErrReleased
	// ErrTimedOut is the cause of a context that ended because the run exceeded the time limit of
	// its policy. It is a context.DeadlineExceeded. A function that has a time limit of its own may
	// return an error that wraps ErrTimedOut: the run then ends as timed out.
	ErrTimedOut = run.ErrTimedOut
)

// CancelCause is the cause of the context of a cancelled execution; errors.Is reports that it is
// ErrCancelled.
type CancelCause struct {
	// Within is the rest of the grace period when the worker received the cancel.
	Within time.Duration
}

// Error says how much time is left for the function to end.
func (c *CancelCause) Error() string {
	return fmt.Sprintf("%s; %s are left to end", ErrCancelled, c.Within)
}

// Is reports whether the target is ErrCancelled.
func (c *CancelCause) Is(target error) bool { return target == ErrCancelled }

// EndedError is the error of an execution that failed or was cancelled.
type EndedError struct {
	Execution belay.ExecutionID
	Workflow  string
	State     belay.State
	// Failure is the failure of the execution; nil if the execution was cancelled.
	Failure *belay.Failure
	// Output is the output, as JSON, that the failed run gave with belay.WithOutput.
	Output json.RawMessage
}

// Error names the workflow, the execution, its state and its failure.
func (e *EndedError) Error() string {
	s := fmt.Sprintf("%s %s %s", e.Workflow, e.Execution, e.State)
	if e.Failure != nil {
		s += ": " + e.Failure.Message
	}
	return s
}

// outcome returns the output of an execution that has ended, or an *EndedError if it did not
// succeed.
func outcome(x belay.Execution) (json.RawMessage, error) {
	if x.State == belay.Succeeded {
		return x.Output, nil
	}
	return nil, &EndedError{Execution: x.ID, Workflow: x.Workflow, State: x.State, Failure: x.Error, Output: x.Output}
}

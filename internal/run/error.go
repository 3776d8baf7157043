package run

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/belaydev/belay"
)

var (
	// ErrYield is the error of steps and waits after the run has decided to give its execution
	// back.
	ErrYield = errors.New("the run gives its execution back; return this error from the workflow")
	// ErrReleased is the cause of a context that ended because the worker stops.
	ErrReleased = errors.New("the worker stops and gives the execution back")
	// ErrTimedOut is the cause of a context that ended because the run exceeded its time limit. It
	// is a context.DeadlineExceeded.
	ErrTimedOut = fmt.Errorf("the run exceeded its timeout: %w", context.DeadlineExceeded)
	// ErrTimeout is the error of a wait that exceeded its timeout.
	ErrTimeout = errors.New("the wait timed out")
	// ErrNoRun is the error of a call with a context that belongs to no run.
	ErrNoRun = belay.Permanent(errors.New(
		"the context does not belong to a run: pass on the context with which the workflow was called"))

	errOver     = errors.New("the workflow has returned")
	errDeadlock = belay.Permanent(errors.New("deadlock: every branch waits for another branch"))
	errGoexit   = errors.New("the workflow ended its goroutine instead of returning")
)

// Panic is the error of a function that panicked.
type Panic struct {
	Value any
	Stack string
}

// maxStack is the maximum size of a stack trace, in bytes.
const maxStack = 16 << 10

func newPanic(v any) *Panic {
	stack := debug.Stack()
	return &Panic{Value: v, Stack: string(stack[:min(len(stack), maxStack)])}
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Unwrap returns the value of the panic if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// refuse returns the error of a call that breaks a rule of the SDK. The error is permanent, because
// the next run would break the same rule.
func refuse(op call, format string, args ...any) error {
	return belay.Permanent(&belay.Error{
		Code: belay.CodeInvalid, Op: op.String(), Message: fmt.Sprintf(format, args...),
	})
}

package run

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/belaydev/belay"
)

var (
	// ErrYield is what steps and waits answer with once the run gives its
	// execution back.
	ErrYield = errors.New("the run gives its execution back here; return this error")
	// ErrReleased is the cause of the context when the worker stops.
	ErrReleased = errors.New("the worker stops and gives the execution back")
	// ErrTimedOut is the cause of the context when the run's time is over. It
	// is a context.DeadlineExceeded.
	ErrTimedOut = fmt.Errorf("the time of the run is over: %w", context.DeadlineExceeded)
	// ErrTimeout is a wait's answer when its time is over.
	ErrTimeout = errors.New("the wait's time is over")
	// ErrNoRun is the answer to a context that belongs to no run.
	ErrNoRun = belay.Permanent(errors.New(
		"the context does not belong to a run: pass on the one the workflow was called with"))

	errOver     = errors.New("the workflow has returned")
	errDeadlock = belay.Permanent(errors.New("deadlock: every branch waits for another one"))
	errGoexit   = errors.New("the workflow ended its goroutine instead of returning")
)

// Panic is a panic as an error.
type Panic struct {
	Value any
	Stack string
}

// maxStack bounds a stack in bytes.
const maxStack = 16 << 10

func newPanic(v any) *Panic {
	stack := debug.Stack()
	return &Panic{Value: v, Stack: string(stack[:min(len(stack), maxStack)])}
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Unwrap gives the value of the panic, if it was an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// refuse is the error of a call that breaks a rule of the SDK. It will do so
// again in the next run.
func refuse(op call, format string, args ...any) error {
	return belay.Permanent(&belay.Error{
		Code: belay.CodeInvalid, Op: op.String(), Message: fmt.Sprintf(format, args...),
	})
}

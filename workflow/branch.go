package workflow

import (
	"context"

	"github.com/belaydev/belay/internal/run"
)

// Future is the result of a branch that [Go] started; Wait returns this result.
type Future[T any] struct {
	branch *run.Branch
	value  T
	err    error
}

// Go starts fn as a branch, which runs concurrently with its caller. Each branch has its own names:
// two branches may both have a step "fetch". The results of the branch's steps are saved; the
// result of the branch itself is not saved.
//
// Start branches with Go and not with a go statement: a run suspends as soon as all of its branches
// wait, even if a goroutine of a go statement is still working. If the workflow function returns
// before its branches, their contexts end, and the run ends after the last branch has returned.
func Go[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error), key ...KeyOption) *Future[T] {
	f := &Future[T]{}
	f.branch, f.err = run.Go(ctx, name, keyOf(key), func(ctx context.Context) error {
		v, err := fn(ctx)
		f.value = v
		return err
	})
	return f
}

// Wait blocks until the branch has returned, and returns the branch's result and error. A branch
// that is blocked in Wait counts as waiting, so that the run can suspend. Wait may be called more
// than once.
func (f *Future[T]) Wait(ctx context.Context) (T, error) {
	if f.branch == nil {
		return f.value, f.err
	}
	err := f.branch.Wait(ctx)
	if !f.branch.Over() {
		var zero T
		return zero, err
	}
	return f.value, err
}

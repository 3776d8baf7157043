package workflow

import (
	"context"

	"github.com/belaydev/belay/internal/run"
)

// Future is the result of a branch.
type Future[T any] struct {
	branch *run.Branch
	value  T
	err    error
}

// Go starts fn as a branch that runs beside its caller. Names used in the branch
// are its own: two branches may both have a step "fetch". What the branch
// returns is not saved, its steps are.
//
// Start branches with Go and not with a go statement: a run suspends when every
// branch waits, and it knows of no others. When the function returns before its
// branches, their context ends, and the run ends after the last of them.
func Go[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error), key ...KeyOption) *Future[T] {
	f := &Future[T]{}
	f.branch, f.err = run.Go(ctx, name, keyOf(key), func(ctx context.Context) error {
		v, err := fn(ctx)
		f.value = v
		return err
	})
	return f
}

// Wait blocks until the branch has returned and gives what it returned. A branch
// blocked here counts as waiting. It may be called more than once.
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

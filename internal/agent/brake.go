package agent

import (
	"context"
	"errors"
	"os"
	"sync"
)

// frozen is what a brake stops: a tree of processes.
type frozen interface {
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	Kill(cause error)
}

// brake stops a tree for as long as there is any reason to: who lets go of his own
// does not end that of another.
type brake struct {
	tree frozen

	mu      sync.Mutex
	reasons map[reason]bool
}

// reason is why a tree is stopped.
type reason string

const (
	forFence reason = "it is not known whether the execution is still ours"
	forSave  reason = "what it has changed is being read"
)

// hold stops the tree. The reason counts also when that fails, until release.
func (b *brake) hold(ctx context.Context, why reason) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reasons == nil {
		b.reasons = make(map[reason]bool)
	}
	b.reasons[why] = true
	return b.tree.Freeze(context.WithoutCancel(ctx))
}

// release lets the tree go on if nobody else holds it. One that does not thaw is
// killed: its clock stands still, so that nothing else would ever end it.
func (b *brake) release(ctx context.Context, why reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.reasons, why)
	if len(b.reasons) > 0 {
		return
	}
	if err := b.tree.Thaw(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, os.ErrProcessDone) {
		b.tree.Kill(err)
	}
}

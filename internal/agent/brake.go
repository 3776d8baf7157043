package agent

import (
	"context"
	"errors"
	"os"
	"sync"
)

// frozen is the tree of processes that a brake stops.
type frozen interface {
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	Kill(cause error)
}

// brake freezes a tree of processes while there is at least one reason.
type brake struct {
	tree frozen

	mu      sync.Mutex
	reasons map[reason]bool
}

// reason is a reason to freeze a tree.
type reason string

const (
	fenced    reason = "the worker does not know whether it still owns the execution"
	salvaging reason = "its workspace is being salvaged"
)

// hold freezes the tree for a reason. Even if that fails, the reason counts until release.
func (b *brake) hold(ctx context.Context, why reason) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reasons == nil {
		b.reasons = make(map[reason]bool)
	}
	b.reasons[why] = true
	return b.tree.Freeze(context.WithoutCancel(ctx))
}

// release thaws the tree if no other reason is left. It kills a tree that cannot be thawed, because
// the timeout of a frozen tree does not run and would never end the tree.
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

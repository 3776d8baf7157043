package agent

import (
	"context"
	"errors"
	"os"
	"sync"
)

// frozen is a tree of processes that can be frozen.
type frozen interface {
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	Kill(cause error)
}

// brake keeps a tree of processes frozen while at least one reason to freeze the tree exists.
type brake struct {
	mu      sync.Mutex
	tree    frozen // nil before the command starts
	reasons map[reason]bool
}

// reason says why a tree is frozen.
type reason string

const (
	fenced    reason = "the worker does not know whether it still owns the execution"
	salvaging reason = "its workspace is being salvaged"
)

// begin gives the brake the tree of a command that has started.
func (b *brake) begin(tree frozen) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tree = tree
}

var errNotStarted = errors.New("the command has not started")

// hold adds a reason and freezes the tree. If the tree cannot be frozen, the reason still counts
// until release removes it.
func (b *brake) hold(ctx context.Context, why reason) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reasons == nil {
		b.reasons = make(map[reason]bool)
	}
	b.reasons[why] = true
	if b.tree == nil {
		return errNotStarted
	}
	return b.tree.Freeze(context.WithoutCancel(ctx))
}

// release removes a reason and thaws the tree if no other reason is left. It kills a tree that
// cannot be thawed, because the timeout of a frozen tree does not run and would never end the tree.
func (b *brake) release(ctx context.Context, why reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.reasons, why)
	if len(b.reasons) > 0 || b.tree == nil {
		return
	}
	if err := b.tree.Thaw(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, os.ErrProcessDone) {
		b.tree.Kill(err)
	}
}

package belay

import (
	"context"
	"sync/atomic"
)

type replayKey struct{}

// WithReplay gives a context for one write, and tells after it whether the write was a
// repetition: whether it had been carried out before under its operation id, and was
// answered as it was then.
func WithReplay(ctx context.Context) (context.Context, func() bool) {
	said := new(atomic.Bool)
	return context.WithValue(ctx, replayKey{}, said), said.Load
}

// NoteReplay tells who made the context by [WithReplay] that the write was a repetition.
// A Backend calls it.
func NoteReplay(ctx context.Context) {
	if said, ok := ctx.Value(replayKey{}).(*atomic.Bool); ok {
		said.Store(true)
	}
}

package belay

import (
	"context"
	"sync/atomic"
)

type replayKey struct{}

// WithReplay returns a context for one write and a function that reports, after the write, whether
// the write was a replay: an earlier call with the same operation id had carried it out, and the
// Backend returned the answer of that call.
func WithReplay(ctx context.Context) (context.Context, func() bool) {
	replayed := new(atomic.Bool)
	return context.WithValue(ctx, replayKey{}, replayed), replayed.Load
}

// NoteReplay records in a context from [WithReplay] that the write was a replay. A Backend calls
// it.
func NoteReplay(ctx context.Context) {
	if replayed, ok := ctx.Value(replayKey{}).(*atomic.Bool); ok {
		replayed.Store(true)
	}
}

package belay

import (
	"context"
	"sync/atomic"
)

type replayKey struct{}

// WithReplay returns a context for one write, and a function for use after the write. The function
// reports whether the write was a replay: an earlier call with the same operation id had carried
// the write out, and the Backend returned the answer of that call.
func WithReplay(ctx context.Context) (context.Context, func() bool) {
	replayed := new(atomic.Bool)
	return context.WithValue(ctx, replayKey{}, replayed), replayed.Load
}

// NoteReplay records in a context from [WithReplay] that the write was a replay. Only a Backend
// calls it.
func NoteReplay(ctx context.Context) {
	if replayed, ok := ctx.Value(replayKey{}).(*atomic.Bool); ok {
		replayed.Store(true)
	}
}

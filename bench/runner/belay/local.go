package belay

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store"
)

// local is an engine in this process.
type local interface {
	belay.Backend
	Counts(ctx context.Context) (store.Counts, error)
	Stats() engine.Stats
}

func openLocal(ctx context.Context, url string) (local, error) {
	return embedded.Open(ctx, url, embedded.Logger(quiet()))
}

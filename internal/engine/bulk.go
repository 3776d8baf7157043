package engine

import (
	"context"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/bulk"
	"github.com/belaydev/belay/internal/machine"
)

// Bulk starts a bulk: one action on all executions or dead letters that match a filter. A dry run
// changes nothing, and only reports what the bulk would select.
func (e *Engine) Bulk(ctx context.Context, b belay.Bulk) (belay.BulkReply, error) {
	return bulk.Start(ctx, e, b)
}

// HasReady reports whether an execution of the workflow is due, or will be due at a known time. The
// answer may come from a cache and be a little old.
func (r *Reader) HasReady(ctx context.Context, workflow string) (bool, error) {
	ready, err := r.store.ReadyLanes(ctx)
	if err != nil {
		return false, err
	}
	for some := range slices.Chunk(ready, readLanes) {
		ids := make([]machine.LaneID, len(some))
		for i, h := range some {
			ids[i] = h.Lane
		}
		lanes, err := r.store.Lanes(ctx, ids)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(lanes, func(l machine.Lane) bool { return l.Workflow == workflow }) {
			return true, nil
		}
	}
	return false, nil
}

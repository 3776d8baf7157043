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

// ReadyAmong returns those of the workflows of which an execution is due, or will be due at a known time.
// The answer may come from a cache and be a little old.
func (r *Reader) ReadyAmong(ctx context.Context, workflows ...string) ([]string, error) {
	ready, err := r.store.ReadyLanes(ctx)
	if err != nil {
		return nil, err
	}
	var found []string
	for some := range slices.Chunk(ready, readLanes) {
		ids := make([]machine.LaneID, len(some))
		for i, h := range some {
			ids[i] = h.Lane
		}
		lanes, err := r.store.Lanes(ctx, ids)
		if err != nil {
			return nil, err
		}
		for i := range lanes {
			w := lanes[i].Workflow
			if slices.Contains(workflows, w) && !slices.Contains(found, w) {
				found = append(found, w)
			}
		}
		if len(found) == len(workflows) {
			break
		}
	}
	return found, nil
}

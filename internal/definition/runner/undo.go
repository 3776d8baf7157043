package runner

import (
	"context"
	"slices"

	"github.com/belaydev/belay/internal/definition"
)

// compensate runs the tasks that undo finished work, one after the other, when no child is under way any more.
func (x *execution) compensate(ctx context.Context) error {
	cause := x.byID[x.saved.Cause]
	if cause.OnFailure.Reaction != definition.Compensate {
		return nil
	}
	if x.saved.Undo == nil {
		if x.open > 0 {
			return nil // a task that is under way may succeed, and is undone then too
		}
		x.saved.Undo = x.undoing(cause)
		x.dirty = true
	}
	for x.open == 0 && x.saved.Undone < len(x.saved.Undo) {
		t := x.byID[x.saved.Undo[x.saved.Undone]]
		if t.status.ended() {
			x.saved.Undone++
			x.dirty = true
			continue
		}
		run, err := x.condition(ctx, t)
		if err == nil && !run {
			x.end(t, skipped, "")
			continue
		}
		var batch []starting
		if err == nil {
			err = x.prepare(ctx, t, -1, &batch)
		} else {
			err = x.fails(t, err)
		}
		if err != nil {
			return err
		}
		if len(batch) > 0 {
			if err := x.start(ctx, batch); err != nil {
				return err
			}
		}
	}
	return nil
}

// undoing returns the tasks that compensate for a failed task, in the reverse order in which the tasks that they undo
// have succeeded.
func (x *execution) undoing(cause *task) []string {
	undo := []string{}
	for _, id := range slices.Backward(x.saved.Order) {
		for _, u := range cause.OnFailure.Compensate {
			if x.byID[u].Needs[0] == id {
				undo = append(undo, u)
			}
		}
	}
	return undo
}

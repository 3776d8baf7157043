package runner

import (
	"context"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
)

// compensate runs the tasks that undo finished work, one after the other, when no child is under way any more.
func (x *execution) compensate(ctx context.Context) error {
	cause := x.byID[x.saved.Cause]
	if cause.OnFailure.Reaction != definition.Compensate {
		return nil
	}
	if x.saved.Undo == nil {
		if err := x.adopt(ctx); err != nil {
			return err
		}
		if x.open > 0 {
			return nil // a task that is under way may succeed, and is undone then too
		}
		for _, t := range x.tasks {
			if t.status == running && t.each != nil && t.each.Next >= t.each.Count {
				x.endEach(t)
			}
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

// adopt finds the children that an earlier run has started, and was lost before it saved that. Without a failure, the
// run would start them again.
func (x *execution) adopt(ctx context.Context) error {
	if x.known {
		return nil
	}
	for _, t := range x.tasks {
		if t.each != nil && (t.status == running || t.status == failed) {
			if err := x.adoptItems(ctx, t); err != nil {
				return err
			}
		}
	}
	for len(x.ready) > 0 {
		t := x.ready[0]
		x.ready = x.ready[1:]
		if t.status != pending || inline(t) {
			continue
		}
		if err := x.adoptTask(ctx, t); err != nil {
			return err
		}
	}
	x.known, x.dirty = true, true
	return nil
}

// adoptTask finds the child or the items of a task that is ready. If its condition is false, further tasks become
// ready.
func (x *execution) adoptTask(ctx context.Context, t *task) error {
	run, err := x.condition(ctx, t)
	if err == nil && run && t.Foreach != nil {
		err = x.list(ctx, t)
	}
	switch {
	case err != nil && belay.IsPermanent(x.judge(err)):
		return nil // the earlier run could not start it either
	case err != nil:
		return err
	case !run:
		x.end(t, skipped, "")
		return nil
	case t.Foreach != nil:
		t.status = running
		return x.adoptItems(ctx, t)
	}
	exists, err := x.exists(ctx, t.ID)
	if exists {
		t.status = running
		x.open++
	}
	return err
}

// adoptItems finds the items of a foreach that an earlier run has started. Items between them that were not started
// count as failed.
func (x *execution) adoptItems(ctx context.Context, t *task) error {
	e := t.each
	var between []int
	missing := 0
	for i := e.Next; i < e.Count && missing < maxBatch; i++ {
		if e.ended(i) {
			continue
		}
		exists, err := x.exists(ctx, itemKey(t.ID, i))
		if err != nil {
			return err
		}
		if !exists {
			between = append(between, i)
			missing++
			continue
		}
		for _, n := range between {
			e.Failed.add(n)
		}
		between, missing = nil, 0
		e.Next = i + 1
		e.open++
		x.open++
	}
	if e.Next == e.Count && e.open == 0 {
		x.endEach(t)
	}
	return nil
}

// exists reports whether this generation has started a child.
func (x *execution) exists(ctx context.Context, key string) (bool, error) {
	_, err := x.run.Execution(ctx, x.run.ChildID(key))
	if belay.CodeOf(err) == belay.CodeNotFound {
		return false, nil
	}
	return err == nil, err
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

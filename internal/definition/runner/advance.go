package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
)

// MaxItems is the largest length of the list of a foreach.
const MaxItems = 10_000

// maxBatch is how many children a turn starts at most before it takes further ends.
const maxBatch = 200

// starting is a child that a turn will start.
type starting struct {
	task *task
	item int // -1 for a task without foreach
	key  string
	sub  belay.Submission
}

// advance starts everything that is ready.
func (x *execution) advance(ctx context.Context) error {
	for {
		if x.saved.Cause != "" {
			return x.compensate(ctx)
		}
		batch, err := x.gather(ctx)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			x.known = x.known || x.saved.Cause == ""
			return nil
		}
		if err := x.start(ctx, batch); err != nil {
			return err
		}
	}
}

// gather returns the children that are ready to start. It ends tasks that need no child, such as those whose condition
// is false, and so may make further tasks ready.
func (x *execution) gather(ctx context.Context) (batch []starting, err error) {
	for len(x.ready)+len(x.windows) > 0 && len(batch) < maxBatch && x.saved.Cause == "" {
		if len(x.ready) == 0 {
			t := x.windows[0]
			x.windows = x.windows[1:]
			if err := x.fillWindow(ctx, t, &batch); err != nil {
				return nil, err
			}
			continue
		}
		t := x.ready[0]
		x.ready = x.ready[1:]
		if t.status == running {
			err = x.wait(ctx, t)
		} else {
			err = x.begins(ctx, t, &batch)
		}
		if err != nil {
			return nil, err
		}
	}
	return batch, nil
}

// begins begins a task whose needs have ended.
func (x *execution) begins(ctx context.Context, t *task, batch *[]starting) error {
	for _, id := range t.Needs {
		if need := x.byID[id]; need.status == blocked ||
			need.status == failed && need.OnFailure.Reaction == definition.Quarantine {
			x.end(t, blocked, "")
			return nil
		}
	}
	run, err := x.condition(ctx, t)
	if err != nil {
		return x.fails(t, err)
	}
	if !run {
		x.end(t, skipped, "")
		return nil
	}
	x.dirty = true
	switch {
	case inline(t):
		t.status = running
		x.observe.Started(t.ID, t.Task, belay.ExecutionID{})
		return x.wait(ctx, t)
	case t.Foreach != nil:
		if err := x.list(ctx, t); err != nil {
			return x.fails(t, err)
		}
		t.status = running
		x.windows = append(x.windows, t)
		return nil
	}
	return x.prepare(ctx, t, -1, batch)
}

// condition evaluates the if of a task.
func (x *execution) condition(ctx context.Context, t *task) (bool, error) {
	if t.If == nil {
		return true, nil
	}
	e, err := x.env(ctx, func(each func(string, bool)) {
		for id, output := range t.If.Tasks {
			each(id, output)
		}
	})
	if err != nil {
		return false, err
	}
	v, err := t.If.Eval(e)
	if err != nil {
		return false, err
	}
	b, ok := v.(bool)
	if !ok {
		return false, &definition.ExpressionError{
			Source: t.If.Source, Err: errors.New("the value of if must be true or false"),
		}
	}
	return b, nil
}

// list evaluates the list of a foreach, and compares it with the list of earlier runs.
func (x *execution) list(ctx context.Context, t *task) error {
	if t.each != nil && t.each.items != nil {
		return nil
	}
	e, err := x.env(ctx, t.Foreach.Tasks)
	if err != nil {
		return err
	}
	v, err := t.Foreach.Eval(e)
	if err != nil {
		return err
	}
	items, ok := v.([]any)
	switch {
	case !ok:
		return fmt.Errorf("%w: the value of foreach must be a list", errOutput)
	case len(items) > MaxItems:
		return fmt.Errorf("%w: the list of foreach has %d items; the limit is %d", errOutput, len(items), MaxItems)
	}
	data, err := json.Marshal(items)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	hash := hex.EncodeToString(sum[:8])
	if t.each == nil {
		t.each = &each{Count: len(items), Hash: hash, From: x.generation, Done: map[int]spans{}}
	}
	if t.each.Count != len(items) || t.each.Hash != hash {
		return fmt.Errorf("%w: the list of foreach is not the list of an earlier run", errOutput)
	}
	if items == nil {
		items = []any{}
	}
	t.each.items = items
	return nil
}

// fillWindow starts items of a foreach until its window is full, and ends the task when all its items have ended.
func (x *execution) fillWindow(ctx context.Context, t *task, batch *[]starting) error {
	if t.status != running {
		return nil
	}
	e := t.each
	for e.Next < e.Count && e.open < t.Parallel && len(*batch) < maxBatch && x.saved.Cause == "" {
		i := e.Next
		e.Next++
		x.dirty = true
		if e.ended(i) {
			continue
		}
		if err := x.list(ctx, t); err != nil {
			return x.fails(t, err)
		}
		if err := x.prepare(ctx, t, i, batch); err != nil {
			return err
		}
	}
	if e.Next < e.Count && e.open < t.Parallel && t.status == running {
		x.windows = append(x.windows, t) // the batch is full
	}
	if t.status == running && e.Next >= e.Count && e.open == 0 {
		x.endEach(t)
	}
	return nil
}

// endEach ends a foreach whose items have all ended.
func (x *execution) endEach(t *task) {
	if n := t.each.Failed.count(); n > 0 {
		x.end(t, failed, fmt.Sprintf("%d of %d items failed: %s", n, t.each.Count, t.message))
		return
	}
	x.end(t, succeeded, "")
}

// prepare adds the child of a task or an item to a batch. If its input cannot be computed, the task or item fails.
func (x *execution) prepare(ctx context.Context, t *task, item int, batch *[]starting) error {
	key := t.ID
	if item >= 0 {
		key = itemKey(t.ID, item)
	}
	sub, err := x.submission(ctx, t, item)
	if err != nil {
		if item >= 0 {
			return x.itemFails(t, item, err)
		}
		return x.fails(t, err)
	}
	if sub.Document != "" && item >= 0 {
		if sub.Document, err = x.pin(ctx, t.each, key, sub.Document); err != nil {
			return err
		}
	}
	sub.ParentKey = key
	*batch = append(*batch, starting{t, item, key, sub})
	x.open++
	if item >= 0 {
		t.each.open++
	} else {
		t.status = running
	}
	return nil
}

// itemKey names an item of a foreach.
func itemKey(task string, item int) string { return task + "[" + strconv.Itoa(item) + "]" }

// start starts a batch of children.
func (x *execution) start(ctx context.Context, batch []starting) error {
	subs := make([]belay.Submission, len(batch))
	for i := range batch {
		subs[i] = batch[i].sub
	}
	errs, err := x.run.Start(ctx, subs)
	if err != nil {
		return err
	}
	for i := range batch {
		b := &batch[i]
		if errs[i] == nil {
			x.observe.Started(b.key, b.task.Task, subs[i].ID)
			continue
		}
		x.open--
		if b.item >= 0 {
			b.task.each.open--
			x.itemEnds(b.task, b.item, false, errs[i].Error(), x.generation)
		} else {
			x.end(b.task, failed, errs[i].Error())
		}
	}
	return nil
}

// fails ends a task whose expressions have failed, or returns the error if another try may succeed.
func (x *execution) fails(t *task, err error) error {
	if err := x.judge(err); !belay.IsPermanent(err) {
		return err
	}
	x.end(t, failed, err.Error())
	return nil
}

func (x *execution) itemFails(t *task, item int, err error) error {
	if err := x.judge(err); !belay.IsPermanent(err) {
		return err
	}
	x.itemEnds(t, item, false, err.Error(), x.generation)
	return nil
}

// end ends a task, and makes the tasks ready that have waited for it.
func (x *execution) end(t *task, s status, message string) {
	if t.status.ended() {
		return
	}
	t.status, t.message, t.generation = s, clip(message, maxMessage), x.generation
	x.dirty = true
	x.observe.Ended(t.ID, t.Task, s.String(), t.message)
	if t.Undoes {
		return
	}
	x.left--
	if s == succeeded && t.undone {
		x.saved.Order = append(x.saved.Order, t.ID)
	}
	if r := t.OnFailure.Reaction; s == failed && (r == definition.Fail || r == definition.Compensate) {
		if x.saved.Cause == "" {
			x.saved.Cause = t.ID
		}
		return
	}
	for _, id := range t.NeededBy {
		y := x.byID[id]
		if y.needs--; y.needs == 0 && y.status == pending && !y.Undoes {
			x.ready = append(x.ready, y)
		}
	}
}

// itemEnds ends an item of a foreach.
func (x *execution) itemEnds(t *task, item int, ok bool, message string, generation int) {
	e := t.each
	if e.ended(item) {
		return
	}
	x.dirty = true
	key := itemKey(t.ID, item)
	if ok {
		done := e.Done[generation]
		done.add(item)
		if e.Done == nil {
			e.Done = map[int]spans{}
		}
		e.Done[generation] = done
		x.observe.Ended(key, t.Task, succeeded.String(), "")
		x.windows = appendOnce(x.windows, t)
		return
	}
	e.Failed.add(item)
	if t.message == "" {
		t.message = clip(fmt.Sprintf("item %d: %s", item, message), maxMessage-50)
	}
	x.observe.Ended(key, t.Task, failed.String(), message)
	if r := t.OnFailure.Reaction; r == definition.Fail || r == definition.Compensate {
		x.end(t, failed, t.message)
		return
	}
	x.windows = appendOnce(x.windows, t)
}

func appendOnce(list []*task, t *task) []*task {
	for _, x := range list {
		if x == t {
			return list
		}
	}
	return append(list, t)
}

// clip shortens a text to the given number of bytes.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return strings.ToValidUTF8(s[:most], "\uFFFD")
}

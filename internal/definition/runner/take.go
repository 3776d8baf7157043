package runner

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
)

// take takes ends of children into the state, in the order in which they arrived. An end that belongs to a task which
// this run has not started again yet is kept in early: an earlier run has started the child, and was lost before it
// saved that.
func (x *execution) take(ends []belay.Signal) {
	for i := range ends {
		if end := &ends[i]; x.takeEnd(end) {
			x.taken = append(x.taken, end.Seq)
		} else {
			x.early = append(x.early, *end)
		}
	}
}

// retake takes the early ends whose tasks have started since. It reports whether there were any.
func (x *execution) retake() bool {
	early := x.early
	x.early = nil
	x.take(early)
	return len(x.early) < len(early)
}

// takeEnd reports whether the state contains the end now.
func (x *execution) takeEnd(end *belay.Signal) bool {
	id, item := splitKey(end.Name)
	t, generation := x.byID[id], x.started(end)
	var how struct {
		State belay.State `json:"state"`
	}
	if t == nil || generation == 0 || json.Unmarshal(end.Payload, &how) != nil {
		return true // no task waits for it
	}
	if item >= 0 {
		return x.takeItem(t, item, generation, end.Child, how.State)
	}
	return x.takeTask(t, generation, end.Child, how.State)
}

// splitKey returns the task and the item that a child is named by; the item is -1 if it is a task.
func splitKey(key string) (id string, item int) {
	id, rest, found := strings.Cut(key, "[")
	if !found {
		return key, -1
	}
	n, err := strconv.Atoi(strings.TrimSuffix(rest, "]"))
	if err != nil || n < 0 {
		return "", -1
	}
	return id, n
}

// started returns the generation that started the child of an end; 0 if none did.
func (x *execution) started(end *belay.Signal) int {
	for g := x.generation; g > 0; g-- {
		if belay.ChildID(x.run.ID().Execution, g, end.Name) == end.Child {
			return g
		}
	}
	return 0
}

func (x *execution) takeTask(t *task, generation int, child belay.ExecutionID, how belay.State) bool {
	switch {
	case t.status.ended():
	case generation != x.generation:
		// The child of an earlier generation has ended before the task starts again; otherwise its end is ignored.
		if generation >= t.floor && t.status == pending && how == belay.Succeeded && !t.Undoes {
			x.dropReady(t)
			x.end(t, succeeded, "")
			t.generation = generation
		}
	case t.status == pending:
		return false
	default:
		x.open--
		if how == belay.Succeeded {
			x.end(t, succeeded, "")
		} else {
			x.failures = append(x.failures, failure{t, -1, child, how})
		}
	}
	return true
}

func (x *execution) takeItem(t *task, item, generation int, child belay.ExecutionID, how belay.State) bool {
	e := t.each
	switch {
	case t.status.ended() && e == nil:
	case generation != x.generation:
		if e != nil && generation >= max(e.From, t.floor) && item < e.Count && !e.ended(item) && !t.status.ended() &&
			how == belay.Succeeded {
			x.itemEnds(t, item, true, "", generation)
		}
	case e == nil || item >= e.Next:
		return t.status.ended() && x.known
	case e.ended(item) || x.failing(t, item):
	default:
		x.open--
		e.open--
		x.dirty = true
		// The state records the item also if the task has failed, so that later runs do not wait for it.
		if how == belay.Succeeded {
			x.itemEnds(t, item, true, "", generation)
		} else {
			x.failures = append(x.failures, failure{t, item, child, how})
		}
	}
	return true
}

// failing reports whether the end of an item was taken and its error was not read yet.
func (x *execution) failing(t *task, item int) bool {
	for _, f := range x.failures {
		if f.task == t && f.item == item {
			return true
		}
	}
	return false
}

func (x *execution) dropReady(t *task) {
	for i, y := range x.ready {
		if y == t {
			x.ready = append(x.ready[:i], x.ready[i+1:]...)
			return
		}
	}
}

// failure is a child that failed or was cancelled, and whose error was not read yet.
type failure struct {
	task  *task
	item  int
	child belay.ExecutionID
	how   belay.State
}

// learn reads the errors of the children that have failed, and ends their tasks and items.
func (x *execution) learn(ctx context.Context) error {
	for len(x.failures) > 0 {
		f := x.failures[0]
		message := "it was " + f.how.String()
		c, err := x.run.Execution(ctx, f.child)
		switch {
		case err == nil && c.Error != nil:
			message = c.Error.Message
		case err != nil && belay.CodeOf(err) != belay.CodeNotFound:
			return err
		}
		x.failures = x.failures[1:]
		if f.item >= 0 {
			x.itemEnds(f.task, f.item, false, message, x.generation)
		} else {
			x.end(f.task, failed, message)
		}
	}
	return nil
}

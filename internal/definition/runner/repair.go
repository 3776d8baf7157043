package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
)

// MaxRepairs is how many decisions about tasks the input of an execution may have.
const MaxRepairs = 1000

// Repair is a decision of a person about one task: the task runs again, or does not run and counts as succeeded.
type Repair struct {
	// Generation is the first generation for which the decision holds.
	Generation int `json:"generation"`
	// From is a task that runs again, with all tasks that depend on it.
	From string `json:"from,omitempty"`
	// Skip is a task, or an item of a foreach such as build[7], that counts as succeeded with Output.
	Skip   string          `json:"skip,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
	// By is the person, and Note the reason.
	By   string `json:"by,omitempty"`
	Note string `json:"note,omitempty"`
	// Op is the operation that has stored the decision.
	Op belay.OpID `json:"op,omitzero"`
}

// value returns the output that the person has given.
func (r *Repair) value() (any, error) {
	if len(r.Output) == 0 {
		return nil, nil
	}
	v, err := definition.Decode(r.Output)
	if err != nil {
		return nil, fmt.Errorf("%w: the output of %s: %w", errOutput, r.Skip, err)
	}
	return v, nil
}

// sameRepairs reports whether two lists of decisions are equal.
func sameRepairs(a, b []Repair) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// setFloors finds, for each task, the newest repair that makes it run again: children of earlier generations do not
// count, also if they succeed later.
func (x *progress) setFloors() {
	for i := range x.repairs {
		r := &x.repairs[i]
		if t := x.byID[r.From]; t != nil && r.Generation <= x.generation {
			x.raiseFloor(t, r.Generation, map[string]bool{})
		}
	}
}

func (x *progress) raiseFloor(t *task, generation int, seen map[string]bool) {
	if seen[t.ID] {
		return
	}
	seen[t.ID] = true
	t.floor = max(t.floor, generation)
	for _, id := range t.NeededBy {
		x.raiseFloor(x.byID[id], generation, seen)
	}
}

// repair applies the repairs that the saved state of generation saved does not contain. Without a saved state, only
// those of this generation apply: a requeue with another input has discarded the state, and so the earlier repairs.
func (x *progress) repair(saved int, stateless bool) {
	if stateless {
		saved = x.generation - 1
	}
	again := map[string]bool{}
	for i := range x.repairs {
		if r := &x.repairs[i]; r.Generation > saved && r.Generation <= x.generation {
			x.apply(r, again)
		}
	}
}

// apply applies one repair.
func (x *progress) apply(r *Repair, again map[string]bool) {
	if t := x.byID[r.From]; t != nil {
		clear(again) // a skip of the same request may stand between two of them
		x.reset(t, again)
	}
	id, item := splitKey(r.Skip)
	t := x.byID[id]
	switch {
	case t == nil:
	case item < 0:
		t.status, t.each, t.message, t.generation = succeeded, nil, "", r.Generation
		x.saved.Order = slices.DeleteFunc(x.saved.Order, func(id string) bool { return id == t.ID })
	case t.each != nil && item < t.each.Count && t.each.generation(item) == 0 && r.Skip == itemKey(id, item):
		if t.each.Done == nil {
			t.each.Done = map[int]spans{}
		}
		done := t.each.Done[r.Generation]
		done.add(item)
		t.each.Done[r.Generation] = done
	}
}

// byHand returns the repair that skipped a task or an item in a generation; nil if there is none.
func (x *progress) byHand(key string, generation int) *Repair {
	for i := range x.repairs {
		if r := &x.repairs[i]; r.Skip == key && r.Generation == generation {
			return r
		}
	}
	return nil
}

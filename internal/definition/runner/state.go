package runner

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
)

// status is where a task stands.
type status byte

const (
	pending   status = '-'
	running   status = 'r'
	succeeded status = 's'
	failed    status = 'f'
	skipped   status = 'k' // its condition was false
	blocked   status = 'b' // a task that it needs was quarantined
)

func (s status) ended() bool { return s != pending && s != running }

// String returns the state of a task as users know it.
func (s status) String() string {
	return map[status]string{
		pending: "pending", running: "running", succeeded: "succeeded", failed: "failed", skipped: "skipped",
		blocked: "blocked",
	}[s]
}

// saved is the state as the checkpoint has it.
type saved struct {
	Generation int `json:"generation"`
	// Tasks has the status of each task, one letter each, in the order of the document.
	Tasks string `json:"tasks"`
	// Old are the generations of tasks that succeeded in an earlier generation.
	Old    map[string]int    `json:"old,omitempty"`
	Each   map[string]*each  `json:"each,omitempty"`
	Errors map[string]string `json:"errors,omitempty"`
	// Order are the tasks whose work can be undone, in the order in which they succeeded.
	Order []string `json:"order,omitempty"`
	// Cause is the failed task that ends the execution; empty if there is none.
	Cause string `json:"cause,omitempty"`
	// Undo are the tasks that compensate, in the order in which they run. Undone is how many have ended.
	Undo   []string `json:"undo,omitempty"`
	Undone int      `json:"undone,omitempty"`
}

// each is the progress of a foreach.
type each struct {
	// Count and Hash are the length and the hash of the list, which never change.
	Count int    `json:"count"`
	Hash  string `json:"hash"`
	// From is the generation that computed the list.
	From int `json:"from,omitempty"`
	// Next is the first item that was not started in this generation, apart from those that are done.
	Next int `json:"next"`
	// Done are the items that succeeded, by generation, and Failed those that failed in this generation.
	Done   map[int]spans `json:"done,omitempty"`
	Failed spans         `json:"failed,omitempty"`

	// Pins are the versions of the stored documents that the items start without naming a version.
	Pins map[string]int `json:"pins,omitempty"`

	items []any // nil until they are needed
	open  int   // how many items are under way
}

// generation returns the generation in which an item succeeded; 0 if it did not.
func (e *each) generation(i int) int {
	for g, s := range e.Done {
		if s.has(i) {
			return g
		}
	}
	return 0
}

func (e *each) ended(i int) bool { return e.generation(i) > 0 || e.Failed.has(i) }

// progress is where a document stands in one generation of its execution.
type progress struct {
	doc        *definition.Document
	generation int
	tasks      []*task
	byID       map[string]*task
	saved      saved
	repairs    []Repair
	// known says that the state has all children that earlier runs have started.
	known bool
}

func newProgress(d *definition.Document, generation int, repairs []Repair) *progress {
	x := &progress{doc: d, generation: generation, byID: map[string]*task{}, repairs: repairs}
	for _, t := range d.Tasks {
		y := &task{Task: t, status: pending}
		for _, id := range t.NeededBy {
			y.undone = y.undone || d.Task(id).Undoes
		}
		x.tasks = append(x.tasks, y)
		x.byID[t.ID] = y
	}
	x.setFloors()
	return x
}

// maxMessage is the largest size of the message of a failed task in the state, in bytes.
const maxMessage = 300

// task is a task with its progress.
type task struct {
	*definition.Task
	status status
	// generation is the one in which the task succeeded.
	generation int
	// floor is the first generation whose children count: a repair makes the task run again from this generation on.
	floor   int
	each    *each
	message string // of a failed task
	needs   int    // how many tasks that it needs have not ended
	undone  bool   // its work can be undone by a task that compensates
	// received is the payload of a wait that has landed, or whose checkpoint was read, in this run.
	received json.RawMessage
	landed   bool
}

// restore reads the state of earlier runs. In a new generation, tasks that did not succeed begin again.
func (x *progress) restore(data json.RawMessage) error {
	s := saved{Generation: x.generation}
	if data != nil {
		if err := json.Unmarshal(data, &s); err != nil {
			return belay.Permanent(fmt.Errorf("read the state: %w", err))
		}
		if len(s.Tasks) != len(x.tasks) {
			return belay.Permanent(fmt.Errorf("the state has %d tasks and the document %d", len(s.Tasks), len(x.tasks)))
		}
	}
	x.saved = s
	if x.saved.Errors == nil {
		x.saved.Errors = map[string]string{}
	}
	for i, t := range x.tasks {
		if s.Tasks == "" {
			break
		}
		t.status, t.generation, t.each, t.message = status(s.Tasks[i]), 1, s.Each[t.ID], s.Errors[t.ID]
		if g := s.Old[t.ID]; g > 0 {
			t.generation = g
		}
		if s.Generation != x.generation && t.status != succeeded && t.status != skipped {
			t.status, t.message = pending, ""
			if t.each != nil {
				t.each.Next, t.each.Failed = 0, nil
			}
		}
		if e := t.each; e != nil && s.Generation == x.generation {
			// A task that has failed may have items under way too: compensation waits for their ends.
			for i := range min(e.Next, e.Count) {
				if !e.ended(i) {
					e.open++
				}
			}
		}
	}
	x.known = s.Generation == x.generation && s.Cause != ""
	if s.Generation != x.generation || data == nil {
		if data != nil {
			x.redo(s.Tasks)
		}
		x.repair(s.Generation, data == nil)
		x.renew()
		x.saved.Generation, x.saved.Cause, x.saved.Undo, x.saved.Undone = x.generation, "", nil, 0
		x.saved.Errors = map[string]string{}
	}
	return nil
}

// redo makes the tasks begin again in a new generation whose work was undone in an earlier one, and all tasks that
// depend on them. letters are the statuses at the end of the earlier generation: work counts as undone also if the task
// that undoes it did not end, or failed, because it may have undone a part.
func (x *progress) redo(letters string) {
	again := map[string]bool{}
	for i, t := range x.tasks {
		if !t.Undoes {
			continue
		}
		switch before := status(letters[i]); before {
		case running, succeeded, failed:
			x.reset(x.byID[t.Needs[0]], again)
		case pending, skipped, blocked:
		}
		t.status, t.message = pending, ""
	}
}

// reset makes a task and all tasks that depend on it begin again. again are the tasks for which that is done already.
func (x *progress) reset(t *task, again map[string]bool) {
	if again[t.ID] {
		return
	}
	again[t.ID] = true
	t.status, t.each, t.message = pending, nil, ""
	x.saved.Order = slices.DeleteFunc(x.saved.Order, func(id string) bool { return id == t.ID })
	for _, id := range t.NeededBy {
		x.reset(x.byID[id], again)
	}
}

// renew makes a foreach that has not succeeded begin anew if a task that it needs runs again: its list may differ then.
func (x *progress) renew() {
	for _, t := range x.tasks {
		if t.each == nil || t.status != pending {
			continue
		}
		for _, id := range t.Needs {
			if x.byID[id].status == pending {
				t.each = nil
				break
			}
		}
		if t.each != nil {
			t.Foreach.Tasks(func(id string, _ bool) {
				if x.byID[id].status == pending {
					t.each = nil
				}
			})
		}
	}
}

// encode returns the state for the checkpoint.
func (x *progress) encode() (json.RawMessage, error) {
	s := &x.saved
	var letters strings.Builder
	s.Old, s.Each = map[string]int{}, map[string]*each{}
	for _, t := range x.tasks {
		letters.WriteByte(byte(t.status))
		if t.generation > 1 {
			s.Old[t.ID] = t.generation
		}
		if t.each != nil {
			s.Each[t.ID] = t.each
		}
		if t.message != "" {
			s.Errors[t.ID] = t.message
		}
	}
	s.Tasks = letters.String()
	data, err := json.Marshal(s)
	if err != nil {
		return nil, belay.Permanent(err)
	}
	return data, nil
}

// states returns the state of each task for the default output.
func (x *progress) states() map[string]any {
	all := map[string]any{}
	for _, t := range x.tasks {
		if !t.Undoes {
			all[t.ID] = t.status.String()
		}
	}
	return map[string]any{"tasks": maps.Clone(all)}
}

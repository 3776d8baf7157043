package tasks

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/definition/runner"
)

// The bounds of a page.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
	// MaxOutput is the size up to which a page has the output of a task, in bytes, and maxOutputs that of all outputs
	// of a page together.
	MaxOutput  = 4096
	maxOutputs = 512 << 10
	// children is how many children one query reads.
	children = 200
)

// List reads a page of the tasks of an execution, or of the items of a task.
func (v *Viewer) List(ctx context.Context, r Reader, q belay.TaskQuery) (belay.TaskPage, error) {
	from, err := checkQuery(&q)
	if err != nil {
		return belay.TaskPage{}, err
	}
	s, err := v.read(ctx, r, q.Execution)
	if err != nil {
		return belay.TaskPage{}, err
	}
	page := belay.TaskPage{Document: s.doc.Name, Total: len(s.doc.Tasks), Tasks: []belay.Task{}}
	entries, next := s.tasks(&q, from)
	if q.Task != "" {
		t := s.doc.Task(q.Task)
		if t == nil {
			return belay.TaskPage{}, noTask(s.doc, q.Task)
		}
		page.Total = 1
		entries, next = []entry{s.entry(t)}, 0
		if t.Foreach != nil {
			page.Total, _, _, _, _ = s.progress.Items(t.ID)
			entries, next = s.items(t, &q, from)
		}
	}
	if err := s.fill(ctx, r, entries, q.Outputs); err != nil {
		return belay.TaskPage{}, err
	}
	if err := s.messages(ctx, r, entries); err != nil {
		return belay.TaskPage{}, err
	}
	for i := range entries {
		if q.State == "" || entries[i].State == q.State {
			page.Tasks = append(page.Tasks, entries[i].Task)
		}
	}
	if next > 0 {
		page.Next = strconv.Itoa(next)
	}
	return page, nil
}

// checkQuery checks a query, fills its defaults in, and returns the number of the first task or item.
func checkQuery(q *belay.TaskQuery) (from int, err error) {
	bad := func(format string, args ...any) (int, error) {
		return 0, &belay.Error{Code: belay.CodeInvalid, Op: "tasks", Message: fmt.Sprintf(format, args...)}
	}
	if q.State != "" && !slices.Contains(belay.TaskStates, q.State) {
		names := make([]string, len(belay.TaskStates))
		for i, s := range belay.TaskStates {
			names[i] = string(s)
		}
		return bad("%q is no state of a task; it can be %s", clip(string(q.State), 40), strings.Join(names, ", "))
	}
	if q.Cursor != "" {
		if from, err = strconv.Atoi(q.Cursor); err != nil || from < 0 {
			return bad("%q is no cursor of a page of tasks", clip(q.Cursor, 40))
		}
	}
	if q.Limit <= 0 {
		q.Limit = DefaultLimit
	}
	q.Limit = min(q.Limit, MaxLimit)
	return from, nil
}

func noTask(d *definition.Document, id string) error {
	var names []string
	for _, t := range d.Tasks {
		names = append(names, t.ID)
	}
	more := ""
	if len(names) > 20 {
		names, more = names[:20], " and others"
	}
	return &belay.Error{
		Code: belay.CodeInvalid, Op: "tasks", Message: fmt.Sprintf("the document %s has no task %q; it has %s%s",
			d.Name,
			clip(id, 80), strings.Join(names, ", "), more),
	}
}

// entry is a task or an item with the key of its child; an empty key if it has none.
type entry struct {
	belay.Task
	key string
}

// tasks returns the tasks from a number on that may be in the state of the query, and the number of the first task
// that did not fit; 0 if all did.
func (s *snapshot) tasks(q *belay.TaskQuery, from int) (list []entry, next int) {
	for i := from; i < len(s.doc.Tasks); i++ {
		e := s.entry(s.doc.Tasks[i])
		if !possible(&e, q.State) {
			continue
		}
		if len(list) == q.Limit {
			return list, i
		}
		list = append(list, e)
	}
	return list, 0
}

// items is like tasks for the items of a foreach.
func (s *snapshot) items(t *definition.Task, q *belay.TaskQuery, from int) (list []entry, next int) {
	total, _, _, _, known := s.progress.Items(t.ID)
	for i := from; known && i < total; i++ {
		status := s.progress.Item(t.ID, i)
		e := entry{belay.Task{ID: status.Key, Uses: t.Uses}, status.Key}
		s.put(&e, &status)
		if !possible(&e, q.State) {
			continue
		}
		if len(list) == q.Limit {
			return list, i
		}
		list = append(list, e)
	}
	return list, 0
}

// possible reports whether a task may be in a state once its child is known. Only the state of a task that has not
// ended depends on its child.
func possible(e *entry, state belay.TaskState) bool {
	return state == "" || e.State == state || e.State == belay.TaskPending && e.key != "" ||
		e.State == belay.TaskRunning
}

// entry returns a task without the facts about its child.
func (s *snapshot) entry(t *definition.Task) entry {
	status := s.progress.Task(t.ID)
	e := entry{belay.Task{
		ID: t.ID, Uses: t.Uses, Description: t.Description, Needs: t.Needs, Compensates: t.Undoes,
	}, t.ID}
	s.put(&e, &status)
	inline := t.Kind != nil && t.Kind.Inline
	if inline || t.Foreach != nil {
		e.key = ""
		if e.State == belay.TaskRunning && s.State.Terminal() {
			e.State = belay.TaskCancelled
		}
	}
	if inline && e.State == belay.TaskRunning {
		e.State = belay.TaskWaiting
		switch t.Uses {
		case "approval", "signal":
			e.Question = &belay.TaskQuestion{
				Signal: runner.Signal(t), Approval: t.Uses == "approval", Message: clip(t.With.Text("message"), 1000),
			}
		default:
			e.WaitsFor = "waits until its time is over"
		}
	}
	if t.Foreach != nil {
		if total, started, succeeded, failed, known := s.progress.Items(t.ID); known {
			e.Items = &belay.TaskItems{
				Total: total, Pending: total - started, Open: started - succeeded - failed, Succeeded: succeeded,
				Failed: failed,
			}
			if s.State.Terminal() { // items that were under way have ended with the execution
				e.Items.Pending, e.Items.Open = total-succeeded-failed, 0
			}
		}
	}
	return e
}

// put puts what the runner knows into an entry.
func (s *snapshot) put(e *entry, status *runner.Status) {
	e.State, e.Error = belay.TaskState(status.State), status.Message
	switch e.State {
	case belay.TaskSkipped, belay.TaskBlocked:
		e.key = ""
		return
	case belay.TaskPending:
		return
	case belay.TaskRunning, belay.TaskWaiting, belay.TaskSucceeded, belay.TaskFailed, belay.TaskCancelled:
	}
	e.Generation = status.Generation
	if by := status.ByHand; by != nil {
		e.key, e.ByHand, e.Output = "", &belay.TaskByHand{By: by.By, Note: by.Note}, nil
		if len(by.Output) <= MaxOutput {
			e.Output = by.Output
		}
	}
}

// fill adds the facts about the children, with few queries for all of them together.
func (s *snapshot) fill(ctx context.Context, r Reader, list []entry, outputs bool) error {
	of := make(map[belay.ExecutionID]*entry)
	var ids []belay.ExecutionID
	for i := range list {
		e := &list[i]
		if !outputs {
			e.Output = nil
		}
		if e.key == "" {
			continue
		}
		generation := e.Generation
		if generation == 0 {
			generation = s.Generation
		}
		id := belay.ChildID(s.ID, generation, e.key)
		of[id], ids = e, append(ids, id)
	}
	left := maxOutputs
	for some := range slices.Chunk(ids, children) {
		f := belay.Filter{IDs: some, Children: true, Limit: len(some)}
		if outputs && left > 0 {
			f.Outputs = MaxOutput
		}
		page, err := r.Executions(ctx, f)
		if err != nil {
			return err
		}
		for i := range page.Executions {
			c := &page.Executions[i]
			if left -= len(c.Output); left < 0 {
				c.Output = nil
			}
			if e := of[c.ID]; e != nil && c.Parent == s.ID {
				s.add(e, c)
			}
		}
	}
	return nil
}

// add adds the facts about a child.
func (s *snapshot) add(e *entry, c *belay.Execution) {
	e.Execution, e.Attempt, e.StartedAt, e.EndedAt = c.ID, c.Attempt, c.StartedAt, c.FinishedAt
	if e.Generation == 0 {
		e.Generation = s.Generation
	}
	if e.State == belay.TaskSucceeded {
		e.Output = c.Output
		return
	}
	if e.Error == "" && c.Error != nil {
		e.Error = clip(c.Error.Message, 300)
	}
	if e.State == belay.TaskFailed {
		return
	}
	switch c.State {
	case belay.Running:
		e.State = belay.TaskRunning
	case belay.Succeeded:
		e.State, e.Output = belay.TaskSucceeded, c.Output
	case belay.Failed:
		e.State = belay.TaskFailed
	case belay.Cancelled:
		e.State = belay.TaskCancelled
	default:
		e.State = belay.TaskWaiting
		if c.Reason != nil {
			e.WaitsFor = clip(c.Reason.Text, 200)
		}
	}
}

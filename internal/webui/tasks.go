package webui

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// mostTasks is how many tasks a page lists. A document has no more.
const mostTasks = 1000

// notRun is the state in which a page shows a pending task of an execution that has ended.
const notRun belay.TaskState = "not run"

// taskList has the tasks of an execution of a document.
type taskList struct {
	Document string
	Graph    *graph // nil if the document is too large for a drawing
	Note     string
	Rows     []taskRow

	children map[string]*belay.Task // by the ids of the executions that do the work
}

// work returns the tasks by the ids of the executions that do their work.
func (l *taskList) work() map[string]*belay.Task {
	if l == nil {
		return nil
	}
	return l.children
}

// taskRow is one task in the list.
type taskRow struct {
	ID, Uses, State string
	Execution       string // the id of the execution that does the work; empty if there is none
	Attempt         int
	Took            string
	About           []string
	Output          string // the beginning of its output; empty if it is large or there is none
	Command         string // the command that answers the question of the task; empty if it has none
	Answer          *offer // the form that answers it; nil if it has none, or if the visitor may not send signals
}

// tasks reads the tasks of an execution; nil if it does not run a document.
func (p *pages) tasks(ctx context.Context, e *belay.Execution, now time.Time) (*taskList, error) {
	const document = "document"
	if p.options.Tasks == nil || e.Workflow != document {
		return nil, nil
	}
	page, err := p.options.Tasks(ctx, belay.TaskQuery{Execution: e.ID, Limit: mostTasks, Outputs: true})
	switch {
	case belay.CodeOf(err) == belay.CodeInvalid: // the error of the execution says why its document cannot be read
		return nil, nil // a page without tasks is better than none
	case err != nil:
		return nil, err
	}
	list := &taskList{Document: excerpt(page.Document, maxLine), children: make(map[string]*belay.Task)}
	page.Tasks = slices.Clone(page.Tasks)
	for i := range page.Tasks {
		t := &page.Tasks[i]
		if t.State == belay.TaskPending && e.State.Terminal() {
			t.State = notRun
		}
		if !t.Execution.IsZero() {
			list.children[t.Execution.String()] = t
		}
	}
	list.Graph = graphOf(page.Tasks)
	if list.Graph == nil {
		list.Note = fmt.Sprintf("The graph of %d tasks is too large for this page.", len(page.Tasks))
	}
	for i := range page.Tasks {
		row := taskRowOf(&page.Tasks[i], e, now)
		if q := page.Tasks[i].Question; q != nil && unended(e) && visitorOf(ctx).allows(belay.ScopeSubmit) {
			row.Answer = &offer{Address: signalPath(e.ID, q.Signal, q.Approval), Label: "Answer"}
		}
		list.Rows = append(list.Rows, row)
	}
	return list, nil
}

func taskRowOf(t *belay.Task, e *belay.Execution, now time.Time) taskRow {
	r := taskRow{
		ID: excerpt(t.ID, maxLine), Uses: excerpt(t.Uses, 60), State: excerpt(string(t.State), 20), Attempt: t.Attempt,
		About: aboutTask(t),
	}
	if !t.Execution.IsZero() {
		r.Execution = t.Execution.String()
	}
	if t.State == belay.TaskSucceeded && len(t.Output) > 0 {
		r.Output = line(unescape(string(t.Output)))
	}
	switch {
	case t.StartedAt.IsZero():
	case t.EndedAt.IsZero():
		r.Took = short(now.Sub(t.StartedAt))
	default:
		r.Took = short(t.EndedAt.Sub(t.StartedAt))
	}
	if q := t.Question; q != nil {
		r.Command = fmt.Sprintf("belay signal %s %s", e.ID, excerpt(q.Signal, maxLine))
		if q.Approval {
			r.Command += ` --payload '{"approved": true}'`
		}
	}
	return r
}

// aboutTask returns the facts about a task that the list shows, one line each.
func aboutTask(t *belay.Task) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if n := t.Items; n != nil {
		text := fmt.Sprintf("%d of %d items done", n.Succeeded, n.Total)
		if n.Failed > 0 {
			text += fmt.Sprintf(", %d failed", n.Failed)
		}
		if n.Open > 0 {
			text += fmt.Sprintf(", %d under way", n.Open)
		}
		add("%s", text)
	}
	if h := t.ByHand; h != nil {
		text := "skipped by hand"
		if h.By != "" {
			text += " by " + excerpt(h.By, 60)
		}
		if h.Note != "" {
			text += ": " + h.Note
		}
		add("%s", line(text))
	}
	if t.Question != nil && t.Question.Message != "" {
		add("%s", line(t.Question.Message))
	}
	switch {
	case t.State == belay.TaskFailed || t.State == belay.TaskCancelled:
		if t.Error != "" {
			add("%s", line(t.Error))
		}
	case t.WaitsFor != "":
		add("%s", line(t.WaitsFor))
	case (t.State == belay.TaskPending || t.State == notRun) && t.Compensates:
		add("undoes %s after a failure", t.Needs[0])
	case (t.State == belay.TaskPending || t.State == notRun) && len(t.Needs) > 0:
		add("after %s", line(strings.Join(t.Needs, ", ")))
	}
	return all
}

package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/definition/runner"
)

// Reader has the calls of a Backend that a view needs.
type Reader interface {
	Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error)
	Executions(ctx context.Context, f belay.Filter) (belay.Page, error)
	Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error)
}

// Viewer shows tasks, and repairs executions. It keeps the documents that it has parsed last. The zero value is ready
// for use.
type Viewer struct{ documents runner.Documents }

// Service shows and repairs the executions of one Backend.
type Service struct {
	Viewer  *Viewer
	Backend Backend
}

// Tasks reads a page of the tasks of an execution, or of the items of a task.
func (s *Service) Tasks(ctx context.Context, q belay.TaskQuery) (belay.TaskPage, error) {
	return s.Viewer.List(ctx, s.Backend, q)
}

// Repair repairs an execution.
func (s *Service) Repair(ctx context.Context, r belay.Repair) (belay.Execution, error) {
	return s.Viewer.Repair(ctx, s.Backend, r)
}

// IsDocument reports whether an execution runs a document.
func IsDocument(e *belay.Execution) bool { return e.Workflow == runner.Workflow }

// snapshot is an execution of a document with its progress.
type snapshot struct {
	belay.Execution
	input    runner.Input
	doc      *definition.Document
	state    json.RawMessage
	progress *runner.Progress
}

// tries is how often the execution and its state are read if the state is replaced between the two reads.
const tries = 5

// read reads an execution with its progress.
func (v *Viewer) read(ctx context.Context, r Reader, id belay.ExecutionID) (*snapshot, error) {
	for range tries {
		s := new(snapshot)
		var err error
		if s.Execution, err = r.Execution(ctx, id); err != nil {
			return nil, err
		}
		if !IsDocument(&s.Execution) {
			return nil, &belay.Error{
				Code: belay.CodeInvalid, Op: "tasks",
				Message: fmt.Sprintf("%s has no tasks, because it does not run a "+
					"document but the workflow %q; its steps are in its history", id, clip(s.Workflow, 60)),
			}
		}
		if err := json.Unmarshal(s.Input, &s.input); err != nil {
			return nil, unreadable(id, err)
		}
		if s.doc, err = v.documents.Parse(&s.input); err != nil {
			return nil, unreadable(id, err)
		}
		var found bool
		if s.state, found, err = stateOf(ctx, r, &s.Execution); err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		if s.progress, err = runner.Open(s.doc, s.Generation, s.input.Repair, s.state); err != nil {
			return nil, unreadable(id, err)
		}
		return s, nil
	}
	return nil, &belay.Error{
		Code: belay.CodeUnavailable, Op: "tasks", Message: "the state of " + id.String() +
			" changes too fast; try again",
	}
}

// unreadable is the error for an execution whose input or state is not that of a document. Such an execution fails.
func unreadable(id belay.ExecutionID, err error) error {
	why, _, _ := strings.Cut(err.Error(), "\n")
	return &belay.Error{
		Code: belay.CodeInvalid, Op: "tasks", Message: fmt.Sprintf("%s has no readable document: %s", id, clip(why,
			300)),
	}
}

// stateOf reads the state that the runner has saved. found is false if a newer state has replaced it meanwhile.
func stateOf(ctx context.Context, r Reader, e *belay.Execution) (state json.RawMessage, found bool, err error) {
	if e.StateSeq == 0 {
		return nil, true, nil
	}
	events, err := r.Events(ctx, belay.EventQuery{Execution: e.ID, After: e.StateSeq - 1, Limit: 1, Data: true})
	if err != nil || len(events) == 0 || events[0].Seq != e.StateSeq || events[0].Pruned {
		return nil, false, err
	}
	if len(events[0].Data) == 0 { // the state was discarded
		return nil, true, nil
	}
	return events[0].Data, true, nil
}

// clip shortens a text to the given number of characters.
func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

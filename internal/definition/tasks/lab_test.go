package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/belaytest"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/definition/runner"
	"github.com/belaydev/belay/internal/definition/tasks"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// lab runs documents on a Backend in memory. Its workflow note returns its input and writes it to a log; it fails with
// the inputs in broken.
type lab struct {
	*testing.T
	kit *belaytest.Kit
	tasks.Service

	mu     sync.Mutex
	log    []string
	broken map[string]bool
}

func newLab(t *testing.T) *lab {
	l := &lab{T: t, broken: map[string]bool{}}
	l.kit = belaytest.Open(func(w *worker.Worker) {
		worker.Register(w, runner.Workflow, (&runner.Runner{}).Run)
		worker.Register(w, "note", l.note)
		worker.Register(w, "nap", func(ctx context.Context, v any) (any, error) {
			if err := workflow.Sleep(ctx, "nap", time.Hour); err != nil {
				return nil, err
			}
			return l.note(ctx, v)
		})
	})
	l.Service = tasks.Service{Viewer: new(tasks.Viewer), Backend: l.kit.Backend}
	return l
}

func (l *lab) note(_ context.Context, v any) (any, error) {
	s := fmt.Sprint(v)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, s)
	if l.broken[s] {
		return nil, belay.Permanent(errors.New(s + " is broken"))
	}
	return v, nil
}

func (l *lab) breaks(inputs ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.broken)
	for _, s := range inputs {
		l.broken[s] = true
	}
}

// noted returns the inputs of note since the last call.
func (l *lab) noted() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.Join(l.log, " ")
	l.log = nil
	return s
}

func (l *lab) close() {
	if err := l.kit.Close(); err != nil {
		l.Error(err)
	}
}

func (l *lab) start(document string, input ...string) belay.ExecutionID {
	l.Helper()
	in := runner.Input{Document: document, Hash: definition.Hash([]byte(document)), File: "doc.yaml"}
	if len(input) > 0 {
		in.Input = json.RawMessage(input[0])
	}
	h, err := workflow.Start[any](l.Context(), l.kit.Backend, runner.Workflow, in)
	if err != nil {
		l.Fatal(err)
	}
	return h.ID()
}

// ends waits for the end of an execution, and checks its state and that its output or error contains a text.
func (l *lab) ends(id belay.ExecutionID, state belay.State, text string) {
	l.Helper()
	var e belay.Execution
	for range 48 {
		var err error
		if e, err = l.kit.Backend.Await(l.Context(), id, time.Hour); err != nil {
			l.Fatal(err)
		}
		if e.State.Terminal() {
			break
		}
	}
	e, err := l.kit.Backend.Execution(l.Context(), id)
	if err != nil {
		l.Fatal(err)
	}
	got := string(e.Output)
	if e.Error != nil {
		got += e.Error.Message
	}
	if e.State != state || !strings.Contains(got, text) {
		l.Errorf("it is %s with %s; want %s with %s", e.State, got, state, text)
	}
}

// repair repairs an execution.
func (l *lab) repair(r belay.Repair) {
	l.Helper()
	if _, err := l.Repair(l.Context(), r); err != nil {
		l.Fatal(err)
	}
}

// refused checks that a repair is refused with a code and a text.
func (l *lab) refused(r belay.Repair, code belay.Code, text string) {
	l.Helper()
	_, err := l.Repair(l.Context(), r)
	if belay.CodeOf(err) != code || err == nil || !strings.Contains(err.Error(), text) {
		l.Errorf("%+v: %v; want %s with %q", r, err, code, text)
	}
}

// page reads tasks.
func (l *lab) page(q belay.TaskQuery) belay.TaskPage {
	l.Helper()
	page, err := l.Tasks(l.Context(), q)
	if err != nil {
		l.Fatal(err)
	}
	return page
}

// states returns the states of all tasks, as in "a succeeded, b failed".
func (l *lab) states(id belay.ExecutionID) string {
	l.Helper()
	var all []string
	for _, x := range l.page(belay.TaskQuery{Execution: id}).Tasks {
		all = append(all, x.ID+" "+string(x.State))
	}
	return strings.Join(all, ", ")
}

func (l *lab) act(id belay.ExecutionID, a belay.Action) {
	l.Helper()
	if _, err := l.kit.Backend.Control(l.Context(), belay.Control{Execution: id, Action: a}); err != nil {
		l.Fatal(err)
	}
}

func skip(task, output string) belay.TaskSkip {
	return belay.TaskSkip{Task: task, Output: json.RawMessage(output)}
}

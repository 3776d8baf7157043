package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/workflow"
)

// inline reports whether a task is a wait of the execution itself.
func inline(t *task) bool { return t.Kind != nil && t.Kind.Inline }

// Signal returns the name of the signal for which an approval or a signal task waits.
func Signal(t *definition.Task) string {
	key := "name"
	if t.Uses == "approval" {
		key = "signal"
	}
	if name := t.With.Text(key); name != "" {
		return name
	}
	return t.ID
}

// landing is the end of a wait.
type landing struct {
	task    *task
	payload json.RawMessage
	err     error
}

// waitKey makes the waits of a generation different from those of the generation before: after a retry, a wait that was
// not over begins again.
func waitKey(generation int) []workflow.KeyOption {
	if generation <= 1 {
		return nil
	}
	return []workflow.KeyOption{workflow.Key(strconv.Itoa(generation))}
}

// message is the step that saves the question of an approval.
const message = "message"

// MessageStep returns the name, in the history, of the step that saves the question of an approval.
func MessageStep(id string, generation int) string {
	if generation > 1 {
		id += "[" + strconv.Itoa(generation) + "]"
	}
	return id + "/" + message
}

// wait begins a wait, or goes on with a wait of an earlier run, in a branch of its own.
func (x *execution) wait(ctx context.Context, t *task) error {
	with, err := x.with(ctx, t, -1)
	if err != nil {
		return x.fails(t, err)
	}
	m, _ := with.(map[string]any)
	timeout := workflow.WaitOption(workflow.Key(""))
	if t.Timeout > 0 {
		timeout = workflow.Timeout(t.Timeout.D())
	}
	fn := func(ctx context.Context) (json.RawMessage, error) {
		if text, ok := m["message"].(string); ok && t.Uses == "approval" {
			same := func(context.Context) (string, error) { return text, nil }
			if _, err := workflow.Step(ctx, message, same); err != nil {
				return nil, err
			}
		}
		return workflow.WaitSignal[json.RawMessage](ctx, Signal(t.Task), timeout)
	}
	if t.Uses == "sleep" {
		text, _ := m["for"].(string)
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return x.fails(t, fmt.Errorf("%w: for must be a duration such as 90s, not %q", errOutput, clip(text, 50)))
		}
		fn = func(ctx context.Context) (json.RawMessage, error) { return nil, workflow.Sleep(ctx, "for", d) }
	}
	workflow.Go(ctx, t.ID, func(ctx context.Context) (any, error) {
		data, err := fn(ctx)
		x.mu.Lock()
		x.landed = append(x.landed, landing{t, data, err})
		x.mu.Unlock()
		x.bell.Ring()
		return nil, err
	}, waitKey(x.generation)...)
	return nil
}

// land ends the tasks whose waits are over.
func (x *execution) land() error {
	x.mu.Lock()
	landed := x.landed
	x.landed = nil
	x.mu.Unlock()
	for _, l := range landed {
		if l.task.status != running {
			continue
		}
		switch {
		case errors.Is(l.err, workflow.ErrTimeout):
			x.end(l.task, failed, "no signal came within "+l.task.Timeout.D().String())
			continue
		case l.err != nil:
			return l.err
		}
		l.task.received, l.task.landed = l.payload, true
		v, err := decodeSignal(l.task)
		if err != nil {
			x.end(l.task, failed, err.Error())
			continue
		}
		if m, ok := v.(map[string]any); l.task.Uses == "approval" && (!ok || m["approved"] != true) {
			message := "it was not approved"
			if by, ok := m["by"].(string); ok {
				message += " by " + clip(by, 50)
			}
			if comment, ok := m["comment"].(string); ok {
				message += ": " + clip(comment, 150)
			}
			x.end(l.task, failed, message)
			continue
		}
		x.end(l.task, succeeded, "")
	}
	return nil
}

// with evaluates the with of a task or item.
func (x *execution) with(ctx context.Context, t *task, item int) (any, error) {
	if t.With == nil {
		return nil, nil
	}
	e, err := x.env(ctx, t.With.Tasks)
	if err != nil {
		return nil, err
	}
	if item >= 0 {
		e.Item, e.Index = t.each.items[item], item
	}
	v, err := evaluate(t, e)
	var problem *definition.ExpressionError
	if err != nil && !errors.As(err, &problem) {
		return nil, fmt.Errorf("%w: with: %w", errOutput, err)
	}
	return v, err
}

// evaluate evaluates the with of a task. The built-in workflow http resolves references to secrets, so a value that
// comes from an expression must not become such a reference. It resolves none in a body, unless body_secrets says so.
func evaluate(t *task, e *definition.Env) (any, error) {
	if t.Uses != "http" {
		return t.With.Eval(e)
	}
	m := map[string]any{}
	var failed error
	secrets := t.With.Has("body_secrets")
	t.With.Entries(func(key string, value *definition.Template) {
		e.NoReferences = secrets || key != "body" && key != "form"
		v, err := value.Eval(e)
		if err != nil && failed == nil {
			failed = err
		}
		m[key] = v
	})
	return m, failed
}

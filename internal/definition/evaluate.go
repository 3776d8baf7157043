package definition

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/expr-lang/expr/vm"
)

// Env has the values of the names in an expression. Each value is as encoding/json decodes it, except that an integer
// is an int.
type Env struct {
	Input     any
	Tasks     map[string]Outcome
	Item      any
	Index     int
	Execution map[string]any
	// Output is what a task has returned, for the expressions in its outputs.
	Output any
	// Event is what a trigger has received, for an expression of CompileEvent.
	Event any
	// NoReferences refuses texts of a template that look like references to secrets and come from an expression, and
	// not from the document itself.
	NoReferences bool
}

// Outcome is what an expression can read of a task that has ended.
type Outcome struct {
	// State is succeeded, failed or skipped.
	State  string
	Output any
	// Error is the message of a failed task.
	Error string
}

// Eval evaluates the expression. Its errors are ExpressionErrors.
func (p *Program) Eval(e *Env) (any, error) {
	m := &meter{until: time.Now().Add(maxTime)}
	tasks := make(map[string]any, len(p.Tasks))
	for id := range p.Tasks {
		o := e.Tasks[id]
		t := map[string]any{"state": o.State, "output": o.Output, "error": nil}
		if o.Error != "" {
			t["error"] = o.Error
		}
		tasks[id] = t
	}
	machine := vm.VM{MemoryBudget: maxParts}
	v, err := machine.Run(p.code, map[string]any{
		"input": e.Input, "tasks": tasks, "item": e.Item, "index": e.Index, "execution": e.Execution,
		"output": e.Output, "event": e.Event,
		guardName: m.guard, stepName: m.step, matchesName: m.matches,
	})
	if err == nil {
		v, err = m.guard(v)
		if err == nil {
			return normal(v), nil
		}
		return nil, &ExpressionError{Source: p.Source, Err: err}
	}
	return nil, wrapExpr(p.Source, err)
}

// normal makes the lists of a value []any, as encoding/json would decode it.
func normal(v any) any {
	switch x := v.(type) {
	case []string:
		list := make([]any, len(x))
		for i := range x {
			list[i] = x[i]
		}
		return list
	case []int:
		list := make([]any, len(x))
		for i := range x {
			list[i] = x[i]
		}
		return list
	case []any:
		list := make([]any, len(x))
		for i := range x {
			list[i] = normal(x[i])
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(x))
		for k, e := range x {
			m[k] = normal(e)
		}
		return m
	}
	return v
}

// typeName names the type of a value as the author of a document knows it.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return nullNode.String()
	case bool:
		return "a boolean"
	case int, float64:
		return numberNode.String()
	case string:
		return textNode.String()
	case []any, []string, []int:
		return listNode.String()
	}
	return mapNode.String()
}

// Decode reads JSON as values of expressions: an integer becomes an int.
func Decode(data []byte) (any, error) {
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	return numbers(v)
}

// numbers replaces the numbers of package json by ints and floats.
func numbers(v any) (_ any, err error) {
	switch x := v.(type) {
	case json.Number:
		n := node{}
		r := report{}
		if r.number(&n, x.String()); len(r.list) > 0 {
			return nil, fmt.Errorf("the number %.40s is too large", x)
		}
		return n.value, nil
	case []any:
		for i := range x {
			if x[i], err = numbers(x[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range x {
			if x[k], err = numbers(x[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/workflow"
)

// errOutput is the error of a value that no further try will change.
var errOutput = errors.New("the value cannot be used")

// outputs keeps the outputs of tasks that were read in this run, up to maxKept bytes of memory. It can read an output
// again.
type outputs struct {
	values map[string]any
	size   int
}

const maxKept = 32 << 20

func (o *outputs) keep(id string, v any) {
	size := weight(v)
	if o.values == nil || o.size+size > maxKept {
		o.values, o.size = map[string]any{}, 0
	}
	o.values[id] = v
	o.size += size
}

// weight returns about how many bytes of memory a value needs.
func weight(v any) int {
	const word = 16
	switch x := v.(type) {
	case string:
		return word + len(x)
	case []any:
		n := 2 * word
		for _, e := range x {
			n += word + weight(e)
		}
		return n
	case map[string]any:
		n := 4 * word
		for k, e := range x {
			n += 2*word + len(k) + weight(e)
		}
		return n
	}
	return word
}

// env returns the values for expressions. tasks calls its argument with each task that they read, and with whether they
// read the output of the task.
func (x *execution) env(ctx context.Context, tasks func(each func(id string, output bool))) (*definition.Env, error) {
	e := &definition.Env{
		Input: x.input, Tasks: map[string]definition.Outcome{},
		Execution: map[string]any{
			"id": x.run.ID().Execution.String(), "workflow": x.doc.Name, "generation": x.generation,
		},
	}
	need := map[string]bool{}
	tasks(func(id string, output bool) { need[id] = need[id] || output })
	for id, output := range need {
		t := x.byID[id]
		if t == nil {
			continue // the validation refuses such documents
		}
		o := definition.Outcome{State: t.status.String(), Error: t.message}
		if output {
			v, err := x.value(ctx, t)
			if err != nil {
				return nil, err
			}
			o.Output = v
		}
		e.Tasks[id] = o
	}
	return e, nil
}

// value returns the output of a task; nil unless it has succeeded, or is a foreach of which some items have.
func (x *execution) value(ctx context.Context, t *task) (any, error) {
	if t.status != succeeded && (t.each == nil || t.status != failed) {
		return nil, nil
	}
	if v, kept := x.outputs.values[t.ID]; kept {
		return v, nil
	}
	var v any
	var err error
	by := x.byHand(t.ID, t.generation)
	switch {
	case t.status == succeeded && by != nil:
		v, err = by.value()
	case t.each != nil:
		v, err = x.collect(ctx, t)
	case inline(t):
		v, err = x.payload(ctx, t)
	default:
		v, _, err = x.read(ctx, t.ID, t.generation)
		if err == nil && t.Outputs != nil {
			var convert func(v any, item int) (any, error)
			if convert, err = x.outputsOf(ctx, t); err == nil {
				v, err = convert(v, -1)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	x.outputs.keep(t.ID, v)
	return v, nil
}

// read reads the output of a child.
func (x *execution) read(ctx context.Context, key string, generation int) (any, int, error) {
	c, err := x.run.Execution(ctx, belay.ChildID(x.run.ID().Execution, generation, key))
	if err != nil {
		return nil, 0, fmt.Errorf("read the output of %s: %w", key, err)
	}
	if len(c.Output) == 0 {
		return nil, 0, nil
	}
	v, err := definition.Decode(c.Output)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: the output of %s: %w", errOutput, key, err)
	}
	return v, len(c.Output), nil
}

// outputsOf returns a function that evaluates the outputs of a task or of its items from what a child has returned.
func (x *execution) outputsOf(ctx context.Context, t *task) (func(v any, item int) (any, error), error) {
	e, err := x.env(ctx, t.Outputs.Tasks)
	if err != nil {
		return nil, err
	}
	if t.each != nil {
		if err := x.list(ctx, t); err != nil {
			return nil, err
		}
	}
	return func(v any, item int) (any, error) {
		e.Output, e.Index, e.Item = v, item, nil
		if item >= 0 {
			e.Item = t.each.items[item]
		}
		v, err := t.Outputs.Eval(e)
		if err != nil {
			return nil, fmt.Errorf("outputs of %s: %w", t.ID, err)
		}
		return v, nil
	}, nil
}

// readers is how many outputs of a foreach are read at the same time.
const readers = 16

// collect reads the outputs of all items of a foreach. The output of an item that did not succeed is nil. If the task
// has outputs, only their values count towards the limit, and no more than a few outputs are in memory.
func (x *execution) collect(ctx context.Context, t *task) ([]any, error) {
	var convert func(v any, item int) (any, error)
	if t.Outputs != nil {
		var err error
		if convert, err = x.outputsOf(ctx, t); err != nil {
			return nil, err
		}
	}
	all := make([]any, t.each.Count)
	total := 0
	for from := 0; from < len(all); from += readers {
		some := all[from:min(from+readers, len(all))]
		sizes, err := x.readItems(ctx, t, from, some)
		if err != nil {
			return nil, err
		}
		for i := range some {
			if g := t.each.generation(from + i); convert != nil && g > 0 && x.byHand(itemKey(t.ID, from+i), g) == nil {
				if some[i], err = convert(some[i], from+i); err != nil {
					return nil, err
				}
				data, err := json.Marshal(some[i])
				if err != nil {
					return nil, err
				}
				sizes[i] = len(data)
			}
			if total += sizes[i] + 1; total > belay.MaxPayload {
				return nil, fmt.Errorf("%w: the outputs of the items of %s have more than %d bytes", errOutput, t.ID,
					belay.MaxPayload)
			}
		}
	}
	return all, nil
}

// readItems reads the outputs of some items of a foreach, of which the first has the number from, into a list. It
// returns their sizes.
func (x *execution) readItems(ctx context.Context, t *task, from int, into []any) ([]int, error) {
	sizes, errs := make([]int, len(into)), make([]error, len(into))
	var reading sync.WaitGroup
	for i := range into {
		if g := t.each.generation(from + i); g > 0 {
			key := itemKey(t.ID, from+i)
			if by := x.byHand(key, g); by != nil {
				into[i], errs[i] = by.value()
				sizes[i] = len(by.Output)
				continue
			}
			reading.Go(func() { into[i], sizes[i], errs[i] = x.read(ctx, key, g) })
		}
	}
	reading.Wait()
	return sizes, errors.Join(errs...)
}

// payload returns what a wait has received. It reads the checkpoint of the wait, which a run can do only once, and so
// keeps the text.
func (x *execution) payload(ctx context.Context, t *task) (any, error) {
	if t.Uses == "sleep" {
		return nil, nil
	}
	if !t.landed {
		data, err := workflow.Go(ctx, t.ID, func(ctx context.Context) (json.RawMessage, error) {
			return workflow.WaitSignal[json.RawMessage](ctx, Signal(t.Task), workflow.Timeout(0))
		}, waitKey(t.generation)...).Wait(ctx)
		if err != nil {
			return nil, err
		}
		t.received, t.landed = data, true
	}
	return decodeSignal(t)
}

// decodeSignal returns the value that a wait has received.
func decodeSignal(t *task) (any, error) {
	if len(t.received) == 0 {
		return nil, nil
	}
	v, err := definition.Decode(t.received)
	if err != nil {
		return nil, fmt.Errorf("%w: the signal for %s: %w", errOutput, t.ID, err)
	}
	return v, nil
}

package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/workflow"
)

// errOutput is the error of a value that no further try will change.
var errOutput = errors.New("the value cannot be used")

// outputs keeps the outputs of tasks that were read in this run, up to maxKept bytes.
type outputs struct {
	values map[string]any
	size   int
}

const maxKept = 8 << 20

func (o *outputs) keep(id string, v any, size int) {
	if o.values == nil || o.size+size > maxKept {
		o.values, o.size = map[string]any{}, 0
	}
	o.values[id] = v
	o.size += size
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
	var size int
	var err error
	switch {
	case t.each != nil:
		v, size, err = x.collect(ctx, t)
	case inline(t):
		v, size, err = x.payload(ctx, t)
	default:
		v, size, err = x.read(ctx, t.ID, t.generation)
		if err == nil && t.Outputs != nil {
			v, err = x.outputsOf(ctx, t, v, -1)
		}
	}
	if err != nil {
		return nil, err
	}
	x.outputs.keep(t.ID, v, size)
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

// outputsOf evaluates the outputs of a task or item from what its child has returned.
func (x *execution) outputsOf(ctx context.Context, t *task, v any, item int) (any, error) {
	e, err := x.env(ctx, t.Outputs.Tasks)
	if err != nil {
		return nil, err
	}
	e.Output, e.Index = v, item
	if item >= 0 {
		if err := x.list(ctx, t); err != nil {
			return nil, err
		}
		e.Item = t.each.items[item]
	}
	v, err = t.Outputs.Eval(e)
	if err != nil {
		return nil, fmt.Errorf("outputs of %s: %w", t.ID, err)
	}
	return v, nil
}

// readers is how many outputs of a foreach are read at the same time.
const readers = 16

// collect reads the outputs of all items of a foreach. The output of an item that did not succeed is nil.
func (x *execution) collect(ctx context.Context, t *task) (any, int, error) {
	all := make([]any, t.each.Count)
	sizes := make([]int, readers)
	errs := make([]error, readers)
	var reading sync.WaitGroup
	for r := range readers {
		reading.Go(func() {
			for i := r; i < len(all) && errs[r] == nil && sizes[r] <= belay.MaxPayload; i += readers {
				g := t.each.generation(i)
				if g == 0 {
					continue
				}
				v, size, err := x.read(ctx, t.ID+"["+strconv.Itoa(i)+"]", g)
				all[i], errs[r] = v, err
				sizes[r] += size + 1
			}
		})
	}
	reading.Wait()
	total := 0
	for r := range readers {
		total += sizes[r]
	}
	switch err := errors.Join(errs...); {
	case err != nil:
		return nil, 0, err
	case total > belay.MaxPayload && t.Outputs == nil:
		return nil, 0, fmt.Errorf("%w: the outputs of the items of %s have more than %d bytes", errOutput, t.ID,
			belay.MaxPayload)
	}
	if t.Outputs == nil {
		return all, total, nil
	}
	for i := range all {
		if t.each.generation(i) == 0 {
			continue
		}
		v, err := x.outputsOf(ctx, t, all[i], i)
		if err != nil {
			return nil, 0, err
		}
		all[i] = v
	}
	return all, total, nil
}

// payload returns what a wait has received; its checkpoint has it.
func (x *execution) payload(ctx context.Context, t *task) (any, int, error) {
	if t.Uses == "sleep" {
		return nil, 0, nil
	}
	data, err := workflow.Go(ctx, t.ID, func(ctx context.Context) (json.RawMessage, error) {
		return workflow.WaitSignal[json.RawMessage](ctx, t.signal(), workflow.Timeout(0))
	}, waitKey(t.generation)...).Wait(ctx)
	if err != nil {
		return nil, 0, err
	}
	return x.received(t, data)
}

func (x *execution) received(t *task, data json.RawMessage) (any, int, error) {
	if len(data) == 0 {
		return nil, 0, nil
	}
	v, err := definition.Decode(data)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: the signal for %s: %w", errOutput, t.ID, err)
	}
	return v, len(data), nil
}

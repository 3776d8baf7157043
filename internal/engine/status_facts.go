package engine

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// statusFacts are the properties of an execution that a query may select and that never change, and
// the seq and state of its newest change that the window got; seq is 0 if there is none.
type statusFacts struct {
	workflow, version, queue string
	parent                   belay.ExecutionID
	labels                   map[string]string
	seq                      int64
	state                    belay.State
}

func factsOf(e *machine.Execution, labels map[string]string) *statusFacts {
	return &statusFacts{workflow: e.Workflow, version: e.Version, queue: e.Queue, parent: e.Parent, labels: labels}
}

// factsCache has the facts of the executions whose states changed last. When the young half is full,
// the old half is dropped.
type factsCache struct {
	young, old map[belay.ExecutionID]*statusFacts
	bytes      int // of the labels in young
}

const (
	// halfFacts and halfBytes limit one half of the cache.
	halfFacts = 16_384
	halfBytes = 8 << 20
	// factsAtATime is the largest number of executions that one query reads.
	factsAtATime = 256
)

func (c *factsCache) get(id belay.ExecutionID) *statusFacts {
	if f := c.young[id]; f != nil {
		return f
	}
	f := c.old[id]
	if f != nil {
		c.put(id, f)
	}
	return f
}

func (c *factsCache) put(id belay.ExecutionID, f *statusFacts) {
	if c.young == nil || len(c.young) >= halfFacts || c.bytes >= halfBytes {
		c.old, c.young, c.bytes = c.young, make(map[belay.ExecutionID]*statusFacts), 0
	}
	c.young[id] = f
	for name, value := range f.labels {
		c.bytes += 64 + len(name) + len(value)
	}
}

// of returns the facts of all executions that changed. It reads the facts that the cache lacks from
// the store. An execution without facts was deleted.
func (c *factsCache) of(ctx context.Context, s store.Store, all []arrival) (map[belay.ExecutionID]*statusFacts, error) {
	facts := make(map[belay.ExecutionID]*statusFacts, len(all))
	var missing []belay.ExecutionID
	for i := range all {
		id := all[i].Execution
		if _, there := facts[id]; there {
			continue
		}
		f := c.get(id)
		if f == nil && all[i].facts != nil {
			f = all[i].facts
			c.put(id, f)
		}
		if facts[id] = f; f == nil {
			missing = append(missing, id)
		}
	}
	for len(missing) > 0 {
		n := min(len(missing), factsAtATime)
		list, err := s.List(ctx, store.List{IDs: missing[:n], Children: true})
		if err != nil {
			return nil, err
		}
		missing = missing[n:]
		for _, r := range list.Records {
			var labels map[string]string
			if r.Spec != nil {
				labels = r.Spec.Labels
			}
			f := factsOf(r.Execution, labels)
			facts[r.Execution.ID] = f
			c.put(r.Execution.ID, f)
		}
	}
	return facts, nil
}

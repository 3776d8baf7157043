package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// statusFacts are the properties of an execution that a query may select and that never change, and
// the newest change that the window got. They belong to one life of the execution: if it is deleted
// and submitted again under the same id, it gets new facts.
type statusFacts struct {
	workflow, version, queue string
	parent                   belay.ExecutionID
	labels                   map[string]string
	unread                   bool // the store must be asked for the properties
	gone                     bool // the execution was deleted

	seq   int64 // of the newest change; 0 if there is none
	state belay.State
	at    time.Time
	doubt uint64    // factsCache.doubt then; if that is higher now, there may be newer changes
	born  time.Time // when the execution was accepted, if a change has said that
}

func factsOf(e *machine.Execution, labels map[string]string) *statusFacts {
	return &statusFacts{workflow: e.Workflow, version: e.Version, queue: e.Queue, parent: e.Parent, labels: labels}
}

// factsCache has the facts of the executions whose states changed last. When the young half is full,
// the old half is dropped.
type factsCache struct {
	young, old map[belay.ExecutionID]*statusFacts
	bytes      int    // of the labels in young
	doubt      uint64 // number of losses
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

func (c *factsCache) drop(id belay.ExecutionID) {
	delete(c.young, id)
	delete(c.old, id)
}

// skip notes that the next snapshots have the effect of a change, so that an earlier change of the same
// execution that arrives even later is not published.
func (c *factsCache) skip(a *arrival) {
	f := c.get(a.Execution)
	if f == nil || f.ended(a) {
		if f = a.facts; f == nil {
			f = &statusFacts{unread: true}
		}
		if a.Previous == 0 {
			f.born = a.At
		}
		c.put(a.Execution, f)
	}
	if a.Seq > f.seq {
		f.seq, f.state, f.at = a.Seq, a.State, a.At
	}
}

// describe sets the facts of all changes. It reads the facts that the cache lacks from the store. An
// execution that the store lacks was deleted.
func (c *factsCache) describe(ctx context.Context, s store.Store, all []arrival) error {
	known := make(map[belay.ExecutionID]*statusFacts, len(all))
	missing := make(map[belay.ExecutionID][]*statusFacts)
	for i := range all {
		a := &all[i]
		f := known[a.Execution]
		if f == nil {
			f = c.get(a.Execution)
		}
		if f == nil || f.ended(a) {
			if f = a.facts; f == nil {
				f = &statusFacts{unread: true}
			} else {
				c.put(a.Execution, f)
			}
			if a.Previous == 0 {
				f.born = a.At
			}
		}
		if f.unread && known[a.Execution] != f {
			missing[a.Execution] = append(missing[a.Execution], f)
		}
		known[a.Execution], a.facts = f, f
	}
	return c.read(ctx, s, missing)
}

// ended reports whether the facts belong to an earlier life of an execution than a change does.
func (f *statusFacts) ended(a *arrival) bool {
	return a.Previous == 0 && !a.At.Equal(f.born) && (f.seq == 0 || a.At.After(f.at))
}

func (c *factsCache) read(ctx context.Context, s store.Store, missing map[belay.ExecutionID][]*statusFacts) error {
	ids := slices.Collect(maps.Keys(missing))
	for some := range slices.Chunk(ids, factsAtATime) {
		list, err := s.List(ctx, store.List{IDs: some, Children: true})
		if err != nil {
			return err
		}
		for _, r := range list.Records {
			var labels map[string]string
			if r.Spec != nil {
				labels = r.Spec.Labels
			}
			id := r.Execution.ID
			for _, f := range missing[id] {
				read := factsOf(r.Execution, labels)
				read.seq, read.state, read.at, read.doubt, read.born = f.seq, f.state, f.at, f.doubt, f.born
				*f = *read
				c.put(id, f)
			}
			delete(missing, id)
		}
	}
	for id, lives := range missing {
		c.drop(id)
		for _, f := range lives {
			f.gone = true
		}
	}
	return nil
}

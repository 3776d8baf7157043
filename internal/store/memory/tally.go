package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Tally implements store.Store.
func (s *Store) Tally(ctx context.Context) (store.Tally, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "tally"); err != nil {
		return store.Tally{}, err
	}
	t := store.NewTally()
	queues := make(map[string]store.QueueLoad)
	gates := make(map[string]store.GateLoad)
	for _, r := range s.records {
		if r.execution != nil && !r.execution.State.Terminal() {
			t.Executions[r.execution.State]++
			s.tallyExecution(r.execution, queues, gates)
		}
		for _, d := range r.letters {
			if d.Resolution == "" {
				t.DeadLetters[d.Reason]++
			}
		}
	}
	for key, held := range s.places {
		if g := gates[string(key.gate)]; held {
			g.Held++
			gates[string(key.gate)] = g
		}
	}
	for _, x := range s.workers {
		if !x.State.Ended() && !x.Spec.External {
			t.Workers[x.State]++
		}
	}
	for i, name := range most(queues, func(q store.QueueLoad) int64 { return q.Due + q.Owned }) {
		q := queues[name]
		if q.Queue = name; i >= store.MaxTallied {
			q.Queue = ""
		}
		t.AddQueue(q)
	}
	var others store.GateLoad
	for i, name := range most(gates, func(g store.GateLoad) int64 { return g.Held + g.Waiting }) {
		g := gates[name]
		if g.Gate = belay.GateID(name); i < store.MaxTallied {
			t.Gates = append(t.Gates, g)
			continue
		}
		others.Held, others.Waiting = others.Held+g.Held, others.Waiting+g.Waiting
	}
	if others != (store.GateLoad{}) {
		t.Gates = append(t.Gates, others)
	}
	t.Order()
	return t, nil
}

func (s *Store) tallyExecution(
	e *machine.Execution, queues map[string]store.QueueLoad, gates map[string]store.GateLoad,
) {
	q := queues[e.Queue]
	switch {
	case e.Ready() != 0:
		if e.Ready() <= s.nowLocked() {
			q.Due++
		}
		queues[e.Queue] = q
	case !e.Worker.IsZero():
		q.Owned++
		queues[e.Queue] = q
	}
	if e.Gate != "" {
		g := gates[string(e.Gate)]
		g.Waiting++
		gates[string(e.Gate)] = g
	}
}

// most returns the keys of a map: those with the largest numbers first, and equal ones by name.
func most[T any](all map[string]T, number func(T) int64) []string {
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(number(all[b]), number(all[a])), cmp.Compare(a, b))
	})
}

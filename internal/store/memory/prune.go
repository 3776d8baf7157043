package memory

import (
	"context"
	"math"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Prune implements store.Store.
func (s *Store) Prune(ctx context.Context, over store.Retention, limit int) (store.Pruned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "prune"); err != nil {
		return store.Pruned{}, err
	}
	before := over.Before
	stretch := over.Next(&s.walk)
	felled, err := store.Fell(forest{s, before, over.Letters}, stretch, limit)
	if err != nil {
		return store.Pruned{}, err
	}
	p := store.Pruned{Large: felled.Large, More: over.Went(&s.walk, stretch, &felled)}
	now := s.nowLocked()
	for _, ids := range felled.Trees {
		felled.Leaves = append(felled.Leaves, ids...)
	}
	for _, id := range felled.Leaves {
		s.forget(id, now.Add(store.KeyLife))
		p.Executions++
	}
	if !felled.Trim.IsZero() {
		s.trim(felled.Trim)
	}
	if !over.Root.IsZero() {
		return p, nil
	}
	for _, x := range bounded(s.sessions(func(x *machine.Worker) bool {
		return x.State.Ended() && x.EndedAt < before && len(s.owned(x.ID)) == 0
	}), limit) {
		delete(s.workers, x.ID)
		p.Sessions++
	}
	for k, row := range s.keys {
		if row.expires != 0 && row.expires <= now && (limit <= 0 || p.Keys < limit) {
			delete(s.keys, k)
			p.Keys++
		}
	}
	more := s.pruneGates(&p, before, now, limit)
	s.gates.Again(p.More)
	p.More = p.More || more || limit > 0 && (p.Sessions == limit || p.Keys == limit)
	return p, nil
}

// pruneGates deletes idle gates, and reports whether there are more gates to check.
func (s *Store) pruneGates(p *store.Pruned, before, now machine.Time, limit int) (more bool) {
	f := store.Query{Limit: store.GateStride, Bytes: math.MaxInt}.Fill()
	s.listObjects(store.Query{Kind: machine.GateObject, After: s.gates.After()}, f)
	idle, more := s.gates.Pick(f.Objects, before, now, limit)
	for _, o := range idle {
		gate := belay.GateID(o.Name)
		used := len(s.parked(gate)) > 0
		for key := range s.places {
			used = used || key.gate == gate
		}
		if !used {
			delete(s.objects, o.ObjectRef)
			p.Gates++
		}
	}
	return more
}

// forget deletes an execution. Its idempotency key stays until it expires.
func (s *Store) forget(id belay.ExecutionID, expires machine.Time) {
	for k, row := range s.keys {
		if row.Execution == id {
			row.expires = expires
			s.keys[k] = row
		}
	}
	delete(s.records, id)
}

// forest is the store as a store.Forest, from which store.Fell chooses the executions to delete.
type forest struct {
	*Store
	before, letters machine.Time
}

func (f forest) over(e *machine.Execution) bool { return e.State.Terminal() && e.FinishedAt < f.before }

// kept reports whether an execution has an open dead letter that must be kept.
func (f forest) kept(id belay.ExecutionID) bool {
	return slices.ContainsFunc(f.records[id].letters, func(d *machine.DeadLetter) bool {
		return d.Resolution == "" && d.At >= f.letters
	})
}

// Roots implements store.Forest.
func (f forest) Roots(s store.Stretch, limit int) (roots []store.Root, next belay.ExecutionID, more bool, err error) {
	all := f.where(func(e *machine.Execution) bool { return e.ID.Compare(s.From) > 0 && e.ID.Compare(s.To) <= 0 })
	for i, e := range all {
		if i == s.Rows || limit > 0 && len(roots) == limit {
			return roots, next, true, nil
		}
		if next = e.ID; f.of(e.Parent).execution == nil && f.over(e) && !f.kept(e.ID) {
			roots = append(roots, store.Root{ID: e.ID, Seq: e.Seq, Forgotten: e.Reason == machine.Forgotten})
		}
	}
	return roots, s.To, false, nil
}

func (f forest) members(holds func(*machine.Execution) bool, limit int) ([]store.Member, error) {
	var all []store.Member
	for _, e := range f.where(holds) {
		all = append(all, store.Member{ID: e.ID, Parent: e.Parent, Seq: e.Seq, Over: f.over(e)})
	}
	return bounded(all, limit), nil
}

func (f forest) hasChildren(id belay.ExecutionID) bool {
	return len(f.where(func(e *machine.Execution) bool { return e.Parent == id })) > 0
}

// Children implements store.Forest.
func (f forest) Children(of []belay.ExecutionID, limit int) ([]store.Member, error) {
	return f.members(func(e *machine.Execution) bool {
		return !e.Parent.IsZero() && slices.Contains(of, e.Parent)
	}, limit)
}

// Leaves implements store.Forest.
func (f forest) Leaves(of belay.ExecutionID, limit int) ([]store.Member, error) {
	return f.members(func(e *machine.Execution) bool {
		return e.Parent == of && f.over(e) && !f.hasChildren(e.ID)
	}, limit)
}

// Nodes implements store.Forest.
func (f forest) Nodes(of belay.ExecutionID, limit int) ([]store.Member, error) {
	return f.members(func(e *machine.Execution) bool {
		return e.Parent == of && f.over(e) && f.hasChildren(e.ID)
	}, limit)
}

// Weigh implements store.Forest.
func (f forest) Weigh(of []store.Member) (map[belay.ExecutionID]store.Weight, error) {
	all := make(map[belay.ExecutionID]store.Weight, len(of))
	for _, m := range of {
		r := f.of(m.ID)
		w := store.Weight{Rows: int64(len(r.runs) + len(r.checkpoints) + len(r.signals) + len(r.deeds))}
		for _, k := range r.checkpoints {
			w.Bytes += int64(len(k.Data))
		}
		for _, k := range r.signals {
			w.Bytes += int64(len(k.Payload))
		}
		for _, k := range r.runs {
			w.Bytes += int64(len(k.Output))
		}
		for _, sum := range r.sums {
			w.Bytes += sum.Bytes
		}
		all[m.ID] = w
	}
	return all, nil
}

// trimmed is the number of rows of a kind that trim deletes.
const trimmed = 100

// trim deletes a part of the rows of an execution.
func (s *Store) trim(id belay.ExecutionID) {
	r := *s.of(id)
	r.runs, r.checkpoints = rest(r.runs), rest(r.checkpoints)
	r.signals, r.deeds, r.chunks = rest(r.signals), rest(r.deeds), rest(r.chunks)
	if len(r.chunks) == 0 {
		r.sums = nil
	}
	s.records[id] = &r
}

func rest[R any](rows []R) []R { return rows[min(len(rows), trimmed):] }

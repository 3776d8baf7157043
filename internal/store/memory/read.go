package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, q store.Read) (*machine.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "read"); err != nil {
		return nil, err
	}
	r := s.of(q.Execution)
	if r.execution == nil {
		return nil, &belay.Error{
			Code: belay.CodeNotFound, Op: "read", Message: "there is no execution " + q.Execution.String(),
		}
	}
	out := &machine.Record{Execution: copyExecution(r.execution)}
	if q.Spec {
		specs := s.of(q.Execution).specs
		for i := range specs {
			if int64(specs[i].Generation) <= q.UpTo() {
				out.Spec = copySpec(specs[i], true)
			}
		}
	}
	for i, run := range r.runs {
		newest := q.Run && i == len(r.runs)-1 || i >= len(r.runs)-q.Runs
		inHistory := q.History && (run.EndedSeq == 0 || run.EndedSeq > q.After)
		if newest || inHistory {
			out.Runs = append(out.Runs, copyRun(run, newest || q.Data))
		}
	}
	resumed := r.resumed()
	budget := q.Budget()
	var lastCheckpoint, lastSignal int64
	for _, k := range r.checkpoints {
		counts := q.Resume && resumed[k.Seq] && k.Seq > q.ResumeAfter
		if counts {
			lastCheckpoint = k.Seq
			if counts = budget > 0; counts {
				budget -= int64(len(k.Data)) + store.RowBytes
			}
		}
		if counts || q.History && k.Seq > q.After {
			out.Checkpoints = append(out.Checkpoints, copyCheckpoint(k, counts || q.Data))
		}
	}
	budget = q.Budget()
	for _, x := range r.signals {
		waits := (q.Resume || q.Signals) && x.ConsumedBy == 0 && x.Seq > max(r.execution.BaseSeq, q.ResumeAfter)
		if waits {
			lastSignal = x.Seq
			if waits = budget > 0; waits {
				budget -= int64(len(x.Payload)) + store.RowBytes
			}
		}
		if waits || q.History && x.Seq > q.After {
			out.Signals = append(out.Signals, copySignal(x, waits || q.Data))
		}
	}
	for _, d := range r.deeds {
		if q.History && d.Seq > q.After {
			out.Deeds = append(out.Deeds, copyOf(d))
		}
	}
	if q.History && q.After < 1 && len(r.specs) > 0 && r.specs[0].Generation == 1 {
		out.CreatedBy = r.specs[0].CreatedBy
	}
	if q.Detail {
		s.detail(r, out)
	}
	if q.Bytes > 0 {
		store.Page(out, lastCheckpoint, lastSignal)
	}
	return out, nil
}

// resumed returns the seqs of the valid checkpoints: of each kind and key the newest checkpoint of
// the present input, if it has data.
func (r *record) resumed() map[int64]bool {
	type name struct {
		kind belay.CheckpointKind
		key  string
	}
	newest := make(map[name]int64)
	for _, k := range r.checkpoints {
		if k.Seq > r.execution.BaseSeq && !k.Pruned {
			newest[name{k.Kind, k.Key}] = k.Seq
		}
	}
	seqs := make(map[int64]bool, len(newest))
	for _, seq := range newest {
		seqs[seq] = true
	}
	return seqs
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, q store.List) (store.Listed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "list"); err != nil {
		return store.Listed{}, err
	}
	looked, all := s.looksAt(q)
	var out store.Listed
	if of, counted := q.Counted(); counted {
		newest, all := s.looksAt(of)
		out.States, out.Older = make(map[belay.State]int), !all && s.older(newest, of)
		for _, e := range newest {
			if s.matches(e, of) {
				out.States[e.State]++
			}
		}
	}
	for _, e := range looked {
		if !s.matches(e, q) {
			continue
		}
		r := &machine.Record{Execution: copyExecution(e), Spec: copySpec(s.newestSpec(e.ID), q.Payloads)}
		if runs := s.of(e.ID).runs; q.Payloads && len(runs) > 0 {
			r.Runs = []*machine.Run{copyRun(runs[len(runs)-1], true)}
		} else if q.Outputs > 0 && len(runs) > 0 {
			last := runs[len(runs)-1]
			r.Runs = []*machine.Run{copyRun(last, int64(len(last.Output)) <= q.Outputs)}
		}
		if out.Records = append(out.Records, r); len(out.Records) == q.Limit {
			return out, nil
		}
	}
	if !all {
		last := looked[len(looked)-1]
		out.Last, out.At = last.ID, last.CreatedAt
	}
	return out, nil
}

// older reports whether there are executions, or children of the query's parent, beside the newest ones.
func (s *Store) older(newest []*machine.Execution, q store.List) bool {
	q.Scan = 0
	all, _ := s.looksAt(q)
	return len(all) > len(newest)
}

// looksAt lists the executions that a query examines, newest first. all says that no other
// execution can match.
func (s *Store) looksAt(q store.List) (looked []*machine.Execution, all bool) {
	among := func(holds func(*machine.Execution) bool) []*machine.Execution {
		found := s.where(func(e *machine.Execution) bool {
			return (q.Before.IsZero() || e.ID.Compare(q.Before) < 0) && holds(e)
		})
		slices.Reverse(found)
		return found
	}
	older := among(func(e *machine.Execution) bool { return q.Parent.IsZero() || e.Parent == q.Parent })
	if q.Scan <= 0 || q.Key != "" || len(q.IDs) > 0 || len(older) < q.Scan {
		return older, true
	}
	if store.Active(q.States) && q.Parent.IsZero() {
		open := among(func(e *machine.Execution) bool {
			return !e.State.Terminal() && (!store.Owned(q.States) || !e.Worker.IsZero())
		})
		if len(open) <= q.Scan {
			return open, true
		}
	}
	return older[:q.Scan], false
}

func (s *Store) matches(e *machine.Execution, q store.List) bool {
	spec := s.newestSpec(e.ID)
	for k, v := range q.Labels {
		if have, ok := spec.Labels[k]; !ok || have != v {
			return false
		}
	}
	switch {
	case len(q.States) > 0 && !slices.Contains(q.States, e.State),
		len(q.IDs) > 0 && !slices.Contains(q.IDs, e.ID),
		q.Workflow != "" && e.Workflow != q.Workflow,
		q.Queue != "" && e.Queue != q.Queue,
		!strings.Contains(store.Lower(e.Message), store.Lower(q.Error)),
		q.Key != "" && s.keys[machine.Key{Workflow: e.Workflow, Key: q.Key}].Execution != e.ID,
		!q.Parent.IsZero() && e.Parent != q.Parent,
		q.Parent.IsZero() && !q.Children && !e.Parent.IsZero(),
		!q.Before.IsZero() && e.ID.Compare(q.Before) >= 0:
		return false
	}
	return true
}

// ReadyLanes implements store.Store.
func (s *Store) ReadyLanes(ctx context.Context) ([]store.LaneHint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "lanes"); err != nil {
		return nil, err
	}
	first := make(map[machine.LaneID]machine.Time)
	for _, e := range s.where(func(e *machine.Execution) bool { return e.Ready() != 0 }) {
		if at, there := first[e.Lane]; !there || e.Ready() < at {
			first[e.Lane] = e.Ready()
		}
	}
	var all []store.LaneHint
	for _, id := range slices.Sorted(maps.Keys(first)) {
		all = append(all, store.LaneHint{Lane: id, At: first[id]})
	}
	return all, nil
}

// Lanes implements store.Store.
func (s *Store) Lanes(ctx context.Context, ids []machine.LaneID) ([]machine.Lane, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "lanes"); err != nil {
		return nil, err
	}
	found := make(map[machine.LaneID]machine.Lane)
	for _, e := range s.where(func(e *machine.Execution) bool {
		return e.Ready() != 0 && slices.Contains(ids, e.Lane)
	}) {
		if sp := s.newestSpec(e.ID); sp != nil {
			found[e.Lane] = machine.Lane{ID: e.Lane, Queue: e.Queue, Workflow: e.Workflow, Version: e.Version,
				Priority: sp.Priority, Labels: sp.WorkerLabels}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b machine.Lane) int { return cmp.Compare(a.ID, b.ID) }), nil
}

// Chunks implements store.Store.
func (s *Store) Chunks(ctx context.Context, q belay.ChunkQuery) ([]machine.Chunk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "chunks"); err != nil {
		return nil, err
	}
	var out []machine.Chunk
	for _, k := range s.of(q.Execution).chunks {
		if k.Name == q.Name && k.N >= q.From {
			out = append(out, *copyChunk(k, true))
		}
	}
	return bounded(out, store.ChunkLimit(q.Limit)), nil
}

// bounded returns the first limit rows, or all rows if limit is 0.
func bounded[R any](rows []R, limit int) []R {
	if limit > 0 && len(rows) > limit {
		return rows[:limit]
	}
	return rows
}

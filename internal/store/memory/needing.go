package memory

import (
	"cmp"
	"slices"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// listNeeding lists the executions that fail without a worker, or their lanes (the groups that the
// same workers may claim).
func (s *Store) listNeeding(q store.Query, f *store.Filling) {
	limit, _ := q.Bounds()
	all := s.where((*machine.Execution).NeedsWorker)
	if q.Of == store.Needing {
		now := s.nowLocked()
		all = slices.DeleteFunc(all, func(e *machine.Execution) bool { return e.Lane != q.Lane || e.Ready() > now })
		slices.SortStableFunc(all, func(a, b *machine.Execution) int { return cmp.Compare(a.Ready(), b.Ready()) })
		for _, e := range bounded(all, int(limit)) {
			f.Needing = append(f.Needing, machine.NoWorker{Execution: e.ID, Seq: e.Seq})
		}
		return
	}
	slices.SortStableFunc(all, func(a, b *machine.Execution) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Ready(), b.Ready()))
	})
	all = slices.CompactFunc(all, func(a, b *machine.Execution) bool { return a.Lane == b.Lane })
	for _, e := range bounded(all, int(limit)) {
		f.Lanes = append(f.Lanes, store.LaneHint{Lane: e.Lane, At: e.Ready()})
	}
}

// listDueLanes lists the longest due execution of each lane (the executions that the same workers may
// claim), without the executions that a gate has let through a moment ago.
func (s *Store) listDueLanes(q store.Query, f *store.Filling) {
	now := s.nowLocked()
	all := s.where(func(e *machine.Execution) bool { return e.Ready() != 0 && e.Ready() <= now && e.AdmitBy == 0 })
	slices.SortStableFunc(all, func(a, b *machine.Execution) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Ready(), b.Ready()))
	})
	all = slices.CompactFunc(all, func(a, b *machine.Execution) bool { return a.Lane == b.Lane })
	slices.SortStableFunc(all, func(a, b *machine.Execution) int { return cmp.Compare(a.Ready(), b.Ready()) })
	limit, _ := q.Bounds()
	for _, e := range bounded(all, int(limit)) {
		f.Heads = append(f.Heads, store.LaneHead{Lane: e.Lane, At: e.Ready(), Execution: e.ID})
	}
}

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

package memory

import (
	"context"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Prune implements store.Store.
func (s *Store) Prune(ctx context.Context, before machine.Time, limit int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "prune"); err != nil {
		return 0, err
	}
	now := s.nowLocked()
	executions := bounded(s.where(func(e *machine.Execution) bool { return s.over(e, before) }), limit)
	for _, e := range executions {
		s.forget(e, now.Add(store.KeyLife))
	}
	sessions := bounded(s.sessions(func(x *machine.Worker) bool {
		return x.State.Ended() && x.EndedAt < before && len(s.owned(x.ID)) == 0
	}), limit)
	for _, x := range sessions {
		delete(s.workers, x.ID)
	}
	for k, row := range s.keys {
		if row.expires != 0 && row.expires <= now {
			delete(s.keys, k)
		}
	}
	return len(executions) + len(sessions), nil
}

// over reports whether an execution may be forgotten: it ended before the
// moment, and neither a child nor a parent that has not ended needs it.
func (s *Store) over(e *machine.Execution, before machine.Time) bool {
	p := s.of(e.Parent).execution
	return e.State.Terminal() && e.FinishedAt < before && e.Open == 0 && (p == nil || p.State.Terminal())
}

// forget deletes an execution; its idempotency key lives on for a while.
func (s *Store) forget(e *machine.Execution, expires machine.Time) {
	for k, row := range s.keys {
		if row.Execution == e.ID {
			row.expires = expires
			s.keys[k] = row
		}
	}
	delete(s.records, e.ID)
}

package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Due implements store.Store.
func (s *Store) Due(ctx context.Context, limit int) (store.Due, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "due"); err != nil {
		return store.Due{}, err
	}
	now := s.nowLocked()
	var due store.Due
	s.dueWorkers(&due, now, limit)
	s.dueChecks(&due, now, limit)
	s.dueObjects(&due, now, limit)

	ownerless := s.where(func(e *machine.Execution) bool { return !e.Worker.IsZero() && !s.lives(e.Worker) })
	slices.SortStableFunc(ownerless, func(a, b *machine.Execution) int { return compareWorkers(a.Worker, b.Worker) })
	for _, e := range bounded(ownerless, limit) {
		due.Lost = append(due.Lost, store.Lost{
			Lose: machine.Lose{Execution: e.ID, Token: e.Token, Worker: e.Worker}, Losses: e.Losses, RunAt: e.RunAt,
		})
	}

	s.dueChildren(&due, limit)
	for _, e := range bounded(s.where(s.unspent), limit) {
		due.Unspent = append(due.Unspent, e.ID)
	}
	return due, nil
}

// unspent reports whether a descendant is paused because of a budget that is not spent any more.
func (s *Store) unspent(e *machine.Execution) bool {
	if e.SpentBy.IsZero() || e.Parent.IsZero() {
		return false
	}
	r := s.records[e.SpentBy]
	return r == nil || r.execution == nil || r.execution.State.Terminal() || r.execution.Budget == 0 ||
		r.execution.Cost < r.execution.Budget
}

func (s *Store) dueChildren(due *store.Due, limit int) {
	parting := s.where(func(e *machine.Execution) bool { return e.Parting() != 0 })
	left := func() bool { return limit <= 0 || len(due.Children)+len(due.Parted) < limit }
	for _, p := range bounded(parting, limit) {
		orphans := s.where(func(e *machine.Execution) bool {
			abandoned := e.Policy != nil && e.Policy.Abandon
			parted := p.State.Terminal() || p.CancelBy != 0 || p.Generation > e.ParentGen
			return e.Parent == p.ID && parted && !e.State.Terminal() && e.CancelBy == 0 && !abandoned
		})
		for _, e := range orphans {
			if left() {
				due.Children = append(due.Children, e.ID)
			}
		}
		if len(orphans) == 0 && left() {
			due.Parted = append(due.Parted, machine.Part{Execution: p.ID, Parting: p.Parting()})
		}
	}
}

func (s *Store) dueWorkers(due *store.Due, now machine.Time, limit int) {
	living := s.sessions(func(x *machine.Worker) bool { return !x.State.Ended() })
	slices.SortStableFunc(living, func(a, b *machine.Worker) int { return cmp.Compare(a.ExpiresAt, b.ExpiresAt) })
	for _, x := range living {
		if ttl := x.Spec.TTL.D(); due.MinTTL == 0 || ttl < due.MinTTL {
			due.MinTTL = ttl
		}
		switch {
		case x.ExpiresAt <= now:
			due.Workers = append(due.Workers, x.ID)
		case due.NextWorker == 0:
			due.NextWorker = x.ExpiresAt
		}
	}
	due.Workers = bounded(due.Workers, limit)
}

func (s *Store) dueChecks(due *store.Due, now machine.Time, limit int) {
	checked := s.where(func(e *machine.Execution) bool { return e.CheckAt != 0 })
	slices.SortStableFunc(checked, func(a, b *machine.Execution) int { return cmp.Compare(a.CheckAt, b.CheckAt) })
	for _, e := range checked {
		switch {
		case e.CheckAt <= now:
			due.Checks = append(due.Checks, e.ID)
		case due.NextCheck == 0:
			due.NextCheck = e.CheckAt
		}
	}
	due.Checks = bounded(due.Checks, limit)
}

// lives reports whether the session exists and has not ended.
func (s *Store) lives(id belay.WorkerID) bool {
	x := s.workers[id]
	return x != nil && !x.State.Ended()
}

// sessions lists the sessions that meet a condition, in the order of their ids.
func (s *Store) sessions(holds func(*machine.Worker) bool) []*machine.Worker {
	var all []*machine.Worker
	for _, x := range s.workers {
		if holds(x) {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b *machine.Worker) int { return compareWorkers(a.ID, b.ID) })
	return all
}

func compareWorkers(a, b belay.WorkerID) int { return slices.Compare(a[:], b[:]) }

// Workers implements store.Store.
func (s *Store) Workers(ctx context.Context, q store.WorkerQuery) ([]store.WorkerRow, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "workers"); err != nil {
		return nil, err
	}
	var out []store.WorkerRow
	for _, x := range s.workers {
		out = append(out, store.WorkerRow{Worker: copyWorker(x)})
	}
	out = q.Of(out)
	for i := range out {
		if q.Owned {
			out[i].Running = len(s.owned(out[i].ID))
		}
		if q.Current {
			out[i].Current = s.workers[out[i].ID].Current
		}
	}
	return out, nil
}

// Counts implements store.Store.
func (s *Store) Counts(ctx context.Context) (store.Counts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "counts"); err != nil {
		return store.Counts{}, err
	}
	c := store.Counts{Executions: make(map[belay.State]int64)}
	for _, r := range s.records {
		if r.execution != nil {
			c.Executions[r.execution.State]++
		}
		c.Runs += int64(len(r.runs))
		c.Checkpoints += int64(len(r.checkpoints))
		for _, d := range r.letters {
			if d.Resolution == "" {
				c.DeadLetters++
			}
		}
	}
	for _, x := range s.workers {
		if !x.State.Ended() {
			c.Sessions++
		}
	}
	return c, nil
}

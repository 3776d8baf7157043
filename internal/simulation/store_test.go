package simulation

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
)

// gated is the store that a node uses from its start to its crash or stop. Every call waits until the
// simulation has decided whether it is carried out, and the history records every commit.
type gated struct {
	*memory.Store
	w    *world
	life *life
}

var _ store.Store = (*gated)(nil)

// hold waits until the simulation has decided whether a call fails. An error means that the call
// must not be carried out. Otherwise the caller carries the call out, passes its error to the
// function told, and returns the error that told returns.
func (s *gated) hold(ctx context.Context, op string) (told func(error) error, err error) {
	if s.life.dead.Load() {
		return nil, errUnknown(op)
	}
	f := s.life.planned(op)
	if f == nil {
		name := s.life.name + " " + op
		if a := actorOf(ctx); a != "" {
			name += " for " + a
		}
		x := s.w.gate.pass(context.Background(), &ticket{place: atStore, name: name, life: s.life})
		f = &x
	}
	switch *f {
	case goes:
		return func(err error) error { return err }, nil
	case unheard:
		return func(error) error { return errUnknown(op) }, nil
	default:
		return nil, errUnknown(op)
	}
}

// Commit implements store.Store.
func (s *gated) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	op, free := s.life.unique("commit")
	defer free()
	began := s.w.gate.now()
	told, err := s.hold(ctx, op)
	if err != nil {
		return err
	}
	var c *commit
	var found *machine.Rows
	err = s.Store.Commit(context.Background(), need, func(rows *machine.Rows) *machine.Changes {
		s.w.mutant.beforeFold(s.w, &need, rows)
		out := decide(rows)
		if s.w.mutant.afterFold(s.w, rows, out) {
			c = nil
			return nil // the commit is acknowledged and not written
		}
		found = rows
		c = &commit{at: rows.Now, began: began, node: s.life.name, changes: out, beat: out.Beat}
		return out
	})
	if err == nil && c != nil && !c.changes.Empty() {
		s.w.history.committed(c)
		s.w.traceCommit(c)
		s.w.giveHints(s.life, found, c.changes)
	}
	if s.w.plan.overlapping() {
		// The answers of two commits may arrive in another order than the commits were written.
		if _, dead := s.hold(ctx, op+answered); dead != nil {
			return dead
		}
	}
	return told(err)
}

// answered ends the name of a commit that was written and whose answer is on the way.
const answered = " answer"

// Query implements store.Store.
func (s *gated) Query(ctx context.Context, q store.Query) (store.Found, error) {
	found, err := s.Store.Query(ctx, q)
	if err == nil {
		s.w.mutant.hasFound(q, &found)
	}
	return found, err
}

// Read implements store.Store.
func (s *gated) Read(ctx context.Context, q store.Read) (*machine.Record, error) {
	op := "read " + s.w.short(q.Execution)
	if q.Resume {
		op = "resume " + s.w.short(q.Execution)
	}
	told, err := s.hold(ctx, op)
	if err != nil {
		return nil, err
	}
	r, err := s.Store.Read(context.Background(), q)
	if err == nil {
		s.w.mutant.hasRead(q, r)
	}
	if err := told(err); err != nil {
		return nil, err
	}
	return r, nil
}

// List implements store.Store.
func (s *gated) List(ctx context.Context, q store.List) (store.Listed, error) {
	return through(ctx, s, "list", func() (store.Listed, error) { return s.Store.List(context.Background(), q) })
}

// Due implements store.Store.
func (s *gated) Due(ctx context.Context, limit int) (store.Due, error) {
	return through(ctx, s, "due", func() (store.Due, error) {
		due, err := s.Store.Due(context.Background(), limit)
		if err == nil {
			s.w.mutant.dueFound(s.w, &due)
		}
		return due, err
	})
}

// Lanes implements store.Store.
func (s *gated) Lanes(ctx context.Context, ids []machine.LaneID) ([]machine.Lane, error) {
	return through(ctx, s, "lanes", func() ([]machine.Lane, error) { return s.Store.Lanes(context.Background(), ids) })
}

// ReadyLanes implements store.Store.
func (s *gated) ReadyLanes(ctx context.Context) ([]store.LaneHint, error) {
	return through(ctx, s, "ready lanes", func() ([]store.LaneHint, error) {
		all, err := s.Store.ReadyLanes(context.Background())
		return s.w.mutant.readyFound(all), err
	})
}

// Workers implements store.Store.
func (s *gated) Workers(ctx context.Context, q store.WorkerQuery) ([]store.WorkerRow, error) {
	name := "workers"
	if q.Owned && q.Living { // the scheduler reads them at the same time as a claim
		name = "takers"
	}
	return through(ctx, s, name, func() ([]store.WorkerRow, error) {
		return s.Store.Workers(context.Background(), q)
	})
}

// Chunks implements store.Store.
func (s *gated) Chunks(ctx context.Context, q belay.ChunkQuery) ([]machine.Chunk, error) {
	return through(ctx, s, "chunks", func() ([]machine.Chunk, error) { return s.Store.Chunks(context.Background(), q) })
}

func through[T any](ctx context.Context, s *gated, op string, call func() (T, error)) (T, error) {
	var zero T
	told, err := s.hold(ctx, op)
	if err != nil {
		return zero, err
	}
	v, err := call()
	if err := told(err); err != nil {
		return zero, err
	}
	return v, nil
}

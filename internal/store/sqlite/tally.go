package sqlite

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

var tallyExecutions, tallyGates = table.TallyExecutions("?"), table.TallyGates("held = 1")

const (
	tallyLetters = "SELECT reason, count(*) FROM dead_letters WHERE resolution IS NULL GROUP BY reason"
)

// Tally implements store.Store.
func (s *Store) Tally(ctx context.Context) (store.Tally, error) {
	var t store.Tally
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		t = store.NewTally()
		c.args.int(int64(s.Now()))
		err := c.query(ctx, tallyExecutions, func(r columns) error {
			table.AddExecutions(&t, belay.State(r.int(0)), r.text(1), r.int(2), r.int(3), r.int(4))
			return nil
		})
		if err != nil {
			return err
		}
		err = c.query(ctx, tallyGates, func(r columns) error {
			t.Gates = append(t.Gates, store.GateLoad{Gate: belay.GateID(r.text(0)), Held: r.int(1), Waiting: r.int(2)})
			return nil
		})
		if err != nil {
			return err
		}
		err = c.query(ctx, tallyLetters, func(r columns) error {
			t.DeadLetters[r.text(0)] = r.int(1)
			return nil
		})
		if err != nil {
			return err
		}
		return c.query(ctx, tallySessions, func(r columns) error {
			t.Workers[belay.WorkerState(r.int(0))] = r.int(1)
			return nil
		})
	})
	t.Order()
	return t, classify("tally", err)
}

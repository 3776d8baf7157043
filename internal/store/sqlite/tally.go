package sqlite

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

const (
	tallyLetters = "SELECT reason, count(*) FROM dead_letters WHERE resolution IS NULL GROUP BY reason"
)

// Tally implements store.Store.
func (s *Store) Tally(ctx context.Context) (store.Tally, error) {
	t := store.NewTally()
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		err := c.query(ctx, table.TallyExecutions, func(r columns) error {
			if state := belay.State(r.int(0)); !state.Terminal() {
				t.Executions[state] += r.int(1)
			}
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
	return t, classify("tally", err)
}

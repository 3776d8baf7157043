package postgres

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

const (
	// Each of the two conditions alone would select the open dead letters. The statement names
	// both, because the partial index has both conditions and is used only then.
	tallyLetters = `
SELECT reason, count(*)
FROM dead_letters
WHERE resolution IS NULL AND resolved_at IS NULL
GROUP BY reason`
)

// Tally implements store.Store.
func (s *Store) Tally(ctx context.Context) (store.Tally, error) {
	var t store.Tally
	err := s.query(ctx, func(p *pipe) {
		t = store.NewTally()
		p.add(table.TallyExecutions, func(r columns) error {
			if state := belay.State(r.int(0)); !state.Terminal() {
				t.Executions[state] += r.int(1)
			}
			return nil
		})
		p.add(tallyLetters, func(r columns) error {
			t.DeadLetters[r.text(0)] = r.int(1)
			return nil
		})
		p.add(tallySessions, func(r columns) error {
			t.Workers[belay.WorkerState(r.int(0))] = r.int(1)
			return nil
		})
	})
	return t, classify("tally", err)
}

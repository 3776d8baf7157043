package postgres

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

var tallyExecutions, tallyGates = table.TallyExecutions("$1::bigint"), table.TallyGates("held")

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
		p.add(tallyExecutions, func(r columns) error {
			table.AddExecutions(&t, belay.State(r.int(0)), r.text(1), r.int(2), r.int(3), r.int(4))
			return nil
		}).int(int64(s.Now()))
		p.add(tallyGates, func(r columns) error {
			t.Gates = append(t.Gates, store.GateLoad{Gate: belay.GateID(r.text(0)), Held: r.int(1), Waiting: r.int(2)})
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
	t.Order()
	return t, classify("tally", err)
}

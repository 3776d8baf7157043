package engine

import (
	"context"
	"errors"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
)

// Tally is how much there is to do and who does it, for metrics.
type Tally struct {
	store.Tally
	// Overdue are executions whose time for something is over, or whose owner
	// is gone, and that nobody has seen to. While an engine runs there are
	// none but for moments. At most about overdueLimit are looked at.
	Overdue map[belay.State]int64
}

// overdueLimit is how many of what is overdue are looked at.
const overdueLimit = 200

// Tally counts what there is to do. It costs more the more that is, so it is not
// for every second.
func (r *Reader) Tally(ctx context.Context) (Tally, error) {
	t := Tally{Overdue: make(map[belay.State]int64)}
	var err error
	if t.Tally, err = r.store.Tally(ctx); err != nil {
		return t, err
	}
	err = r.overdue(ctx, &t)
	return t, err
}

func (r *Reader) overdue(ctx context.Context, t *Tally) error {
	due, err := r.store.Due(ctx, overdueLimit)
	if err != nil {
		return err
	}
	t.Overdue[belay.Running] += int64(len(due.Workers)) // sessions that nobody judges, each with what it owns
	ids := append([]belay.ExecutionID{}, due.Checks...)
	for i := range due.Lost {
		ids = append(ids, due.Lost[i].Execution)
	}
	for _, id := range append(ids, due.Children...) {
		rec, err := r.store.Read(ctx, store.Read{Execution: id})
		switch {
		case err == nil && !rec.Execution.State.Terminal():
			t.Overdue[rec.Execution.State]++
		case err != nil && !errors.Is(err, &belay.Error{Code: belay.CodeNotFound}):
			return err
		}
	}
	return nil
}

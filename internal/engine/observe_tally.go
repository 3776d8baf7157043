package engine

import (
	"context"
	"errors"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
)

// Tally counts the work and the workers, for metrics.
type Tally struct {
	store.Tally
	// Overdue counts executions that have exceeded a time limit, or whose owner's session has
	// ended, and that no engine has handled yet. While an engine runs, such executions exist only
	// for moments. Tally reads about overdueLimit of them at most.
	Overdue map[belay.State]int64
	// OldestDue is the longest time for which an execution has been due that workers may claim and
	// no worker has claimed; 0 if there is no such execution. See Reader.oldestDue.
	OldestDue time.Duration
}

// overdueLimit is the largest number of overdue executions that Tally reads of each kind.
const overdueLimit = 200

// Tally counts the work. Its cost grows with the amount of work, so it should not be called every
// second.
func (r *Reader) Tally(ctx context.Context) (Tally, error) {
	t := Tally{Overdue: make(map[belay.State]int64)}
	var err error
	if t.Tally, err = r.store.Tally(ctx); err != nil {
		return t, err
	}
	if err = r.overdue(ctx, &t); err != nil {
		return t, err
	}
	t.OldestDue, err = r.oldestDue(ctx)
	return t, err
}

func (r *Reader) overdue(ctx context.Context, t *Tally) error {
	due, err := r.store.Due(ctx, overdueLimit)
	if err != nil {
		return err
	}
	t.Overdue[belay.Running] += int64(len(due.Workers)) // expired sessions that no engine has ended yet
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

package engine

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// runsScanned is the largest number of runs that one call examines.
const runsScanned = 10_000

// ListRuns lists runs that have started, the run that started last first.
func (r *Reader) ListRuns(ctx context.Context, f belay.RunFilter) (belay.RunPage, error) {
	page := belay.RunPage{Runs: []belay.RunRecord{}}
	if err := machine.CheckRunFilter("list runs", f); err != nil {
		return page, err
	}
	since, until := machine.At(f.Since), machine.At(f.Until)
	if !f.Worker.IsZero() {
		opened, ended, err := r.session(ctx, f.Worker)
		if err != nil {
			return page, err
		}
		if since = max(since, opened); ended != 0 && (until == 0 || until > ended) {
			until = ended + 1
		}
	}
	found, err := r.store.Query(ctx, runQuery(f, since, until))
	if err != nil {
		return page, err
	}
	for _, row := range found.Runs {
		run := machine.RunView(row.Run, row.Workflow)
		run.InputsHash, run.ConfigHash = machine.ContentHashes(row.Content, row.InputGen, row.Generation)
		page.Runs = append(page.Runs, run)
	}
	page.Next = found.Next
	return page, nil
}

// session returns the times between which runs of a worker can have started, so that a list need not
// examine the runs of other times; 0 if the session has no such time, or if the store has no session
// with this id.
func (r *Reader) session(ctx context.Context, id belay.WorkerID) (opened, ended machine.Time, err error) {
	rows, err := r.store.Workers(ctx, store.WorkerQuery{IDs: []belay.WorkerID{id}})
	if err != nil || len(rows) == 0 {
		return 0, 0, err
	}
	return rows[0].OpenedAt, rows[0].EndedAt, nil
}

// runQuery converts a filter for the store.
func runQuery(f belay.RunFilter, since, until machine.Time) store.Query {
	q := store.Query{
		Of: store.Runs, After: f.Cursor, Limit: f.Limit, Runs: store.RunQuery{
			Before: until, Since: since, Scan: runsScanned,
		},
	}
	if f.Worker.IsZero() && f.Workflow == "" && f.Outcome == 0 && !f.Running {
		return q
	}
	q.Runs.Matches = func(r store.RunRow) bool {
		return (f.Worker.IsZero() || r.Worker == f.Worker) && (f.Workflow == "" || r.Workflow == f.Workflow) &&
			(f.Outcome == 0 || r.Outcome == f.Outcome) && (!f.Running || r.EndedSeq == 0)
	}
	return q
}

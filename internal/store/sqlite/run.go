package sqlite

import (
	"context"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

var listRuns = "SELECT " + table.RunHeads.Names() + `,
    (SELECT workflow FROM executions WHERE id = execution), (SELECT input_gen FROM executions WHERE id = execution),
    (SELECT key FROM specs s WHERE s.execution = runs.execution AND s.generation = 1 AND key LIKE 'content:%')
FROM runs
WHERE (started_at, execution, token) < (?, ?, ?) AND started_at >= ?
ORDER BY started_at DESC, execution DESC, token DESC
LIMIT ?`

// listRunsOf lists runs that have started, the run that started last first.
func (c *conn) listRunsOf(ctx context.Context, q store.Query, last machine.Run, f *store.Filling, rows int64) error {
	c.args.int(int64(last.StartedAt)).blob(last.Execution[:]).int(int64(last.Token)).int(int64(q.Runs.Since))
	c.args.int(q.Runs.Read(rows))
	return c.query(ctx, listRuns, func(r columns) error {
		run, err := table.Scan(table.RunHeads, r)
		if err != nil {
			return err
		}
		n := len(table.RunHeads.Columns)
		row := store.RunRow{Run: run, Workflow: r.text(n), InputGen: int(r.int(n + 1)), Content: r.text(n + 2)}
		if !f.Run(row, q.Runs) {
			return errFull
		}
		return nil
	})
}

package postgres

import (
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

// listRuns reads runs from both places in which the store keeps them: a run that has not ended may be only
// in the row of its execution (run_seq). There are at most as many of these as workers have slots.
var listRuns = `
SELECT r.*,
    (SELECT input_gen FROM executions WHERE id = r.execution),
    (SELECT key FROM specs s WHERE s.execution = r.execution AND s.generation = 1 AND key LIKE 'content:%')
FROM (
    (SELECT ` + table.RunHeads.Names() + `, (SELECT workflow FROM executions WHERE id = execution) AS workflow
    FROM runs
    WHERE (started_at, execution, token) < ($1::bigint, $2::uuid, $3::bigint) AND started_at >= $5::bigint
    ORDER BY started_at DESC, execution DESC, token DESC
    LIMIT $4::bigint)
    UNION ALL
    (SELECT id, token, worker, coalesce(attempts, 0) + 1, generation, NULL, NULL, run_seq, run_at, NULL, NULL, NULL, NULL, NULL,
           NULL, NULL, NULL, NULL, workflow
    FROM executions
    WHERE worker IS NOT NULL AND run_seq IS NOT NULL
      AND (run_at, id, token) < ($1::bigint, $2::uuid, $3::bigint) AND run_at >= $5::bigint
    ORDER BY run_at DESC, id DESC, token DESC
    LIMIT $4::bigint)
) r
ORDER BY started_at DESC, execution DESC, token DESC
LIMIT $4::bigint`

// listRunsOf lists runs that have started, the run that started last first.
func listRunsOf(p *pipe, q store.Query, last machine.Run, f *store.Filling, rows int64) {
	full := false
	p.add(listRuns, func(r columns) error {
		run, err := table.Scan(table.RunHeads, r)
		if err == nil && !full {
			n := len(table.RunHeads.Columns)
			full = !f.Run(store.RunRow{
				Run: run, Workflow: r.text(n), InputGen: int(r.int(n + 1)), Content: r.text(n + 2),
			}, q.Runs)
		}
		return err
	}).int(int64(last.StartedAt)).id(last.Execution).int(int64(last.Token)).int(q.Runs.Read(rows)).
		int(int64(q.Runs.Since))
}

package postgres

import (
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

const selectCreatedBy = "SELECT created_by FROM specs WHERE execution = $1::uuid AND generation = 1"

// The last column of each sum says whether there are more rows than the statement reads.
var (
	newestAct = fmt.Sprintf(`
SELECT %s
FROM (SELECT * FROM actions WHERE execution = $1::uuid ORDER BY seq DESC LIMIT %d) a
WHERE actor IS DISTINCT FROM '%s'
ORDER BY seq DESC
LIMIT 1`, table.Deeds.Names(), store.ActsRead, machine.System)

	// The first run may be older than the newest runs, which sumRuns counts.
	firstRun = fmt.Sprintf(`
SELECT min(started_at)
FROM (SELECT started_at FROM runs WHERE execution = $1::uuid ORDER BY token LIMIT %d) r`, belay.MaxMeasured)

	sumRuns = fmt.Sprintf(`
SELECT outcome, count(*), coalesce(sum(greatest(ended_at - started_at, 0)), 0)::bigint,
    EXISTS (SELECT 1 FROM runs WHERE execution = $1::uuid OFFSET %[1]d)
FROM (SELECT outcome, started_at, ended_at FROM runs WHERE execution = $1::uuid ORDER BY token DESC LIMIT %[1]d) r
WHERE started_at IS NOT NULL
GROUP BY outcome`, belay.MaxMeasured)

	countSteps = fmt.Sprintf(`
WITH b AS (SELECT coalesce(base_seq, 0) AS base FROM executions WHERE id = $1::uuid)
SELECT count(DISTINCT key) FILTER (WHERE kind = %[2]d AND pruned IS NULL),
    EXISTS (SELECT 1 FROM checkpoints WHERE execution = $1::uuid AND seq > (SELECT base FROM b) OFFSET %[1]d)
FROM (
    SELECT kind, key, pruned
    FROM checkpoints
    WHERE execution = $1::uuid AND seq > (SELECT base FROM b)
    ORDER BY seq DESC
    LIMIT %[1]d
) k`, belay.MaxMeasured, belay.KindStep)

	sumChildren = fmt.Sprintf(`
SELECT state, count(*), coalesce(sum(cost), 0)::bigint, coalesce(sum(cost_rest), 0)::bigint,
    EXISTS (SELECT 1 FROM executions WHERE parent = $1::uuid OFFSET %[1]d)
FROM (SELECT state, cost, cost_rest FROM executions WHERE parent = $1::uuid ORDER BY id DESC LIMIT %[1]d) c
GROUP BY state`, belay.MaxMeasured)

	// sumChildRuns reads the runs of these children, up to a limit of its own. OFFSET 0 makes PostgreSQL look up
	// the runs of each child by their index, and not read the whole table.
	sumChildRuns = fmt.Sprintf(`
SELECT count(ended_at), coalesce(sum(greatest(ended_at - started_at, 0)), 0)::bigint, count(*) > %[1]d
FROM (
    SELECT r.started_at, r.ended_at
    FROM (SELECT id FROM executions WHERE parent = $1::uuid ORDER BY id DESC LIMIT %[1]d) c
    CROSS JOIN LATERAL (
        SELECT started_at, ended_at FROM runs WHERE execution = c.id AND started_at IS NOT NULL OFFSET 0
    ) r
    LIMIT %[1]d + 1
) r`, belay.MaxMeasured)
)

// detail reads the newest action of a person or program, and computes the measures. Each of its statements
// finds its rows by an index and reads a limited number of them.
func (r reading) detail() {
	m := &machine.Measures{Runs: make(map[belay.Outcome]int), Children: make(map[belay.State]int)}
	r.rec.Measures = m
	ask := func(text string, row func(columns)) {
		r.add(text, func(c columns) error {
			row(c)
			m.Truncated = m.Truncated || c.bool(len(c)-1)
			return nil
		}).id(r.q.Execution)
	}
	r.add(newestAct, func(c columns) (err error) {
		r.rec.Act, err = table.Scan(table.Deeds, c)
		return err
	}).id(r.q.Execution)
	r.add(firstRun, func(c columns) error {
		if at := c.time(0); at != 0 {
			m.FirstRun = at
		}
		return nil
	}).id(r.q.Execution)
	ask(sumRuns, func(c columns) {
		m.Runs[belay.Outcome(c.int(0))] += int(c.int(1))
		m.Running += micros(c.int(2))
	})
	ask(countSteps, func(c columns) { m.Steps = int(c.int(0)) })
	ask(sumChildren, func(c columns) {
		m.Children[belay.State(c.int(0))] = int(c.int(1))
		m.ChildCost = m.ChildCost.Add(belay.CostOf(c.int(2))).Add(belay.Cost(c.int(3)))
	})
	ask(sumChildRuns, func(c columns) { m.ChildRuns, m.ChildRunning = int(c.int(0)), micros(c.int(1)) })
}

// countOpen counts the present run of the execution, for which the table of runs has no row.
func (r reading) countOpen(run *machine.Run) {
	r.rec.Measures.FirstRun = run.StartedAt
	r.rec.Measures.Runs[0]++
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

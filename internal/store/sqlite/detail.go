package sqlite

import (
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

const selectCreatedBy = "SELECT created_by FROM specs WHERE execution = ? AND generation = 1"

// The last column of each sum says whether there are more rows than the statement reads.
var (
	newestAct = fmt.Sprintf(`
SELECT %s
FROM (SELECT * FROM actions WHERE execution = ? ORDER BY seq DESC LIMIT %d)
WHERE actor IS NOT '%s'
ORDER BY seq DESC
LIMIT 1`, table.Deeds.Names(), store.ActsRead, machine.System)

	// The first run may be older than the newest runs, which sumRuns counts.
	firstRun = fmt.Sprintf(`
SELECT min(started_at)
FROM (SELECT started_at FROM runs WHERE execution = ? ORDER BY token LIMIT %d)`, belay.MaxMeasured)

	sumRuns = fmt.Sprintf(`
SELECT outcome, count(*), coalesce(sum(max(ended_at - started_at, 0)), 0),
    EXISTS (SELECT 1 FROM runs WHERE execution = ?1 LIMIT 1 OFFSET %[1]d)
FROM (SELECT outcome, started_at, ended_at FROM runs WHERE execution = ?1 ORDER BY token DESC LIMIT %[1]d)
WHERE started_at IS NOT NULL
GROUP BY outcome`, belay.MaxMeasured)

	countSteps = fmt.Sprintf(`
SELECT count(DISTINCT CASE WHEN kind = %[2]d AND pruned = 0 THEN key END),
    EXISTS (SELECT 1 FROM checkpoints WHERE execution = ?1 AND seq > ?2 LIMIT 1 OFFSET %[1]d)
FROM (SELECT kind, key, pruned FROM checkpoints WHERE execution = ?1 AND seq > ?2 ORDER BY seq DESC LIMIT %[1]d)`,
		belay.MaxMeasured, belay.KindStep)

	sumChildren = fmt.Sprintf(`
SELECT state, count(*), sum(cost), sum(cost_rest),
    EXISTS (SELECT 1 FROM executions WHERE parent = ?1 LIMIT 1 OFFSET %[1]d)
FROM (SELECT state, cost, cost_rest FROM executions WHERE parent = ?1 ORDER BY id DESC LIMIT %[1]d)
GROUP BY state`, belay.MaxMeasured)

	// sumChildRuns reads the runs of these children, up to a limit of its own.
	sumChildRuns = fmt.Sprintf(`
SELECT count(ended_at), coalesce(sum(max(ended_at - started_at, 0)), 0), count(*) > %[1]d
FROM (
    SELECT r.started_at, r.ended_at
    FROM (SELECT id FROM executions WHERE parent = ?1 ORDER BY id DESC LIMIT %[1]d) AS c
    CROSS JOIN runs r ON r.execution = c.id
    WHERE r.started_at IS NOT NULL
    LIMIT %[1]d + 1
)`, belay.MaxMeasured)
)

// detail reads the newest action of a person or program, and computes the measures. Each of its statements
// finds its rows by an index and reads a limited number of them.
func (r *reading) detail(rec *machine.Record) error {
	m := &machine.Measures{Runs: make(map[belay.Outcome]int), Children: make(map[belay.State]int)}
	rec.Measures = m
	more := func(row columns, i int) { m.Truncated = m.Truncated || row.int(i) != 0 }
	var acts []*machine.Deed
	err := firstOf(
		r.query(newestAct, nil, into(table.Deeds, &acts)),
		r.query(firstRun, nil, func(row columns) error {
			m.FirstRun = machine.Time(row.int(0))
			return nil
		}),
		r.query(sumRuns, nil, func(row columns) error {
			m.Runs[belay.Outcome(row.int(0))] = int(row.int(1))
			m.Running += micros(row.int(2))
			more(row, 3)
			return nil
		}),
		r.query(countSteps, []int64{rec.Execution.BaseSeq}, func(row columns) error {
			m.Steps = int(row.int(0))
			more(row, 1)
			return nil
		}),
		r.query(sumChildren, nil, func(row columns) error {
			m.Children[belay.State(row.int(0))] = int(row.int(1))
			m.ChildCost = m.ChildCost.Add(belay.CostOf(row.int(2))).Add(belay.Cost(row.int(3)))
			more(row, 4)
			return nil
		}),
	)
	if len(acts) > 0 {
		rec.Act = acts[0]
	}
	if err != nil || len(m.Children) == 0 {
		return err
	}
	return r.query(sumChildRuns, nil, func(row columns) error {
		m.ChildRuns, m.ChildRunning = int(row.int(0)), micros(row.int(1))
		more(row, 2)
		return nil
	})
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

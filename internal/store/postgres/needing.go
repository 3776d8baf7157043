package postgres

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// There is an index of only those executions that wait for a worker and fail if there is none.
const (
	needing = `ready_at IS NOT NULL AND position('"on_no_worker":"fail"' IN policy) > 0`

	// This query skips through the index from one lane (a group of executions) to the next.
	selectNeedingLanes = `
WITH RECURSIVE lanes (id, at) AS (
    (SELECT lane, ready_at FROM executions WHERE ` + needing + ` ORDER BY lane, ready_at LIMIT 1)
    UNION ALL
    SELECT n.lane, n.ready_at
    FROM lanes
    CROSS JOIN LATERAL (
        SELECT lane, ready_at FROM executions WHERE ` + needing + ` AND lane > lanes.id ORDER BY lane, ready_at LIMIT 1
    ) n
)
SELECT id, at
FROM lanes
LIMIT $1::bigint`

	selectNeeding = `
SELECT id, seq FROM executions
WHERE ` + needing + ` AND lane = $1::bigint AND ready_at <= $2::bigint
ORDER BY ready_at, id
LIMIT $3::bigint`
)

func listNeedingLanes(p *pipe, f *store.Filling, limit int64) {
	p.add(selectNeedingLanes, func(r columns) error {
		f.Lanes = append(f.Lanes, store.LaneHint{Lane: machine.LaneID(r.int(0)), At: r.time(1)})
		return nil
	}).int(limit)
}

func listNeeding(p *pipe, q store.Query, f *store.Filling, now machine.Time, limit int64) {
	p.add(selectNeeding, func(r columns) error {
		f.Needing = append(f.Needing, machine.NoWorker{Execution: belay.ExecutionID(r.id(0)), Seq: r.int(1)})
		return nil
	}).int(int64(q.Lane)).int(int64(now)).int(limit)
}

package sqlite

import (
	"context"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// There is an index of only those executions that wait for a worker and fail if there is none.
const (
	needing = `ready_at IS NOT NULL AND instr(policy, '"on_no_worker":"fail"') > 0`

	// This query skips through the index from one lane (a group of executions) to the next.
	selectNeedingLanes = `
WITH RECURSIVE lanes (id) AS (
    SELECT min(lane) FROM executions INDEXED BY executions_needing WHERE ` + needing + `
    UNION ALL
    SELECT (SELECT min(lane) FROM executions INDEXED BY executions_needing WHERE ` + needing + ` AND lane > lanes.id)
    FROM lanes
    WHERE lanes.id IS NOT NULL
)
SELECT id, (SELECT min(ready_at) FROM executions INDEXED BY executions_needing WHERE ` + needing + ` AND lane = lanes.id)
FROM lanes
WHERE id IS NOT NULL
LIMIT ?`

	selectNeeding = `
SELECT id, seq FROM executions INDEXED BY executions_needing
WHERE ` + needing + ` AND lane = ? AND ready_at <= ?
ORDER BY ready_at, id
LIMIT ?`
)

func (c *conn) listNeeding(
	ctx context.Context, q store.Query, f *store.Filling, now machine.Time, limit int64,
) error {
	if q.Of == store.NeedingLanes {
		c.args.int(limit)
		return c.query(ctx, selectNeedingLanes, func(r columns) error {
			f.Lanes = append(f.Lanes, store.LaneHint{Lane: machine.LaneID(r.int(0)), At: machine.Time(r.int(1))})
			return nil
		})
	}
	c.args.int(int64(q.Lane)).int(int64(now)).int(limit)
	return c.query(ctx, selectNeeding, func(r columns) error {
		f.Needing = append(f.Needing, machine.NoWorker{Execution: r.id(0), Seq: r.int(1)})
		return nil
	})
}

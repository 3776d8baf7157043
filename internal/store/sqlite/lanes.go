package sqlite

import (
	"cmp"
	"context"
	"slices"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

// A lane (the executions with equal queue, workflow, version, priority and labels) exists while it
// has a ready execution. It has no row, so nothing must be deleted when it is not used any more.
const (
	// This query skips through the index from one ready lane (a group of executions) to the next.
	readyLanes = `
WITH RECURSIVE lanes (id) AS (
    SELECT min(lane) FROM executions WHERE ready_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(lane) FROM executions WHERE ready_at IS NOT NULL AND lane > lanes.id) FROM lanes WHERE lanes.id IS NOT NULL
)`

	selectReadyLanes = readyLanes + `
SELECT id, (SELECT min(ready_at) FROM executions WHERE lane = lanes.id AND ready_at IS NOT NULL)
FROM lanes
WHERE id IS NOT NULL`

	// The condition on admit_by skips only executions that gates have let through in the last
	// seconds, so the statement reads few rows in vain.
	selectDueLanes = readyLanes + `
SELECT e.lane, e.ready_at, e.id
FROM lanes
JOIN executions e ON e.id = (
    SELECT id FROM executions
    WHERE lane = lanes.id AND ready_at IS NOT NULL AND ready_at <= ? AND admit_by IS NULL
    ORDER BY ready_at, id
    LIMIT 1
)
ORDER BY e.ready_at, e.lane
LIMIT ?`

	// This query reads a lane's queue, workflow, version, priority and labels from a ready
	// execution of the lane.
	selectLane = `
SELECT e.queue, e.workflow, e.version, s.priority, s.worker_labels
FROM executions e
JOIN specs s ON s.execution = e.id
WHERE e.lane = ? AND e.ready_at IS NOT NULL
ORDER BY e.ready_at
LIMIT 1`
)

// ReadyLanes implements store.Store.
func (s *Store) ReadyLanes(ctx context.Context) ([]store.LaneHint, error) {
	var all []store.LaneHint
	err := s.read(store.Urgent(ctx), func(ctx context.Context, c *conn) error {
		all = nil
		return c.query(ctx, selectReadyLanes, func(r columns) error {
			all = append(all, store.LaneHint{Lane: machine.LaneID(r.int(0)), At: machine.Time(r.int(1))})
			return nil
		})
	})
	return all, classify("lanes", err)
}

func (c *conn) listDueLanes(ctx context.Context, f *store.Filling, now machine.Time, limit int64) error {
	c.args.int(int64(now)).int(limit)
	return c.query(ctx, selectDueLanes, func(r columns) error {
		f.Heads = append(f.Heads, store.LaneHead{
			Lane: machine.LaneID(r.int(0)), At: machine.Time(r.int(1)), Execution: r.id(2),
		})
		return nil
	})
}

// Lanes implements store.Store.
func (s *Store) Lanes(ctx context.Context, ids []machine.LaneID) ([]machine.Lane, error) {
	var all []machine.Lane
	err := s.read(store.Urgent(ctx), func(ctx context.Context, c *conn) error {
		all = nil
		for _, id := range unique(ids) {
			c.args.int(int64(id))
			err := c.query(ctx, selectLane, func(r columns) error {
				labels, err := table.ParseLabels(r.text(4))
				all = append(all, machine.Lane{
					ID: id, Queue: r.text(0), Workflow: r.text(1), Version: r.text(2), Priority: int(r.int(3)),
					Labels: labels,
				})
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b machine.Lane) int { return cmp.Compare(a.ID, b.ID) })
	return all, classify("lanes", err)
}

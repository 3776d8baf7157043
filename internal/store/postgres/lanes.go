package postgres

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

// A lane (the executions with equal queue, workflow, version, priority and labels) exists while it
// has a ready execution. These properties are read from such an execution.
const (
	// This query skips through the index from one ready lane (a group of executions) to the next.
	readyLanes = `
WITH RECURSIVE lanes (id, at) AS (
    (SELECT lane, ready_at FROM executions WHERE ready_at IS NOT NULL ORDER BY lane, ready_at LIMIT 1)
    UNION ALL
    SELECT n.lane, n.ready_at
    FROM lanes
    CROSS JOIN LATERAL (
        SELECT lane, ready_at FROM executions WHERE ready_at IS NOT NULL AND lane > lanes.id ORDER BY lane, ready_at LIMIT 1
    ) n
)`

	selectReadyLanes = readyLanes + `
SELECT id, at
FROM lanes`

	// The condition on admit_by skips only executions that gates have let through in the last
	// seconds, so the statement reads few rows in vain.
	selectDueLanes = readyLanes + `
SELECT lanes.id, e.ready_at, e.id
FROM lanes
CROSS JOIN LATERAL (
    SELECT ready_at, id FROM executions
    WHERE lane = lanes.id AND ready_at IS NOT NULL AND ready_at <= $1::bigint AND admit_by IS NULL
    ORDER BY ready_at, id
    LIMIT 1
) e
WHERE lanes.at <= $1::bigint
ORDER BY e.ready_at, lanes.id
LIMIT $2::bigint`

	selectLanes = `
SELECT u.id, e.queue, e.workflow, e.version, s.priority, s.worker_labels
FROM (SELECT unnest($1::bigint[]) AS id) u
CROSS JOIN LATERAL (
    SELECT id, queue, workflow, version FROM executions WHERE lane = u.id AND ready_at IS NOT NULL ORDER BY ready_at, id LIMIT 1
) e
CROSS JOIN LATERAL (SELECT priority, worker_labels FROM specs WHERE execution = e.id ORDER BY generation DESC LIMIT 1) s`
)

// laneCache keeps the last list of ready lanes (groups of executions that the same workers may
// claim), which the store reuses for a while if the query for the list was slow. The query is slow
// while another transaction keeps an old snapshot, because dead entries of earlier claims then stay
// in the index.
type laneCache struct {
	mu    sync.Mutex
	lanes []store.LaneHint
	again time.Time
}

// After a slow search of a whole index, the store waits before it makes the next such search:
// laneCacheShare times the duration of the slow search if it searched for ready lanes, belowShare
// times this duration if it searched for due work, but at most longestPause.
const (
	laneCacheShare = 20
	longestPause   = 30 * time.Second
)

// ReadyLanes implements store.Store.
func (s *Store) ReadyLanes(ctx context.Context) ([]store.LaneHint, error) {
	s.laneCache.mu.Lock()
	defer s.laneCache.mu.Unlock()
	began := time.Now()
	if began.Before(s.laneCache.again) {
		return slices.Clone(s.laneCache.lanes), nil
	}
	var all []store.LaneHint
	err := s.query(store.Urgent(ctx), func(p *pipe) {
		all, began = nil, time.Now() // began counts from here, so that it does not include the time to connect
		p.add(selectReadyLanes, func(r columns) error {
			all = append(all, store.LaneHint{Lane: machine.LaneID(r.int(0)), At: r.time(1)})
			return nil
		})
	})
	if took := time.Since(began); err == nil && took > s.options.LongLook {
		s.laneCache.again = began.Add(min(laneCacheShare*took, longestPause))
		s.laneCache.lanes = slices.Clone(all)
	}
	return all, classify("lanes", err)
}

func listDueLanes(p *pipe, f *store.Filling, now machine.Time, limit int64) {
	p.add(selectDueLanes, func(r columns) error {
		f.Heads = append(f.Heads, store.LaneHead{
			Lane: machine.LaneID(r.int(0)), At: r.time(1), Execution: belay.ExecutionID(r.id(2)),
		})
		return nil
	}).int(int64(now)).int(limit)
}

// Lanes implements store.Store.
func (s *Store) Lanes(ctx context.Context, ids []machine.LaneID) ([]machine.Lane, error) {
	var all []machine.Lane
	ids = unique(ids)
	err := s.query(store.Urgent(ctx), func(p *pipe) {
		all = nil
		ints(p.add(selectLanes, func(r columns) error {
			labels, err := table.ParseLabels(r.text(5))
			all = append(all, machine.Lane{
				ID: machine.LaneID(r.int(0)), Queue: r.text(1), Workflow: r.text(2), Version: r.text(3),
				Priority: int(r.int(4)), Labels: labels,
			})
			return err
		}), int8s, ids, func(id machine.LaneID) int64 { return int64(id) })
	})
	slices.SortFunc(all, func(a, b machine.Lane) int { return cmp.Compare(a.ID, b.ID) })
	return all, classify("lanes", err)
}

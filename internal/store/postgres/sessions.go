package postgres

import (
	"context"
	"math"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

// Sessions that have not ended are found by an index that contains only such sessions, and sorted
// by their ids. Ended sessions are found by reading the primary key only as far as the list needs.
// So neither statement reads or sorts sessions that ended long ago.
var (
	isOnHost = "($2::text = '' OR spec::json #>> '{process,host}' = $2::text)"

	selectLivingSessions = "SELECT " + table.WorkerColumns + `
FROM (
    SELECT l.id AS wanted
    FROM (SELECT id FROM workers WHERE ended_at IS NULL AND ` + isOnHost + ` OFFSET 0) l
    ORDER BY l.id DESC
    LIMIT $1::bigint
) l
JOIN workers w ON w.id = l.wanted
ORDER BY l.wanted DESC`

	selectEndedSessions = selectWorkers + `
WHERE ended_at IS NOT NULL AND ` + isOnHost + `
ORDER BY id DESC
LIMIT $1::bigint`

	selectNamedSessions = selectWorkers + " WHERE id = ANY($1::uuid[])"

	countOwned = `
SELECT u.id, (SELECT count(*) FROM executions WHERE worker = u.id)
FROM (SELECT unnest($1::uuid[]) AS id) u`

	// The spec of a worker has no field external; that of a lock has it.
	tallySessions = `
SELECT state, count(*)
FROM workers
WHERE ended_at IS NULL AND spec::json ->> 'external' IS NULL
GROUP BY state`
)

// Workers implements store.Store.
func (s *Store) Workers(ctx context.Context, q store.WorkerQuery) ([]store.WorkerRow, error) {
	limit := int64(q.Limit)
	if limit <= 0 || q.IDs != nil {
		limit = math.MaxInt32
	}
	var out []store.WorkerRow
	row := func(r columns) error {
		c := &conn{} // a new conn has an empty cache of specs, because callers may keep and change a spec
		x, err := c.scanWorker(r)
		if err == nil && len(out) < int(limit) {
			out = append(out, store.WorkerRow{Worker: x})
		}
		return err
	}
	err := s.query(ctx, func(p *pipe) {
		out = nil
		if q.IDs != nil {
			idList(p.add(selectNamedSessions, row), unique(q.IDs))
			return
		}
		p.add(selectLivingSessions, row).int(limit).string(q.Host)
		if !q.Living {
			p.add(selectEndedSessions, row).int(limit).string(q.Host)
		}
	})
	if q.IDs != nil {
		out = q.Of(out)
	}
	if err == nil && q.Owned && len(out) > 0 {
		err = s.countOwned(ctx, out)
	}
	if err == nil && q.Current && len(out) > 0 {
		err = s.readCurrent(ctx, out)
	}
	return out, classify("workers", err)
}

// readCurrent adds to sessions their current steps.
func (s *Store) readCurrent(ctx context.Context, rows []store.WorkerRow) error {
	return s.query(ctx, func(p *pipe) {
		idList(p.add(selectCurrent, func(r columns) error {
			for _, x := range rows {
				if x.ID == r.id(0) {
					x.Current = r.text(1)
				}
			}
			return nil
		}), rowsOf(rows, func(r store.WorkerRow) belay.WorkerID { return r.ID }))
	})
}

// countOwned adds to sessions the number of executions they own.
func (s *Store) countOwned(ctx context.Context, rows []store.WorkerRow) error {
	owned := make(map[belay.WorkerID]int, len(rows))
	err := s.query(ctx, func(p *pipe) {
		idList(p.add(countOwned, func(r columns) error {
			owned[r.id(0)] = int(r.int(1))
			return nil
		}), rowsOf(rows, func(r store.WorkerRow) belay.WorkerID { return r.ID }))
	})
	for i := range rows {
		rows[i].Running = owned[rows[i].ID]
	}
	return err
}

package sqlite

import (
	"context"
	"math"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

// Sessions that have not ended are found by an index that contains only such sessions, and sorted
// by their ids. Ended sessions are found by reading the primary key only as far as the list needs.
// So neither statement reads or sorts sessions that ended long ago.
var (
	isOnHost = "(? = '' OR spec ->> '$.process.host' = ?)"

	selectLivingSessions = selectWorkers + `
WHERE id IN (
    SELECT id
    FROM workers INDEXED BY workers_living
    WHERE ended_at IS NULL AND ` + isOnHost + `
    ORDER BY id DESC
    LIMIT ?
)
ORDER BY id DESC`

	selectEndedSessions = selectWorkers + " WHERE ended_at IS NOT NULL AND " + isOnHost + " ORDER BY id DESC LIMIT ?"

	// The spec of a worker has no field external; that of a lock has it.
	tallySessions = `
SELECT state, count(*)
FROM workers INDEXED BY workers_living
WHERE ended_at IS NULL AND spec ->> '$.external' IS NULL
GROUP BY state`
)

// Workers implements store.Store.
func (s *Store) Workers(ctx context.Context, q store.WorkerQuery) ([]store.WorkerRow, error) {
	limit := q.Limit
	if limit <= 0 || q.IDs != nil {
		limit = math.MaxInt32
	}
	var out []store.WorkerRow
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		out = nil
		row := func(r columns) error {
			// an empty cache, because callers may keep and change a spec
			x, err := scanWorker(r, new(table.Parsed[belay.WorkerSpec]))
			if err == nil && len(out) < limit {
				out = append(out, store.WorkerRow{Worker: x})
			}
			return err
		}
		list := func(text string) error {
			c.args.text(q.Host).text(q.Host).int(int64(limit))
			return c.query(ctx, text, row)
		}
		var err error
		switch {
		case q.IDs != nil:
			err = some(ctx, c, selectWorkers+" WHERE id IN ", unique(q.IDs), row)
			out = q.Of(out)
		case q.Living:
			err = list(selectLivingSessions)
		default:
			err = firstOf(list(selectLivingSessions), list(selectEndedSessions))
		}
		for i := 0; i < len(out) && err == nil && q.Owned; i++ {
			c.args.blob(out[i].ID[:])
			err = c.query(ctx, "SELECT count(*) FROM executions WHERE worker = ?", func(r columns) error {
				out[i].Running = int(r.int(0))
				return nil
			})
		}
		if err == nil && q.Current {
			rows, ids := make([]*machine.Worker, len(out)), make([]belay.WorkerID, len(out))
			for i := range out {
				rows[i], ids[i] = out[i].Worker, out[i].ID
			}
			err = readCurrent(ctx, c, rows, ids)
		}
		return err
	})
	return out, classify("workers", err)
}

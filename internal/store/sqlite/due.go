package sqlite

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// The queries of Due. Each reads an index that contains little more than the rows that the query
// selects.
const (
	selectExpired = "SELECT id FROM workers WHERE ended_at IS NULL AND expires_at <= ? ORDER BY expires_at, id LIMIT ?"
	selectLiving  = "SELECT min(expires_at) FILTER (WHERE expires_at > ?), min(ttl) FROM workers WHERE ended_at IS NULL"
	selectChecks  = "SELECT id FROM executions WHERE check_at <= ? ORDER BY check_at, id LIMIT ?"
	selectCheck   = "SELECT min(check_at) FROM executions WHERE check_at > ?"

	// The query skips through the index from one owner to the next, so that it does not read the
	// executions of workers that are alive.
	selectLost = `
WITH RECURSIVE owners (id) AS (
    SELECT min(worker) FROM executions WHERE worker IS NOT NULL
    UNION ALL
    SELECT (SELECT min(worker) FROM executions WHERE worker > owners.id) FROM owners WHERE owners.id IS NOT NULL
)
SELECT e.id, e.token, e.worker, e.losses, e.run_at
FROM owners
LEFT JOIN workers w ON w.id = owners.id
CROSS JOIN executions e ON e.worker = owners.id
WHERE w.id IS NULL OR w.ended_at IS NOT NULL
ORDER BY e.worker, e.id
LIMIT ?`

	parting = "p.generation * 4 + (p.cancel_by IS NOT NULL) * 2 + (p.state >= 6)"

	// For a parent without a child to cancel, the child is NULL.
	selectChildren = `
SELECT p.id, ` + parting + `, c.id
FROM (
    SELECT id
    FROM executions p INDEXED BY executions_parting
    WHERE p.open_children > 0 AND (p.state >= 6 OR p.cancel_by IS NOT NULL OR p.generation > 1) AND p.parted <> ` + parting + `
    ORDER BY p.id
    LIMIT ?
) q
CROSS JOIN executions p ON p.id = q.id
LEFT JOIN executions c ON c.parent = p.id
    AND (p.state >= 6 OR p.cancel_by IS NOT NULL OR p.generation > c.parent_gen)
    AND c.state < 6 AND c.cancel_by IS NULL
    AND (c.policy IS NULL OR c.policy ->> '$.abandon' IS NOT 1)
ORDER BY p.id, c.id
LIMIT ?`

	// The query skips through the index from one root to the next, so that it does not read the
	// descendants of roots whose budget is still spent.
	selectUnspent = `
WITH RECURSIVE roots (id) AS (
    SELECT min(spent_by) FROM executions WHERE spent_by IS NOT NULL AND parent IS NOT NULL
    UNION ALL
    SELECT (SELECT min(spent_by) FROM executions WHERE spent_by > roots.id AND parent IS NOT NULL)
    FROM roots WHERE roots.id IS NOT NULL
)
SELECT e.id
FROM roots
LEFT JOIN executions r ON r.id = roots.id
CROSS JOIN executions e ON e.spent_by = roots.id AND e.parent IS NOT NULL
WHERE r.id IS NULL OR r.state >= 6 OR r.budget = 0 OR r.cost * 10000 + r.cost_rest < r.budget
LIMIT ?`
)

// Due implements store.Store.
func (s *Store) Due(ctx context.Context, limit int) (store.Due, error) {
	var due store.Due
	err := s.read(store.Urgent(ctx), func(ctx context.Context, c *conn) error {
		d := dueQuery{conn: c, ctx: ctx, now: int64(s.Now()), limit: int64(limit)}
		if limit <= 0 {
			d.limit = math.MaxInt64
		}
		return firstOf(d.workers(&due), d.checks(&due), d.owned(&due), d.objects(&due))
	})
	return due, classify("due", err)
}

// dueQuery reads what is due.
type dueQuery struct {
	*conn
	ctx        context.Context
	now, limit int64
}

func (d *dueQuery) workers(due *store.Due) error {
	d.args.int(d.now).int(d.limit)
	err := d.query(d.ctx, selectExpired, idsInto(&due.Workers))
	if err != nil {
		return err
	}
	d.args.int(d.now)
	return d.query(d.ctx, selectLiving, func(r columns) error {
		due.NextWorker, due.MinTTL = machine.Time(r.int(0)), time.Duration(r.int(1))*time.Microsecond
		return nil
	})
}

func (d *dueQuery) checks(due *store.Due) error {
	d.args.int(d.now).int(d.limit)
	err := d.query(d.ctx, selectChecks, idsInto(&due.Checks))
	if err != nil {
		return err
	}
	d.args.int(d.now)
	return d.query(d.ctx, selectCheck, func(r columns) error {
		due.NextCheck = machine.Time(r.int(0))
		return nil
	})
}

// owned finds executions that ended sessions have left, descendants of roots whose budget is not spent any
// more, and children of parents that have ended or were cancelled.
func (d *dueQuery) owned(due *store.Due) error {
	d.args.int(d.limit)
	err := d.query(d.ctx, selectLost, func(r columns) error {
		due.Lost = append(due.Lost, store.Lost{
			Lose:   machine.Lose{Execution: r.id(0), Token: belay.Token(r.int(1)), Worker: r.id(2)},
			Losses: int(r.int(3)), RunAt: machine.Time(r.int(4)),
		})
		return nil
	})
	if err != nil {
		return err
	}
	d.args.int(d.limit)
	if err := d.query(d.ctx, selectUnspent, idsInto(&due.Unspent)); err != nil {
		return err
	}
	d.args.int(d.limit).int(d.limit)
	return d.query(d.ctx, selectChildren, func(r columns) error {
		if child := r.id(2); child != (belay.ExecutionID{}) {
			due.Children = append(due.Children, child)
		} else {
			due.Parted = append(due.Parted, machine.Part{Execution: r.id(0), Parting: r.int(1)})
		}
		return nil
	})
}

// Counts implements store.Store.
func (s *Store) Counts(ctx context.Context) (store.Counts, error) {
	counts := store.Counts{Executions: make(map[belay.State]int64)}
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		err := c.query(ctx, "SELECT state, count(*) FROM executions GROUP BY state", func(r columns) error {
			counts.Executions[belay.State(r.int(0))] = r.int(1)
			return nil
		})
		for _, q := range []struct {
			from string
			n    *int64
		}{
			{"runs", &counts.Runs}, {"checkpoints", &counts.Checkpoints},
			{"dead_letters WHERE resolution IS NULL", &counts.DeadLetters}, {"workers WHERE ended_at IS NULL",
				&counts.Sessions},
		} {
			if err != nil {
				return fmt.Errorf("count %s: %w", q.from, err)
			}
			err = c.query(ctx, "SELECT count(*) FROM "+q.from, number(q.n))
		}
		return err
	})
	return counts, classify("counts", err)
}

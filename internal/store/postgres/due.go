package postgres

import (
	"context"
	"math"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// The queries of Due. Each reads an index that contains little more than the rows that the query
// selects.
const (
	selectExpired = "SELECT id FROM workers WHERE ended_at IS NULL AND expires_at >= $3::bigint AND expires_at <= " +
		"$1::bigint ORDER BY expires_at, id LIMIT $2::bigint"
	selectLiving = "SELECT min(expires_at) FILTER (WHERE expires_at > $1::bigint), min(ttl), min(expires_at) " +
		"FROM workers WHERE ended_at IS NULL AND expires_at >= $2::bigint"
	selectChecks = "SELECT id, check_at FROM executions WHERE check_at >= $3::bigint AND check_at <= $1::bigint " +
		"ORDER BY check_at, id LIMIT $2::bigint"
	selectCheck = "SELECT check_at FROM executions WHERE check_at > $1::bigint AND check_at >= $2::bigint ORDER " +
		"BY check_at LIMIT 1"

	// selectLeft selects the executions of sessions that ended after $2.
	selectLeft = `
SELECT e.id, e.token, e.worker, e.losses, e.run_at, w.ended_at
FROM (SELECT id, ended_at FROM workers WHERE ended_at IS NOT NULL AND ended_at >= $2::bigint ORDER BY ended_at, id) w
CROSS JOIN LATERAL (SELECT id, token, worker, losses, run_at FROM executions WHERE worker = w.id ORDER BY id LIMIT $1::bigint) e
ORDER BY e.worker, e.id
LIMIT $1::bigint`

	// The query skips through the index from one owner to the next, so that it does not read the
	// executions of workers that are alive.
	selectLost = `
WITH RECURSIVE owners (id) AS (
    (SELECT worker FROM executions WHERE worker IS NOT NULL ORDER BY worker LIMIT 1)
    UNION ALL
    SELECT (SELECT worker FROM executions WHERE worker > owners.id ORDER BY worker LIMIT 1) FROM owners WHERE owners.id IS NOT NULL
)
SELECT e.id, e.token, e.worker, e.losses, e.run_at, w.ended_at
FROM owners
LEFT JOIN workers w ON w.id = owners.id
CROSS JOIN LATERAL (SELECT id, token, worker, losses, run_at FROM executions WHERE worker = owners.id ORDER BY id LIMIT $1::bigint) e
WHERE w.id IS NULL OR w.ended_at IS NOT NULL
ORDER BY e.worker, e.id
LIMIT $1::bigint`

	parting = "generation::bigint * 4 + CASE WHEN cancel_by IS NULL THEN 0 ELSE 2 END + CASE WHEN state >= 6 THEN " +
		"1 ELSE 0 END"

	// For a parent without a child to cancel, the child is NULL.
	selectChildren = `
SELECT p.id, p.parting, c.id
FROM (
    SELECT id, state, cancel_by, generation, ` + parting + ` AS parting
    FROM executions
    WHERE open_children > 0 AND (state >= 6 OR cancel_by IS NOT NULL OR generation > 1) AND parted IS DISTINCT FROM ` + parting + `
    ORDER BY id
    LIMIT $1::bigint
) p
LEFT JOIN LATERAL (
    SELECT id
    FROM executions
    WHERE parent = p.id AND state < 6 AND cancel_by IS NULL
      AND (p.state >= 6 OR p.cancel_by IS NOT NULL OR p.generation > coalesce(parent_gen, 0))
      AND (policy IS NULL OR policy::jsonb ->> 'abandon' IS DISTINCT FROM 'true')
    ORDER BY id
    LIMIT $1::bigint
) c ON true
ORDER BY p.id, c.id
LIMIT $1::bigint`

	// The query skips through the index from one root to the next, so that it does not read the
	// descendants of roots whose budget is still spent.
	selectUnspent = `
WITH RECURSIVE roots (id) AS (
    (SELECT spent_by FROM executions WHERE spent_by IS NOT NULL AND parent IS NOT NULL ORDER BY spent_by LIMIT 1)
    UNION ALL
    SELECT (SELECT spent_by FROM executions WHERE spent_by > roots.id AND parent IS NOT NULL ORDER BY spent_by LIMIT 1)
    FROM roots WHERE roots.id IS NOT NULL
)
SELECT e.id
FROM roots
LEFT JOIN executions r ON r.id = roots.id
CROSS JOIN LATERAL (SELECT id FROM executions WHERE spent_by = roots.id AND parent IS NOT NULL ORDER BY id LIMIT $1::bigint) e
WHERE r.id IS NULL OR r.state >= 6 OR r.budget IS NULL
   OR coalesce(r.cost, 0) * 10000 + coalesce(r.cost_rest, 0) < r.budget
LIMIT $1::bigint`
)

// Due implements store.Store.
func (s *Store) Due(ctx context.Context, limit int) (store.Due, error) {
	most := int64(limit)
	if limit <= 0 {
		most = math.MaxInt64
	}
	var due store.Due
	var look *dueLook
	err := s.query(store.Urgent(ctx), func(p *pipe) {
		due, look = store.Due{}, s.front.begin(s.Now())
		look.sessions(p, &due, most)
		look.checked(p, &due, most)
		look.owned(p, &due, most)
		look.objects(p, &due, most)
		s.readTime(p) // an idle server reads the database's clock only here
	})
	if err == nil {
		s.front.seen(look, &due, limit, s.options.LongLook/10)
	}
	return due, classify("due", err)
}

func (k *dueLook) sessions(p *pipe, due *store.Due, most int64) {
	now, from := int64(k.now), int64(k.expires)
	p.add(selectExpired, func(r columns) error {
		due.Workers = append(due.Workers, r.id(0))
		return nil
	}).int(now).int(most).int(from)
	p.add(selectLiving, func(r columns) error {
		due.NextWorker, due.MinTTL, k.firstEnd = r.time(0), duration(r.int(1)), r.time(2)
		return nil
	}).int(now).int(from)
}

func (k *dueLook) checked(p *pipe, due *store.Due, most int64) {
	now, from := int64(k.now), int64(k.checks)
	p.add(selectChecks, func(r columns) error {
		due.Checks = append(due.Checks, r.id(0))
		if k.firstCheck == 0 {
			k.firstCheck = r.time(1)
		}
		return nil
	}).int(now).int(most).int(from)
	p.add(selectCheck, func(r columns) error {
		if due.NextCheck = r.time(0); k.firstCheck == 0 {
			k.firstCheck = due.NextCheck
		}
		return nil
	}).int(now).int(from)
}

// owned finds executions that ended sessions have left, descendants of roots whose budget is not spent any
// more, and children of parents that have ended or were cancelled.
func (k *dueLook) owned(p *pipe, due *store.Due, most int64) {
	lost := func(r columns) error {
		due.Lost = append(due.Lost, store.Lost{
			Lose:   machine.Lose{Execution: r.id(0), Token: belay.Token(r.int(1)), Worker: r.id(2)},
			Losses: int(r.int(3)), RunAt: r.time(4),
		})
		k.firstLeft = min(k.firstLeft, r.time(5)) // the time is 0 if the session does not exist any more
		return nil
	}
	if k.whole {
		p.add(selectLost, lost).int(most)
	} else {
		p.add(selectLeft, lost).int(most).int(int64(k.ended))
	}
	p.add(selectUnspent, func(r columns) error {
		due.Unspent = append(due.Unspent, r.id(0))
		return nil
	}).int(most)
	if !k.children {
		return
	}
	p.add(selectChildren, func(r columns) error {
		if child := r.id(2); child != (belay.ExecutionID{}) {
			due.Children = append(due.Children, child)
		} else {
			due.Parted = append(due.Parted, machine.Part{Execution: r.id(0), Parting: r.int(1)})
		}
		return nil
	}).int(most)
}

const (
	countExecutions = "SELECT state, count(*) FROM executions GROUP BY state"
	countOthers     = `
SELECT (SELECT count(*) FROM runs) + (SELECT count(run_seq) FROM executions WHERE worker IS NOT NULL), (SELECT count(*) FROM checkpoints), (SELECT count(*) FROM dead_letters WHERE resolution IS NULL),
       (SELECT count(*) FROM workers WHERE ended_at IS NULL)`
)

// Counts implements store.Store.
func (s *Store) Counts(ctx context.Context) (store.Counts, error) {
	var counts store.Counts
	err := s.query(ctx, func(p *pipe) {
		counts = store.Counts{Executions: make(map[belay.State]int64)}
		p.add(countExecutions, func(r columns) error {
			counts.Executions[belay.State(r.int(0))] = r.int(1)
			return nil
		})
		p.add(countOthers, func(r columns) error {
			counts.Runs, counts.Checkpoints, counts.DeadLetters, counts.Sessions = r.int(0), r.int(1), r.int(2),
				r.int(3)
			return nil
		})
	})
	return counts, classify("counts", err)
}

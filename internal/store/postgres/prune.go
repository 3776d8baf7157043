package postgres

import (
	"bytes"
	"context"
	"math"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// pruneScan is how many executions one call of Prune looks at.
const pruneScan = 50_000

const (
	// over says of an execution e that it may be forgotten: it ended before a
	// moment, and neither a child nor a parent that has not ended needs it.
	over = `e.state >= 6 AND e.finished_at < $1::bigint AND coalesce(e.open_children, 0) = 0
  AND (e.parent IS NULL OR coalesce((SELECT p.state >= 6 FROM executions p WHERE p.id = e.parent), true))`

	selectBound = "SELECT id FROM executions WHERE id > $1::uuid ORDER BY id OFFSET $2::bigint LIMIT 1"
	selectOver  = "SELECT e.id FROM executions e WHERE " + over + " AND e.id > $2::uuid AND e.id <= $3::uuid ORDER BY e.id LIMIT $4::bigint"
	selectEnded = `
SELECT id
FROM workers w
WHERE w.ended_at < $1::bigint AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.worker = w.id)
ORDER BY id
LIMIT $2::bigint`
	selectStale = "SELECT EXISTS (SELECT 1 FROM idempotency WHERE expires_at <= $1::bigint)"
)

// prunable is what one call of Prune will delete.
type prunable struct {
	executions []belay.ExecutionID
	sessions   []belay.WorkerID
	stale      bool // there are expired keys
}

// Prune implements store.Store. What may go is looked for beside the writers, a
// stretch of the primary key at a time; only deleting it is a transaction, and
// that looks again when it has its locks.
func (s *Store) Prune(ctx context.Context, before machine.Time, limit int) (int, error) {
	const op = "prune"
	if limit <= 0 {
		limit = math.MaxInt32
	}
	p, err := s.prunable(ctx, before, int64(limit))
	if err != nil || len(p.executions)+len(p.sessions) == 0 && !p.stale {
		return 0, classify(op, err)
	}
	if s.options.ReadOnly {
		return 0, &belay.Error{Code: belay.CodeInternal, Op: op, Message: "the store was opened to read only"}
	}
	c, err := s.writers.take(ctx)
	if err != nil {
		return 0, classify(op, err)
	}
	defer func() { s.writers <- c }()
	for try := 1; ; try++ {
		n, err := s.delete(ctx, c, p, before)
		if err == nil || try == attempts || ctx.Err() != nil || !again(err, try) {
			return n, classify(op, err)
		}
	}
}

func (s *Store) prunable(ctx context.Context, before machine.Time, limit int64) (prunable, error) {
	s.mu.Lock()
	from := s.pruned
	s.mu.Unlock()
	var p prunable
	last, to := true, belay.ExecutionID(bytes.Repeat([]byte{0xff}, 16))
	err := s.query(ctx, func(q *pipe) {
		q.add(selectBound, func(r columns) error {
			last, to = false, r.id(0)
			return nil
		}).id(from).int(pruneScan - 1)
	})
	if err != nil {
		return p, err
	}
	err = s.query(ctx, func(q *pipe) {
		p = prunable{}
		q.add(selectOver, func(r columns) error {
			p.executions = append(p.executions, r.id(0))
			return nil
		}).int(int64(before)).id(from).id(to).int(limit)
		q.add(selectEnded, func(r columns) error {
			p.sessions = append(p.sessions, r.id(0))
			return nil
		}).int(int64(before)).int(limit)
		q.add(selectStale, func(r columns) error {
			p.stale = r.bool(0)
			return nil
		}).int(int64(s.Now()))
	})
	if err != nil {
		return p, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case int64(len(p.executions)) == limit: // the next call goes on in this stretch
	case last:
		s.pruned = belay.ExecutionID{}
	default:
		s.pruned = to
	}
	return p, nil
}

const (
	// The executions and their parents, so that neither is reopened meanwhile.
	lockOver = `
SELECT id
FROM executions
WHERE id = ANY($1::uuid[] || ARRAY(SELECT parent FROM executions WHERE id = ANY($1::uuid[]) AND parent IS NOT NULL))
ORDER BY id
FOR UPDATE`
	stillOver = "SELECT e.id FROM executions e WHERE " + over + " AND e.id = ANY($2::uuid[])"

	// The key of an execution lives on for a while.
	expireKeys = `
UPDATE idempotency k
SET expires_at = $2::bigint
FROM (SELECT unnest($1::uuid[]) AS id) u
JOIN executions e ON e.id = u.id
JOIN specs s ON s.execution = e.id AND s.generation = 1
WHERE k.workflow = e.workflow AND k.key = s.key AND k.execution = e.id`

	lockEnded      = "SELECT id FROM workers WHERE id = ANY($1::uuid[]) AND ended_at IS NOT NULL ORDER BY id FOR UPDATE"
	deleteSessions = `
WITH gone AS (
    DELETE FROM workers w
    WHERE w.id = ANY($1::uuid[]) AND w.ended_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.worker = w.id)
    RETURNING 1
)
SELECT count(*) FROM gone`
	deleteKeys = "DELETE FROM idempotency WHERE expires_at <= $1::bigint"
)

// deletions are of the rows beside an execution, and then of itself.
var deletions = [...]string{
	"DELETE FROM specs WHERE execution = ANY($1::uuid[])",
	"DELETE FROM runs WHERE execution = ANY($1::uuid[])",
	"DELETE FROM checkpoints WHERE execution = ANY($1::uuid[])",
	"DELETE FROM signals WHERE execution = ANY($1::uuid[])",
	"DELETE FROM actions WHERE execution = ANY($1::uuid[])",
	"DELETE FROM dead_letters WHERE execution = ANY($1::uuid[])",
	"DELETE FROM blobs WHERE execution = ANY($1::uuid[])",
	"DELETE FROM blob_sums WHERE execution = ANY($1::uuid[])",
	"DELETE FROM executions WHERE id = ANY($1::uuid[])",
}

// delete is the transaction of Prune.
func (s *Store) delete(ctx context.Context, c *slot, p prunable, before machine.Time) (n int, err error) {
	err = s.transact(ctx, c, func(ctx context.Context) error {
		n = 0
		var left []belay.ExecutionID
		q := c.pipe()
		q.add("BEGIN", nil)
		idList(q.add(lockEnded, nil), p.sessions)
		idList(q.add(lockOver, nil), p.executions)
		idList(q.add(stillOver, func(r columns) error {
			left = append(left, r.id(0))
			return nil
		}).int(int64(before)), p.executions)
		s.readTime(q)
		if err := q.run(ctx); err != nil {
			return err
		}
		n = len(left)
		now := s.Now()
		q = c.pipe()
		k := q.add(expireKeys, nil)
		idList(k, left)
		k.int(int64(now.Add(store.KeyLife)))
		for _, text := range deletions {
			idList(q.add(text, nil), left)
		}
		idList(q.add(deleteSessions, func(r columns) error {
			n += int(r.int(0))
			return nil
		}), p.sessions)
		q.add(deleteKeys, nil).int(int64(now))
		q.add("COMMIT", nil)
		return q.run(ctx)
	})
	if err != nil {
		n = 0
	}
	return n, err
}

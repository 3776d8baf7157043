package sqlite

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

// over says of an execution e that it may be forgotten: it ended before a
// moment, and neither a child nor a parent that has not ended needs it.
const over = `e.state >= 6 AND e.finished_at < ? AND e.open_children = 0
  AND (e.parent IS NULL OR coalesce((SELECT p.state >= 6 FROM executions p WHERE p.id = e.parent), 1))`

const (
	selectBound    = "SELECT id FROM executions WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?"
	selectOver     = "SELECT e.id FROM executions e WHERE e.id > ? AND e.id <= ? AND " + over + " ORDER BY e.id LIMIT ?"
	selectSessions = `
SELECT id
FROM workers w
WHERE w.ended_at < ? AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.worker = w.id)
ORDER BY id
LIMIT ?`
	selectStale = `
SELECT EXISTS (SELECT 1 FROM idempotency WHERE expires_at <= ?)
    OR EXISTS (SELECT 1 FROM servers WHERE mark_at < ? AND id <> ?)`
)

// prunable is what one call of Prune will delete.
type prunable struct {
	executions []belay.ExecutionID
	sessions   []belay.WorkerID
	stale      bool // expired keys, or servers long gone
}

// Prune implements store.Store. What may go is looked for beside the writer, a
// stretch of the primary key at a time; only deleting it is a transaction, and
// that looks again.
func (s *Store) Prune(ctx context.Context, before machine.Time, limit int) (int, error) {
	const op = "prune"
	if limit <= 0 {
		limit = math.MaxInt32
	}
	var p prunable
	err := s.read(ctx, func(ctx context.Context, c *conn) (err error) {
		p, err = s.prunable(ctx, c, before, int64(limit))
		return err
	})
	if err != nil {
		return 0, classify(op, err)
	}
	if len(p.executions)+len(p.sessions) == 0 && !p.stale {
		return 0, nil
	}
	n := 0
	err = s.write(ctx, op, func(t *tx) (bool, error) {
		var err error
		n, err = t.prune(p, before)
		return err == nil, err
	})
	if err != nil {
		n = 0
	}
	return n, err
}

func (s *Store) prunable(ctx context.Context, c *conn, before machine.Time, limit int64) (prunable, error) {
	var p prunable
	s.mu.Lock()
	from := s.pruned
	s.mu.Unlock()
	last, to := true, belay.ExecutionID(bytes.Repeat([]byte{0xff}, 16))
	c.args.blob(from[:])
	c.args.int(pruneScan - 1)
	err := c.query(ctx, selectBound, func(r columns) error {
		last, to = false, r.id(0)
		return nil
	})
	if err != nil {
		return p, err
	}
	c.args.blob(from[:])
	c.args.blob(to[:])
	c.args.int(int64(before))
	c.args.int(limit)
	err = c.query(ctx, selectOver, func(r columns) error {
		p.executions = append(p.executions, r.id(0))
		return nil
	})
	if err != nil {
		return p, err
	}
	s.mu.Lock()
	switch {
	case int64(len(p.executions)) == limit: // the next call goes on in this stretch
	case last:
		s.pruned = belay.ExecutionID{}
	default:
		s.pruned = to
	}
	s.mu.Unlock()
	err = p.others(ctx, c, s, before, limit)
	return p, err
}

// others looks for what is not an execution.
func (p *prunable) others(ctx context.Context, c *conn, s *Store, before machine.Time, limit int64) error {
	c.args.int(int64(before))
	c.args.int(limit)
	err := c.query(ctx, selectSessions, func(r columns) error {
		p.sessions = append(p.sessions, r.id(0))
		return nil
	})
	if err != nil {
		return err
	}
	c.args.int(int64(s.Now()))
	c.args.int(int64(before))
	c.args.blob(s.options.Server[:])
	return c.query(ctx, selectStale, func(r columns) error {
		p.stale = r.int(0) != 0
		return nil
	})
}

// deletions are the rows beside an execution.
var deletions = [...]string{
	"DELETE FROM specs WHERE execution = ?",
	"DELETE FROM runs WHERE execution = ?",
	"DELETE FROM checkpoints WHERE execution = ?",
	"DELETE FROM signals WHERE execution = ?",
	"DELETE FROM actions WHERE execution = ?",
	"DELETE FROM dead_letters WHERE execution = ?",
	"DELETE FROM blobs WHERE execution = ?",
	"DELETE FROM blob_sums WHERE execution = ?",
}

func (t *tx) prune(p prunable, before machine.Time) (int, error) {
	t.store.cache.drop()
	n := 0
	for i := range p.executions {
		gone, err := t.forget(&p.executions[i], before)
		if err != nil {
			return 0, err
		}
		n += gone
	}
	for i := range p.sessions {
		t.args.blob(p.sessions[i][:])
		gone, err := t.exec(t.ctx, "DELETE FROM workers WHERE id = ? AND ended_at IS NOT NULL")
		if err != nil {
			return 0, err
		}
		n += int(gone)
	}
	t.args.int(int64(t.now))
	if _, err := t.exec(t.ctx, "DELETE FROM idempotency WHERE expires_at <= ?"); err != nil {
		return 0, err
	}
	t.args.int(int64(before))
	t.args.blob(t.store.options.Server[:])
	_, err := t.exec(t.ctx, "DELETE FROM servers WHERE mark_at < ? AND id <> ?")
	return n, err
}

// forget deletes an execution; its idempotency key lives on for a while.
func (t *tx) forget(id *belay.ExecutionID, before machine.Time) (int, error) {
	var workflow, key string
	t.args.blob(id[:])
	t.args.int(int64(before))
	err := t.query(t.ctx, "SELECT e.workflow, s.key FROM executions e LEFT JOIN specs s ON s.execution = e.id AND s.generation = 1 WHERE e.id = ? AND "+over,
		func(r columns) error {
			workflow, key = r.text(0), r.text(1)
			return nil
		})
	if err != nil || workflow == "" {
		return 0, err
	}
	if key != "" {
		t.args.int(int64(t.now.Add(store.KeyLife)))
		t.args.text(workflow)
		t.args.text(key)
		t.args.blob(id[:])
		if _, err := t.exec(t.ctx, "UPDATE idempotency SET expires_at = ? WHERE workflow = ? AND key = ? AND execution = ?"); err != nil {
			return 0, err
		}
	}
	for _, text := range deletions {
		t.args.blob(id[:])
		if _, err := t.exec(t.ctx, text); err != nil {
			return 0, err
		}
	}
	t.args.blob(id[:])
	_, err = t.exec(t.ctx, "DELETE FROM executions WHERE id = ?")
	return 1, err
}

package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

const (
	selectEnded = `
SELECT id
FROM workers w
WHERE w.ended_at < $1::bigint AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.worker = w.id)
ORDER BY w.ended_at, w.id
LIMIT $2::bigint`
	selectStale = "SELECT EXISTS (SELECT 1 FROM idempotency WHERE expires_at <= $1::bigint)"
)

// prunable is what one call of Prune will delete.
type prunable struct {
	store.Felled
	sessions []belay.WorkerID
	keys     bool // some keys have expired
	gates    []*machine.Object
	more     bool // there are more gates to check
}

// Prune implements store.Store. It searches for deletable rows on a reading connection, so that the
// writers can continue. Only the deletion is a transaction of a writer; it locks the rows and
// checks them again. Only one server at a time deletes.
func (s *Store) Prune(ctx context.Context, over store.Retention, limit int) (store.Pruned, error) {
	const op = "prune"
	before := over.Before
	stretch := over.Next(&s.walk)
	p, err := s.prunable(ctx, stretch, over, limit)
	if err != nil {
		return store.Pruned{}, classify(op, err)
	}
	more := over.Went(&s.walk, stretch, &p.Felled)
	if over.Root.IsZero() {
		s.gates.Again(more)
	}
	done := store.Pruned{Large: p.Large, More: more || p.more}
	if p.Nothing() && len(p.sessions) == 0 && !p.keys && len(p.gates) == 0 {
		return done, nil
	}
	if s.options.ReadOnly {
		return store.Pruned{}, &belay.Error{
			Code: belay.CodeInternal, Op: op, Message: "the store was opened to read only",
		}
	}
	c, err := s.writers.take(ctx)
	if err != nil {
		return store.Pruned{}, classify(op, err)
	}
	defer func() { s.writers <- c }()
	for try := 1; ; try++ {
		err := s.delete(ctx, c, &p, &done, before, limit)
		if err == nil || try == attempts || ctx.Err() != nil || !again(err, try) {
			if errors.Is(err, errBusy) {
				return store.Pruned{More: !over.Root.IsZero()}, nil // another server is deleting
			}
			done.More = done.More || limit > 0 && (done.Sessions >= limit || done.Keys >= limit)
			return done, classify(op, err)
		}
	}
}

func (s *Store) prunable(ctx context.Context, stretch store.Stretch, over store.Retention, limit int) (p prunable,
	err error) {
	before := over.Before
	if p.Felled, err = store.Fell(forest{s, ctx, int64(before), int64(over.Letters)}, stretch, limit); err != nil {
		return p, err
	}
	if !over.Root.IsZero() {
		return p, nil
	}
	var gates []*machine.Object
	err = s.query(ctx, func(q *pipe) {
		p.sessions, gates = nil, nil
		q.add(selectEnded, func(r columns) error {
			p.sessions = append(p.sessions, r.id(0))
			return nil
		}).int(int64(before)).int(boundOf(limit))
		q.add(selectStale, func(r columns) error {
			p.keys = r.bool(0)
			return nil
		}).int(int64(s.Now()))
		q.add(listGates, into(table.Objects, &gates)).string(s.gates.After()).int(store.GateStride)
	})
	if err == nil {
		p.gates, p.more = s.gates.Pick(gates, before, s.Now(), limit)
	}
	return p, err
}

const (
	tryPrune = "SELECT pg_try_advisory_xact_lock(hashtextextended('belay prune', 0))"

	// Whole trees are locked, in the order of their ids, so that no root is reopened before its
	// tree is deleted.
	lockOver = `
SELECT id, state >= 6 AND finished_at < $1::bigint
FROM executions
WHERE id = ANY($2::uuid[])
ORDER BY id
FOR UPDATE`

	// The key of an execution stays for store.KeyLife after the execution is deleted.
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
	deleteKeys = `
WITH old AS (
    SELECT workflow, key FROM idempotency WHERE expires_at <= $1::bigint ORDER BY expires_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM idempotency k USING old WHERE k.workflow = old.workflow AND k.key = old.key
    RETURNING 1
)
SELECT count(*) FROM gone`
)

var listGates = selecting(table.Objects) + " WHERE kind = 'gate' AND name > $1::text ORDER BY name LIMIT $2::bigint"

const (
	// A separate statement locks the gates first. So the statement that deletes them sees the
	// places that other transactions have written under the same locks. A gate that another
	// transaction has locked is in use, and is skipped.
	lockGates = `
SELECT name FROM objects
WHERE kind = 'gate' AND name = ANY($1::text[])
ORDER BY name
FOR UPDATE SKIP LOCKED`

	// A gate stays if it has changed since it was read, or if an execution has a row of places in it
	// or waits at it.
	deleteGates = `
WITH gone AS (
    DELETE FROM objects o
    USING (SELECT unnest($1::text[]) AS name, unnest($2::bigint[]) AS version) u
    WHERE o.kind = 'gate' AND o.name = u.name AND o.version = u.version
      AND NOT EXISTS (SELECT 1 FROM places WHERE gate = u.name)
      AND NOT EXISTS (SELECT 1 FROM executions WHERE gate = u.name)
    RETURNING 1
)
SELECT count(*) FROM gone`
)

// errBusy reports that another server is deleting.
var errBusy = errors.New("another server prunes")

// trims delete a limited number of an execution's rows from each table in which it may have many or
// large rows.
var trims = [...]string{
	"DELETE FROM runs WHERE execution = $1::uuid AND token = ANY(ARRAY(SELECT token FROM runs WHERE execution = " +
		"$1::uuid LIMIT $2::bigint))",
	"DELETE FROM checkpoints WHERE execution = $1::uuid AND seq = ANY(ARRAY(SELECT seq FROM checkpoints WHERE " +
		"execution = $1::uuid LIMIT $2::bigint))",
	"DELETE FROM signals WHERE execution = $1::uuid AND seq = ANY(ARRAY(SELECT seq FROM signals WHERE execution = " +
		"$1::uuid LIMIT $2::bigint))",
	"DELETE FROM actions WHERE execution = $1::uuid AND seq = ANY(ARRAY(SELECT seq FROM actions WHERE execution = " +
		"$1::uuid LIMIT $2::bigint))",
	`WITH few AS (SELECT name, n FROM blobs WHERE execution = $1::uuid LIMIT $2::bigint)
DELETE FROM blobs b USING few WHERE b.execution = $1::uuid AND b.name = few.name AND b.n = few.n`,
	"DELETE FROM blob_sums WHERE execution = $1::uuid AND NOT EXISTS (SELECT 1 FROM blobs WHERE execution = " +
		"$1::uuid LIMIT $2::bigint)",
}

// trimmed is the maximum number of rows of each kind that one commit deletes from an execution that
// is too large for one commit. Each row may have a megabyte.
const trimmed = 100

// delete is the transaction of Prune.
func (s *Store) delete(ctx context.Context, c *slot, p *prunable, done *store.Pruned, before machine.Time,
	limit int) error {
	return s.transact(ctx, c, func(ctx context.Context) error {
		var named []belay.ExecutionID
		for _, members := range p.Trees {
			named = append(named, members...)
		}
		mine, ended := false, make(map[belay.ExecutionID]bool, len(named))
		locked := make(map[string]bool, len(p.gates))
		q := c.pipe()
		q.add("BEGIN", nil)
		q.add(tryPrune, func(r columns) error {
			mine = r.bool(0)
			return nil
		})
		idList(q.add(lockEnded, nil), p.sessions)
		idList(q.add(lockOver, func(r columns) error {
			ended[r.id(0)] = r.bool(1)
			return nil
		}).int(int64(before)), append(named, p.Leaves...))
		if len(p.gates) > 0 {
			texts(q.add(lockGates, func(r columns) error {
				locked[r.text(0)] = true
				return nil
			}), p.gates, func(o *machine.Object) string { return o.Name })
		}
		s.readTime(q)
		if err := q.run(ctx); err != nil {
			return err
		}
		if !mine {
			return errBusy
		}
		p.gates = slices.DeleteFunc(p.gates, func(o *machine.Object) bool { return !locked[o.Name] })
		going := append(stillOver(p.Trees, ended), p.Leaves...)
		return s.deleteRows(ctx, c, p, going, done, limit)
	})
}

// deleteRows deletes the locked rows, and commits.
func (s *Store) deleteRows(ctx context.Context, c *slot, p *prunable, going []belay.ExecutionID, done *store.Pruned,
	limit int) error {
	now := s.Now()
	done.Executions, done.Sessions, done.Keys, done.Gates = len(going), 0, 0, 0
	q := c.pipe()
	k := q.add(expireKeys, nil)
	idList(k, going)
	k.int(int64(now.Add(store.KeyLife)))
	for _, name := range table.Beside {
		idList(q.add("DELETE FROM "+name+" WHERE execution = ANY($1::uuid[])", nil), going)
	}
	idList(q.add("DELETE FROM executions WHERE id = ANY($1::uuid[])", nil), going)
	if !p.Trim.IsZero() {
		for _, text := range trims {
			q.add(text, nil).id(p.Trim).int(trimmed)
		}
	}
	idList(q.add(deleteSessions, func(r columns) error {
		done.Sessions = int(r.int(0))
		return nil
	}), p.sessions)
	q.add(deleteKeys, func(r columns) error {
		done.Keys = int(r.int(0))
		return nil
	}).int(int64(now)).int(boundOf(limit))
	if len(p.gates) > 0 {
		d := q.add(deleteGates, func(r columns) error {
			done.Gates = int(r.int(0))
			return nil
		})
		texts(d, p.gates, func(o *machine.Object) string { return o.Name })
		ints(d, int8s, p.gates, func(o *machine.Object) int64 { return o.Version })
	}
	q.add("COMMIT", nil)
	return q.run(ctx)
}

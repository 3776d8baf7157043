package sqlite

import (
	"context"
	"math"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

const (
	selectEnded = `
SELECT id
FROM workers w
WHERE w.ended_at < ? AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.worker = w.id)
ORDER BY w.ended_at
LIMIT ?`
	selectStale = `
SELECT (SELECT count(*) FROM (SELECT 1 FROM idempotency WHERE expires_at <= ? LIMIT ?)),
       EXISTS (SELECT 1 FROM servers WHERE mark_at < ? AND id <> ?)`
)

// prunable is what one call of Prune will delete.
type prunable struct {
	store.Felled
	sessions []belay.WorkerID
	keys     int64 // number of expired keys
	servers  bool  // some rows of servers are old
	gates    []*machine.Object
	more     bool // there are more gates to check
}

// Prune implements store.Store. It searches for deletable rows on a reading connection, so that the
// writer can continue. Only the deletion is a transaction of the writer, and checks the rows again.
func (s *Store) Prune(ctx context.Context, over store.Retention, limit int) (store.Pruned, error) {
	const op = "prune"
	before := over.Before
	stretch := over.Next(&s.walk)
	var found prunable
	err := s.read(ctx, func(ctx context.Context, c *conn) (err error) {
		found, err = s.prunable(ctx, c, stretch, over, limit)
		return err
	})
	if err != nil {
		return store.Pruned{}, classify(op, err)
	}
	more := over.Went(&s.walk, stretch, &found.Felled)
	if over.Root.IsZero() {
		s.gates.Again(more)
	}
	done := store.Pruned{Large: found.Large, More: more || found.more}
	if found.Nothing() && len(found.sessions) == 0 && found.keys == 0 && !found.servers && len(found.gates) == 0 {
		return done, nil
	}
	err = s.write(ctx, op, func(t *tx) (bool, error) {
		var err error
		done.Executions, done.Sessions, done.Keys, err = t.prune(&found, before, limit)
		if err == nil {
			done.Gates, err = t.pruneGates(found.gates)
		}
		return err == nil, err
	})
	if err != nil {
		return store.Pruned{}, err
	}
	done.More = done.More || limit > 0 && (done.Sessions >= limit || done.Keys >= limit)
	return done, nil
}

func (s *Store) prunable(ctx context.Context, c *conn, stretch store.Stretch, over store.Retention,
	limit int) (p prunable, err error) {
	before := over.Before
	if p.Felled, err = store.Fell(&forest{c, ctx, int64(before), int64(over.Letters)}, stretch, limit); err != nil {
		return p, err
	}
	if !over.Root.IsZero() {
		return p, nil
	}
	c.args.int(int64(before)).int(most(limit))
	err = c.query(ctx, selectEnded, idsInto(&p.sessions))
	if err != nil {
		return p, err
	}
	c.args.int(int64(s.Now())).int(most(limit)).int(int64(before)).blob(s.options.Server[:])
	err = c.query(ctx, selectStale, func(r columns) error {
		p.keys, p.servers = r.int(0), r.int(1) != 0
		return nil
	})
	if err != nil {
		return p, err
	}
	var gates []*machine.Object
	c.args.text(string(machine.GateObject)).text(s.gates.After()).int(store.GateStride)
	if err := c.query(ctx, listObjects, into(table.Objects, &gates)); err != nil {
		return p, err
	}
	p.gates, p.more = s.gates.Pick(gates, before, s.Now(), limit)
	return p, nil
}

// deleteGate deletes a gate, unless it has changed since it was read, or an execution has a row of
// places in it or waits at it.
const deleteGate = `
DELETE FROM objects
WHERE kind = 'gate' AND name = ?1 AND version = ?2 AND NOT EXISTS (SELECT 1 FROM places WHERE gate = ?1)
  AND NOT EXISTS (SELECT 1 FROM executions WHERE gate = ?1)`

func (t *tx) pruneGates(gates []*machine.Object) (gone int, err error) {
	for _, o := range gates {
		t.args.text(o.Name).int(o.Version)
		n, err := t.exec(t.ctx, deleteGate)
		if err != nil {
			return 0, err
		}
		gone += int(n)
	}
	return gone, nil
}

// most returns a limit for a statement. A limit of 0 means no limit.
func most(limit int) int64 {
	if limit <= 0 {
		return math.MaxInt64
	}
	return int64(limit)
}

// trims delete a limited number of an execution's rows from each table in which it may have many or
// large rows.
var trims = [...]string{
	"DELETE FROM runs WHERE execution = ?1 AND token IN (SELECT token FROM runs WHERE execution = ?1 LIMIT ?2)",
	"DELETE FROM checkpoints WHERE rowid IN (SELECT rowid FROM checkpoints WHERE execution = ?1 LIMIT ?2)",
	"DELETE FROM signals WHERE rowid IN (SELECT rowid FROM signals WHERE execution = ?1 LIMIT ?2)",
	"DELETE FROM actions WHERE execution = ?1 AND seq IN (SELECT seq FROM actions WHERE execution = ?1 LIMIT ?2)",
	"DELETE FROM blobs WHERE rowid IN (SELECT rowid FROM blobs WHERE execution = ?1 LIMIT ?2)",
	"DELETE FROM blob_sums WHERE execution = ?1 AND NOT EXISTS (SELECT 1 FROM blobs WHERE execution = ?1 LIMIT ?2)",
}

// trimmed is the maximum number of rows of each kind that one commit deletes from an execution that
// is too large for one commit. Each row may have a megabyte.
const trimmed = 100

const (
	// The keys of executions stay for store.KeyLife after the executions are deleted.
	expireKeys = `
UPDATE idempotency
SET expires_at = ?
WHERE (workflow, key) IN (
    SELECT e.workflow, s.key
    FROM executions e
    JOIN specs s ON s.execution = e.id AND s.generation = 1
    WHERE s.key IS NOT NULL AND e.id = ?
) AND execution = ?`
	deleteKeys = `
DELETE FROM idempotency
WHERE (workflow, key) IN (SELECT workflow, key FROM idempotency WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`
)

func (t *tx) prune(p *prunable, before machine.Time, limit int) (executions, sessions, keys int, err error) {
	going := p.Leaves
	for _, ids := range p.Trees {
		over, err := t.over(ids, before)
		if err != nil {
			return 0, 0, 0, err
		}
		if over {
			going = append(going, ids...)
		}
	}
	if err := t.delete(going, p.Trim); err != nil {
		return 0, 0, 0, err
	}
	for i := range p.sessions {
		t.args.blob(p.sessions[i][:])
		n, err := t.exec(t.ctx, "DELETE FROM workers WHERE id = ? AND ended_at IS NOT NULL")
		if err != nil {
			return 0, 0, 0, err
		}
		sessions += int(n)
	}
	t.args.int(int64(t.now)).int(most(limit))
	n, err := t.exec(t.ctx, deleteKeys)
	if err != nil || !p.servers {
		return len(going), sessions, int(n), err
	}
	t.args.int(int64(before)).blob(t.store.options.Server[:])
	_, err = t.exec(t.ctx, "DELETE FROM servers WHERE mark_at < ? AND id <> ?")
	return len(going), sessions, int(n), err
}

// over reports whether all executions of a tree still ended before the given time.
func (t *tx) over(ids []belay.ExecutionID, before machine.Time) (bool, error) {
	found, over := 0, 0
	err := some(t.ctx, t.conn, "SELECT state, finished_at FROM executions WHERE id IN ", ids, func(r columns) error {
		found++
		if at := machine.Time(r.int(1)); belay.State(r.int(0)).Terminal() && at < before {
			over++
		}
		return nil
	})
	return found == len(ids) && over == found, err
}

// delete deletes executions, and a part of the rows of one more execution.
func (t *tx) delete(ids []belay.ExecutionID, trim belay.ExecutionID) error {
	t.store.cache.forget(ids)
	for i := range ids {
		t.args.int(int64(t.now.Add(store.KeyLife))).blob(ids[i][:]).blob(ids[i][:])
		if _, err := t.exec(t.ctx, expireKeys); err != nil {
			return err
		}
	}
	for _, name := range table.Beside {
		if err := each(t.ctx, t.conn, "DELETE FROM "+name+" WHERE execution IN ", ids); err != nil {
			return err
		}
	}
	if err := each(t.ctx, t.conn, "DELETE FROM executions WHERE id IN ", ids); err != nil {
		return err
	}
	if trim.IsZero() {
		return nil
	}
	for _, text := range trims {
		t.args.blob(trim[:]).int(trimmed)
		if _, err := t.exec(t.ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// forest is the database as Prune reads it.
type forest struct {
	*conn
	ctx     context.Context
	before  int64
	letters int64
}

const (
	selectBound = "SELECT id FROM executions WHERE id > ? AND id <= ? ORDER BY id LIMIT 1 OFFSET ?"
	selectRoots = `
SELECT e.id, e.seq, e.reason IS 'forgotten'
FROM executions e
WHERE e.id > ? AND e.id <= ? AND e.state >= 6 AND e.finished_at < ?
  AND NOT EXISTS (SELECT 1 FROM dead_letters WHERE execution = e.id AND resolution IS NULL AND at >= ?)
  AND (e.parent IS NULL OR NOT EXISTS (SELECT 1 FROM executions p WHERE p.id = e.parent))
ORDER BY e.id
LIMIT ?`

	memberColumns = "SELECT c.id, c.parent, c.seq, c.state, c.finished_at FROM executions c"
	isOver        = "c.state >= 6 AND c.finished_at < ?"
	hasChildren   = "EXISTS (SELECT 1 FROM executions g WHERE g.parent = c.id)"
	selectLeaves  = memberColumns + " WHERE c.parent = ? AND " + isOver + " AND NOT " + hasChildren +
		" ORDER BY c.id LIMIT ?"
	selectNodes = memberColumns + " WHERE c.parent = ? AND " + isOver + " AND " + hasChildren +
		" ORDER BY c.id LIMIT ?"
	selectMembers = memberColumns + " WHERE c.parent = ? LIMIT ?"

	selectStoredBytes = "SELECT coalesce(sum(bytes), 0) FROM blob_sums WHERE execution = ?"
	selectWeights     = `
SELECT count(*), coalesce(sum(size), 0)
FROM (
    SELECT size FROM (SELECT length(data) AS size FROM checkpoints WHERE execution = ?1 LIMIT ?2)
    UNION ALL
    SELECT size FROM (SELECT length(payload) AS size FROM signals WHERE execution = ?1 LIMIT ?2)
    UNION ALL
    SELECT size FROM (SELECT length(output) AS size FROM runs WHERE execution = ?1 LIMIT ?2)
    UNION ALL
    SELECT size FROM (SELECT 0 AS size FROM actions WHERE execution = ?1 LIMIT ?2)
)`
)

// Roots implements store.Forest.
func (f *forest) Roots(s store.Stretch, limit int) (roots []store.Root, next belay.ExecutionID, more bool, err error) {
	next = s.To
	f.args.blob(s.From[:]).blob(s.To[:]).int(int64(s.Rows) - 1)
	err = f.query(f.ctx, selectBound, func(r columns) error {
		next, more = r.id(0), true
		return nil
	})
	if err != nil {
		return nil, next, false, err
	}
	f.args.blob(s.From[:]).blob(next[:]).int(f.before).int(f.letters).int(most(limit))
	err = f.query(f.ctx, selectRoots, func(r columns) error {
		roots = append(roots, store.Root{ID: r.id(0), Seq: r.int(1), Forgotten: r.int(2) != 0})
		return nil
	})
	if limit > 0 && len(roots) == limit {
		next, more = roots[limit-1].ID, true
	}
	return roots, next, more, err
}

func (f *forest) member(all *[]store.Member) func(columns) error {
	return func(r columns) error {
		over := belay.State(r.int(3)).Terminal() && r.int(4) < f.before
		*all = append(*all, store.Member{ID: r.id(0), Parent: r.id(1), Seq: r.int(2), Over: over})
		return nil
	}
}

// Children implements store.Forest.
func (f *forest) Children(of []belay.ExecutionID, limit int) (all []store.Member, err error) {
	for i := 0; i < len(of) && err == nil && (limit <= 0 || len(all) < limit); i++ {
		f.args.blob(of[i][:]).int(most(limit) - int64(len(all)))
		err = f.query(f.ctx, selectMembers, f.member(&all))
	}
	return all, err
}

// Leaves implements store.Forest.
func (f *forest) Leaves(of belay.ExecutionID, limit int) ([]store.Member, error) {
	return f.below(selectLeaves, of, limit)
}

// Nodes implements store.Forest.
func (f *forest) Nodes(of belay.ExecutionID, limit int) ([]store.Member, error) {
	return f.below(selectNodes, of, limit)
}

func (f *forest) below(text string, of belay.ExecutionID, limit int) (all []store.Member, err error) {
	f.args.blob(of[:]).int(f.before).int(most(limit))
	err = f.query(f.ctx, text, f.member(&all))
	return all, err
}

// Weigh implements store.Forest.
func (f *forest) Weigh(of []store.Member) (map[belay.ExecutionID]store.Weight, error) {
	weights := make(map[belay.ExecutionID]store.Weight, len(of))
	for i := range of {
		m := &of[i]
		w := store.Weight{Rows: m.Seq}
		f.args.blob(m.ID[:])
		err := f.query(f.ctx, selectStoredBytes, number(&w.Bytes))
		if err == nil && m.Seq > store.LightSeq {
			f.args.blob(m.ID[:]).int(store.FellRows + 1)
			err = f.query(f.ctx, selectWeights, func(r columns) error {
				w.Rows, w.Bytes = r.int(0), w.Bytes+r.int(1)
				return nil
			})
		}
		if err != nil {
			return nil, err
		}
		weights[m.ID] = w
	}
	return weights, nil
}

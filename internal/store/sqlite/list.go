package sqlite

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// List implements store.Store. It walks the primary key, or the index of what
// narrows the list most.
func (s *Store) List(ctx context.Context, q store.List) (store.Listed, error) {
	var out store.Listed
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		l := listing{conn: c, ctx: ctx, List: q}
		if err := l.find(); err != nil {
			return err
		}
		out = store.Listed{Records: l.found}
		if q.Limit <= 0 || len(l.found) < q.Limit {
			out.Last, out.At = l.last, l.at
		}
		return fill(ctx, c, out.Records, q.Payloads)
	})
	return out, classify("list", err)
}

// listing is a list on its way.
type listing struct {
	*conn
	ctx context.Context
	store.List
	found []*machine.Record
	last  belay.ExecutionID
	at    machine.Time
}

func (l *listing) scan() int64 {
	if l.Scan <= 0 {
		return math.MaxInt64 - 1
	}
	return int64(l.Scan)
}

func (l *listing) find() error {
	if store.Active(l.States) && l.Parent.IsZero() && l.Key == "" {
		open := int64(0)
		err := l.query(l.ctx, "SELECT count(*) FROM "+l.active(), func(r columns) error { open = r.int(0); return nil })
		if err != nil || open <= l.scan() { // else so many that the newest of all are found as soon
			return firstOf(err, l.list("executions WHERE id IN (SELECT id FROM "+l.active()+")"))
		}
	}
	switch {
	case l.Key != "":
		return l.list("executions WHERE id IN (" + l.keyed() + ")")
	case l.Scan <= 0:
		return l.list("executions WHERE true")
	}
	from := "(SELECT *" + l.newest()
	l.args.int(l.scan())
	if err := l.list(from + " LIMIT ?) AS executions WHERE true"); err != nil {
		return err
	}
	text := "SELECT id, created_at" + l.newest() + " LIMIT 1 OFFSET ?"
	l.args.int(l.scan() - 1)
	return l.query(l.ctx, text, func(r columns) error {
		l.last, l.at = r.id(0), machine.Time(r.int(1))
		return nil
	})
}

// active are those that have not ended, of which there are few among all that have.
func (l *listing) active() string {
	parts := []string{"worker IS NOT NULL"}
	if !store.Owned(l.States) {
		parts = append(parts, "ready_at IS NOT NULL", "ready_at IS NULL AND worker IS NULL AND state < 6")
	}
	for i, p := range parts {
		parts[i] = "SELECT id FROM executions WHERE " + p
		if !l.Before.IsZero() {
			parts[i] += " AND id < ?"
			l.args.blob(l.Before[:])
		}
	}
	l.args.int(l.scan() + 1)
	return "(" + strings.Join(parts, " UNION ALL ") + " LIMIT ?)"
}

// newest are all executions, or the children of one, newest first.
func (l *listing) newest() string {
	text := " FROM executions"
	if !l.Parent.IsZero() {
		text += " WHERE parent = ?"
		l.args.blob(l.Parent[:])
	}
	if !l.Before.IsZero() {
		text += map[bool]string{true: " WHERE", false: " AND"}[l.Parent.IsZero()] + " id < ?"
		l.args.blob(l.Before[:])
	}
	return text + " ORDER BY id DESC"
}

// keyed finds the executions of an idempotency key, in all workflows if none is named.
func (l *listing) keyed() string {
	if l.Workflow != "" {
		l.args.text(l.Workflow)
		l.args.text(l.Key)
		return "SELECT execution FROM idempotency WHERE workflow = ? AND key = ?"
	}
	l.args.text(l.Key)
	return `
WITH RECURSIVE each (workflow) AS (
    SELECT min(workflow) FROM idempotency
    UNION ALL
    SELECT (SELECT min(workflow) FROM idempotency WHERE workflow > each.workflow) FROM each WHERE each.workflow IS NOT NULL
)
SELECT k.execution FROM each CROSS JOIN idempotency k ON k.workflow = each.workflow AND k.key = ?`
}

// list reads those of what is looked at that fit.
func (l *listing) list(from string) error {
	var where []string
	add := func(condition string) { where = append(where, condition) }
	switch {
	case !l.Parent.IsZero():
		add("parent = ?")
		l.args.blob(l.Parent[:])
	case !l.Children:
		add("parent IS NULL")
	}
	if !l.Before.IsZero() {
		add("id < ?")
		l.args.blob(l.Before[:])
	}
	if len(l.States) > 0 {
		add("state IN " + marks(1, len(l.States)))
		for _, state := range l.States {
			l.args.int(int64(state))
		}
	}
	if l.Workflow != "" {
		add("workflow = ?")
		l.args.text(l.Workflow)
	}
	if l.Queue != "" {
		add("queue = ?")
		l.args.text(l.Queue)
	}
	for _, k := range slices.Sorted(maps.Keys(l.Labels)) {
		add("EXISTS (SELECT 1 FROM specs, json_each(labels) AS l WHERE execution = executions.id AND l.key = ? AND l.value = ?)")
		l.args.text(k)
		l.args.text(l.Labels[k])
	}
	limit := int64(math.MaxInt64)
	if l.Limit > 0 {
		limit = int64(l.Limit)
	}
	l.args.int(limit)
	text := strings.Replace(selectExecutions, "FROM executions", "FROM "+from, 1)
	if len(where) > 0 {
		text += " AND " + strings.Join(where, " AND ")
	}
	return l.query(l.ctx, text+" ORDER BY id DESC LIMIT ?", func(r columns) error {
		e, err := scanExecution(r, &l.policies)
		l.found = append(l.found, &machine.Record{Execution: e})
		return err
	})
}

// fill adds the specs and newest runs, with payloads if they are asked for.
func fill(ctx context.Context, c *conn, records []*machine.Record, payloads bool) error {
	by := make(map[belay.ExecutionID]*machine.Record, len(records))
	ids := make([]belay.ExecutionID, len(records))
	for i, r := range records {
		ids[i] = r.Execution.ID
		by[r.Execution.ID] = r
	}
	specs := "SELECT " + specColumns + ", NULL, 0 FROM specs"
	if payloads {
		specs = selectSpecs
	}
	err := some(ctx, c, specs+" WHERE execution IN ", ids, func(r columns) error {
		s, err := scanSpec(r)
		if err != nil {
			return err
		}
		if rec := by[s.Execution]; rec.Spec == nil || rec.Spec.Generation < s.Generation {
			rec.Spec = s
		}
		return nil
	})
	if err != nil || !payloads {
		return err
	}
	for _, rec := range records {
		r := reading{conn: c, ctx: ctx, id: rec.Execution.ID}
		if err := r.query(selectRuns+" WHERE execution = ? ORDER BY token DESC LIMIT 1", nil, r.addRun(rec)); err != nil {
			return err
		}
	}
	return nil
}

// Chunks implements store.Store.
func (s *Store) Chunks(ctx context.Context, q belay.ChunkQuery) ([]machine.Chunk, error) {
	var all []machine.Chunk
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		c.args.blob(q.Execution[:])
		c.args.text(q.Name)
		c.args.int(q.From)
		c.args.int(int64(store.ChunkLimit(q.Limit)))
		return c.query(ctx, selectChunks+" WHERE execution = ? AND name = ? AND n >= ? ORDER BY n LIMIT ?", func(r columns) error {
			all = append(all, scanChunk(r))
			return nil
		})
	})
	return all, classify("chunks of "+q.Execution.String(), err)
}

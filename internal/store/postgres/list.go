package postgres

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

var (
	selectSpecHeadsOf = "SELECT s.* FROM (SELECT unnest($1::uuid[]) AS id) u CROSS JOIN LATERAL (SELECT " + noPayload +
		" FROM specs WHERE execution = u.id ORDER BY generation DESC LIMIT 1) s"
	selectLastRunsOf = "SELECT r.* FROM (SELECT unnest($1::uuid[]) AS id) u CROSS JOIN LATERAL (" + selectRuns +
		" WHERE execution = u.id ORDER BY token DESC LIMIT 1) r"
	selectSmallRunsOf = "SELECT r.* FROM (SELECT unnest($1::uuid[]) AS id) u CROSS JOIN LATERAL (SELECT " +
		table.Runs.First(-1).Names() + ", CASE WHEN length(output) <= $2::bigint THEN output END FROM runs" +
		" WHERE execution = u.id ORDER BY token DESC LIMIT 1) r"
)

// List implements store.Store. It reads the primary key in order, or the most selective index.
func (s *Store) List(ctx context.Context, q store.List) (store.Listed, error) {
	var out store.Listed
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		l := listing{conn: c, List: q}
		p := c.pipe()
		p.add("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", nil)
		l.active(p)
		if err := p.run(ctx); err != nil {
			return err
		}
		// so many executions have not ended that reading the newest executions in order is as fast
		if l.open > l.scan() {
			l.open, l.found = 0, nil
			p = c.pipe()
			l.walk(p)
			if err := p.run(ctx); err != nil {
				return err
			}
		}
		p = c.pipe()
		fill(p, l.found, &q)
		p.add("COMMIT", nil)
		if err := p.run(ctx); err != nil {
			return err
		}
		out = store.Listed{Records: l.found}
		if q.Limit <= 0 || len(l.found) < q.Limit {
			out.Last, out.At = l.last, l.at
		}
		return nil
	})
	return out, classify("list", err)
}

// listing is a list while it is read.
type listing struct {
	*conn
	store.List
	found []*machine.Record
	open  int64 // number of executions read that have not ended
	last  belay.ExecutionID
	at    machine.Time
}

func (l *listing) scan() int64 {
	if l.Scan <= 0 {
		return math.MaxInt64 - 1
	}
	return int64(l.Scan)
}

func (l *listing) row(r columns) error {
	e, err := l.conn.scan(r)
	rec := &machine.Record{Execution: e.Execution}
	if open := e.run(); open != nil && (l.Payloads || l.Outputs > 0) {
		rec.Runs = []*machine.Run{open}
	}
	l.found = append(l.found, rec)
	return err
}

// active adds the statements for a list of executions that have not ended; they read no ended
// executions. For other lists it calls walk.
func (l *listing) active(p *pipe) {
	if !store.Active(l.States) || !l.Parent.IsZero() || l.Key != "" || len(l.IDs) > 0 {
		l.walk(p)
		return
	}
	open := table.Unended(store.Owned(l.States))
	among := func(w *where) string {
		older := ""
		if !l.Before.IsZero() {
			older = " AND id < " + w.place(l.Before)
		}
		return "(" + strings.Join(open, older+" UNION ALL ") + older + " LIMIT " + w.place(l.scan()+1) + ")"
	}
	count := where{step: p.add("", func(r columns) error { l.open = r.int(0); return nil })}
	count.text = "SELECT count(*) FROM " + among(&count) + " o"
	w := where{step: p.add("", l.row)}
	from := " FROM " + among(&w) + " o JOIN executions e ON e.id = o.id"
	l.filter(&w)
	w.end(from, l.Limit)
}

// walk adds the statement for a list. The statement examines the executions that the list names by their
// ids or by an idempotency key, and otherwise the newest executions. If the number of executions to examine
// is limited, walk adds a second statement, which reads the last execution that the first statement
// examines.
func (l *listing) walk(p *pipe) {
	w := where{step: p.add("", l.row)}
	if len(l.IDs) > 0 {
		l.filter(&w)
		w.add("e.id = ANY(" + w.place(l.IDs) + ")")
		w.end(" FROM executions e", l.Limit)
		return
	}
	if l.Key != "" {
		l.filter(&w)
		w.add("e.id = ANY(ARRAY(" + l.keyed(&w) + "))")
		w.end(" FROM executions e", l.Limit)
		return
	}
	from := " FROM executions e"
	if l.Scan > 0 {
		from = " FROM (SELECT *" + table.Newest(&l.List, w.place) + " LIMIT " + w.place(l.scan()) + ") e"
	}
	l.filter(&w)
	w.end(from, l.Limit)
	if l.Scan > 0 {
		last := where{step: p.add("", func(r columns) error {
			l.last, l.at = r.id(0), r.time(1)
			return nil
		})}
		last.text = "SELECT id, created_at" + table.Newest(&l.List, last.place) + " OFFSET " + last.place(l.scan()-1) +
			" LIMIT 1"
	}
}

// keyed finds the executions of an idempotency key, in all workflows if the list names none.
func (l *listing) keyed(w *where) string {
	key := w.place(l.Key)
	if l.Workflow != "" {
		return "SELECT execution FROM idempotency WHERE workflow = " + w.place(l.Workflow) + " AND key = " + key
	}
	return `
WITH RECURSIVE each (workflow) AS (
    (SELECT workflow FROM idempotency ORDER BY workflow LIMIT 1)
    UNION ALL
    SELECT (SELECT workflow FROM idempotency WHERE workflow > each.workflow ORDER BY workflow LIMIT 1) FROM each WHERE each.workflow IS NOT NULL
)
SELECT k.execution FROM each JOIN idempotency k ON k.workflow = each.workflow AND k.key = ` + key
}

// filter adds the conditions of a list.
func (l *listing) filter(w *where) {
	w.add(table.Conditions(&l.List, w.place, func(key, value string) string {
		return "EXISTS (SELECT 1 FROM specs WHERE execution = e.id AND labels::jsonb @> " +
			w.place(table.LabelsText(map[string]string{key: value})) + "::jsonb)"
	}))
}

// where is the statement of a list while it is built. There are many different statements for
// lists, so they are not prepared.
type where struct {
	*step
	conditions []string
}

// place adds an argument and returns its placeholder.
func (w *where) place(v any) string {
	w.once = true
	kind := "text"
	switch v := v.(type) {
	case belay.ExecutionID:
		kind = "uuid"
		w.id(v)
	case []belay.ExecutionID:
		kind = "uuid[]"
		idList(w.step, v)
	case int64:
		kind = "bigint"
		w.int(v)
	case string:
		w.string(v)
	}
	return fmt.Sprintf("$%d::%s", len(w.params), kind)
}

func (w *where) add(condition string) { w.conditions = append(w.conditions, condition) }

// end completes the statement.
func (w *where) end(from string, limit int) {
	w.text = "SELECT " + executionColumns + from + " WHERE " + strings.Join(w.conditions, " AND ") +
		" ORDER BY e.id DESC LIMIT " + w.place(boundOf(limit))
}

// fill reads the specs and newest runs of the records, with payloads if the list requests them.
func fill(p *pipe, records []*machine.Record, q *store.List) {
	by := make(map[belay.ExecutionID]*machine.Record, len(records))
	all := make([]belay.ExecutionID, len(records))
	for i, r := range records {
		all[i] = r.Execution.ID
		by[r.Execution.ID] = r
	}
	text := selectSpecHeadsOf
	if q.Payloads {
		text = selectNewestSpecs
	}
	idList(p.add(text, func(r columns) error {
		s, err := scanSpec(r)
		if err == nil {
			by[s.Execution].Spec = s
		}
		return err
	}), all)
	last := func(r columns) error {
		if rec := by[belay.ExecutionID(r.id(0))]; rec.Runs == nil {
			return into(table.Runs, &rec.Runs)(r)
		}
		return nil
	}
	switch {
	case q.Payloads:
		idList(p.add(selectLastRunsOf, last), all)
	case q.Outputs > 0:
		small := p.add(selectSmallRunsOf, last)
		idList(small, all)
		small.int(q.Outputs)
	}
}

var selectChunks = selecting(table.Chunks) +
	" WHERE execution = $1::uuid AND name = $2::text AND n >= $3::bigint ORDER BY n LIMIT $4::bigint"

// Chunks implements store.Store.
func (s *Store) Chunks(ctx context.Context, q belay.ChunkQuery) ([]machine.Chunk, error) {
	var all []machine.Chunk
	err := s.query(ctx, func(p *pipe) {
		all = nil
		p.add(selectChunks, values(table.Chunks,
			&all)).id(q.Execution).string(q.Name).int(q.From).int(int64(store.ChunkLimit(q.Limit)))
	})
	return all, classify("chunks of "+q.Execution.String(), err)
}

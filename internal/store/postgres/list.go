package postgres

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
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
		counted, count := l.counted()
		p := c.pipe()
		p.add("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", nil)
		l.measure(p)
		if count && counted.ranged() {
			counted.bound(p)
		}
		if !l.active() && !l.ranged() {
			l.walk(p)
		}
		if err := p.run(ctx); err != nil {
			return err
		}
		if l.active() || l.ranged() {
			p = c.pipe()
			if l.active() && l.open <= l.scan() {
				l.last, l.at = belay.ExecutionID{}, 0
				l.among(p)
			} else { // reading the newest executions in order is as fast
				l.walk(p)
			}
			if err := p.run(ctx); err != nil {
				return err
			}
		}
		p = c.pipe()
		fill(p, l.found, &q)
		out.States, out.Older = nil, false
		if count {
			out.States = make(map[belay.State]int)
			counted.states(p, &out)
		}
		p.add("COMMIT", nil)
		if err := p.run(ctx); err != nil {
			return err
		}
		out.Records, out.Last, out.At = l.found, belay.ExecutionID{}, 0
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

// counted returns the list whose executions are counted, and whether they are.
func (l *listing) counted() (*listing, bool) {
	of, count := l.Counted()
	return &listing{conn: l.conn, List: of}, count
}

// active reports whether the list has only executions that have not ended, which are found by indexes.
func (l *listing) active() bool {
	return store.Active(l.States) && l.Parent.IsZero() && l.Key == "" && len(l.IDs) == 0
}

// ranged reports whether the labels of the executions that the list examines are found by their range of ids. Then
// the specs of this range are read in order, which takes a tenth of the time of finding the spec of each execution.
func (l *listing) ranged() bool {
	return len(l.Labels) > 0 && l.Scan > 0 && l.Parent.IsZero() && l.Key == "" && len(l.IDs) == 0
}

// measure adds the statements whose results decide how the list is read: the number of the executions that have not
// ended, and the oldest execution to examine.
func (l *listing) measure(p *pipe) {
	if l.active() {
		count := where{step: p.add("", func(r columns) error { l.open = r.int(0); return nil })}
		count.text = "SELECT count(*) FROM " + l.unended(&count) + " o"
	}
	if l.ranged() {
		l.bound(p)
	}
}

// unended selects the executions that have not ended, one more than the list may examine.
func (l *listing) unended(w *where) string {
	older := ""
	if !l.Before.IsZero() {
		older = " AND id < " + w.place(l.Before)
	}
	return "(" + strings.Join(table.Unended(store.Owned(l.States)), older+" UNION ALL ") + older + " LIMIT " +
		w.place(l.scan()+1) + ")"
}

// among adds the statement for a list of executions that have not ended; it reads no ended executions.
func (l *listing) among(p *pipe) {
	w := where{step: p.add("", l.row)}
	from := " FROM " + l.unended(&w) + " o JOIN executions e ON e.id = o.id"
	l.filter(&w, false)
	w.end(from, l.Limit)
}

// bound adds the statement that reads the last execution that the list examines.
func (l *listing) bound(p *pipe) {
	last := where{step: p.add("", func(r columns) error {
		l.last, l.at = r.id(0), r.time(1)
		return nil
	})}
	last.text = "SELECT id, created_at" + table.Newest(&l.List, last.place) + " OFFSET " + last.place(l.scan()-1) +
		" LIMIT 1"
}

// walk adds the statement for a list. The statement examines the executions that the list names by their
// ids or by an idempotency key, and otherwise the newest executions. If the number of executions to examine
// is limited, walk adds the statement of bound, unless it has run already.
func (l *listing) walk(p *pipe) {
	w := where{step: p.add("", l.row)}
	if len(l.IDs) > 0 {
		l.filter(&w, false)
		w.add("e.id = ANY(" + w.place(l.IDs) + ")")
		w.end(" FROM executions e", l.Limit)
		return
	}
	if l.Key != "" {
		l.filter(&w, false)
		w.add("e.id = ANY(ARRAY(" + l.keyed(&w) + "))")
		w.end(" FROM executions e", l.Limit)
		return
	}
	from := " FROM executions e"
	if l.Scan > 0 {
		from = " FROM (SELECT *" + table.Newest(&l.List, w.place) + " LIMIT " + w.place(l.scan()) + ") e"
	}
	l.filter(&w, l.ranged())
	w.end(from, l.Limit)
	if l.Scan > 0 && !l.ranged() {
		l.bound(p)
	}
}

// states adds the statements that count the executions of a list by state.
func (l *listing) states(p *pipe, out *store.Listed) {
	w := where{step: p.add("", func(r columns) error {
		out.States[belay.State(r.int(0))] = int(r.int(1))
		return nil
	})}
	from := " FROM (SELECT " + table.Filtered + table.Newest(&l.List, w.place) + " LIMIT " + w.place(l.scan()) + ") e"
	l.filter(&w, l.ranged())
	w.text = "SELECT e.state, count(*)" + from + " WHERE " + strings.Join(w.conditions, " AND ") + " GROUP BY e.state"
	older := where{step: p.add("", func(columns) error { out.Older = true; return nil })}
	older.text = "SELECT 1" + table.Newest(&l.List, older.place) + " OFFSET " + older.place(l.scan()) + " LIMIT 1"
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

// filter adds the conditions of a list. ranged says that bound has found the oldest execution to examine; it has found
// none if the list examines all.
func (l *listing) filter(w *where, ranged bool) {
	q := l.List
	if ranged {
		q.Labels = nil
	}
	w.add(table.Conditions(&q, w.place, func(text string) string {
		return `position(` + text + ` in lower(e.message COLLATE "C")) > 0`
	}, func(key, value string) string {
		return "EXISTS (SELECT 1 FROM specs WHERE execution = e.id AND labels::jsonb @> " +
			w.place(table.LabelsText(map[string]string{key: value})) + "::jsonb)"
	}))
	if !ranged {
		return
	}
	specs := "SELECT execution FROM specs WHERE execution >= " + w.place(l.last)
	if !l.Before.IsZero() {
		specs += " AND execution < " + w.place(l.Before)
	}
	for _, k := range slices.Sorted(maps.Keys(l.Labels)) { // most rows lack the text, and their JSON is not parsed
		text := table.LabelsText(map[string]string{k: l.Labels[k]})
		specs += " AND position(" + w.place(text[1:len(text)-1]) + " in labels) > 0"
	}
	w.add("e.id IN (" + specs + " AND labels::jsonb @> " + w.place(table.LabelsText(l.Labels)) + "::jsonb)")
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

package sqlite

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

// List implements store.Store. It reads the primary key in order, or the most selective index.
func (s *Store) List(ctx context.Context, q store.List) (store.Listed, error) {
	var out store.Listed
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		l := listing{conn: c, ctx: ctx, List: q}
		if err := l.find(); err != nil {
			return err
		}
		out = store.Listed{Records: l.found}
		if of, counted := q.Counted(); counted {
			count := listing{conn: c, ctx: ctx, List: of}
			if err := count.states(&out); err != nil {
				return err
			}
		}
		if q.Limit <= 0 || len(l.found) < q.Limit {
			out.Last, out.At = l.last, l.at
		}
		return fill(ctx, c, out.Records, &q)
	})
	return out, classify("list", err)
}

// listing is a list while it is read.
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

// place adds an argument of the next statement and returns its placeholder.
func (l *listing) place(v any) string {
	if id, is := v.(belay.ExecutionID); is {
		v = id[:]
	}
	l.args.add(v)
	return "?"
}

func (l *listing) find() error {
	if store.Active(l.States) && l.Parent.IsZero() && l.Key == "" && len(l.IDs) == 0 {
		open := int64(0)
		err := l.query(l.ctx, "SELECT count(*) FROM "+l.active(), number(&open))
		// with more open executions, reading the newest executions in order is as fast
		if err != nil || open <= l.scan() {
			return firstOf(err, l.list("executions e WHERE e.id IN (SELECT id FROM "+l.active()+")"))
		}
	}
	switch {
	case len(l.IDs) > 0:
		return l.named()
	case l.Key != "":
		return l.list("executions e WHERE e.id IN (" + l.keyed() + ")")
	case l.Scan <= 0:
		return l.list("executions e WHERE true")
	}
	if err := l.walk(); err != nil {
		return err
	}
	text := "SELECT id, created_at" + table.Newest(&l.List, l.place) + " LIMIT 1 OFFSET ?"
	l.args.int(l.scan() - 1)
	return l.query(l.ctx, text, func(r columns) error {
		l.last, l.at = r.id(0), machine.Time(r.int(1))
		return nil
	})
}

// walk examines the newest executions, of which it reads only the columns of the conditions, and then reads
// the executions that match.
func (l *listing) walk() error {
	from := "(SELECT " + table.Filtered + table.Newest(&l.List, l.place)
	l.args.int(l.scan())
	where := l.conditions()
	l.args.int(most(l.Limit))
	return l.rows(selectExecutions + " WHERE id IN (SELECT e.id FROM " + from + " LIMIT ?) AS e WHERE " + where +
		" ORDER BY e.id DESC LIMIT ?) ORDER BY id DESC")
}

// states counts the executions of a list by state.
func (l *listing) states(out *store.Listed) error {
	out.States = make(map[belay.State]int)
	text := "SELECT e.state, count(*) FROM (SELECT " + table.Filtered + table.Newest(&l.List, l.place)
	l.args.int(l.scan())
	text += " LIMIT ?) AS e WHERE " + l.conditions() + " GROUP BY e.state"
	err := l.query(l.ctx, text, func(r columns) error {
		out.States[belay.State(r.int(0))] = int(r.int(1))
		return nil
	})
	if err != nil {
		return err
	}
	text = "SELECT 1" + table.Newest(&l.List, l.place) + " LIMIT 1 OFFSET ?"
	l.args.int(l.scan())
	return l.query(l.ctx, text, func(columns) error { out.Older = true; return nil })
}

// named reads the executions that the list names by their ids.
func (l *listing) named() error {
	err := inLists(l.conn, l.IDs, func(list string) error { return l.list("executions e WHERE e.id IN " + list) })
	slices.SortFunc(l.found, func(a, b *machine.Record) int { return b.Execution.ID.Compare(a.Execution.ID) })
	if l.Limit > 0 && len(l.found) > l.Limit {
		l.found = l.found[:l.Limit]
	}
	return err
}

// active selects the executions that have not ended.
func (l *listing) active() string {
	parts := table.Unended(store.Owned(l.States))
	for i := range parts {
		if !l.Before.IsZero() {
			parts[i] += " AND id < " + l.place(l.Before)
		}
	}
	l.args.int(l.scan() + 1)
	return "(" + strings.Join(parts, " UNION ALL ") + " LIMIT ?)"
}

// keyed finds the executions of an idempotency key, in all workflows if the list names none.
func (l *listing) keyed() string {
	if l.Workflow != "" {
		l.args.text(l.Workflow).text(l.Key)
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

// list reads the executions that match the conditions of the list. The parameter from has the FROM
// clause and the first condition of the statement.
func (l *listing) list(from string) error {
	where := l.conditions()
	l.args.int(most(l.Limit))
	text := strings.Replace(selectExecutions, "FROM executions", "FROM "+from, 1) + " AND " + where
	return l.rows(text + " ORDER BY id DESC LIMIT ?")
}

// conditions returns the conditions of the list, and adds their arguments.
func (l *listing) conditions() string {
	return table.Conditions(&l.List, l.place, func(text string) string {
		return "instr(lower(e.message), " + text + ") > 0"
	}, func(key, value string) string {
		// most rows lack the text of the label, and their JSON is then not parsed
		text := table.LabelsText(map[string]string{key: value})
		l.args.text(text[1 : len(text)-1]).text(key).text(value)
		return "EXISTS (SELECT 1 FROM specs WHERE execution = e.id AND instr(labels, ?) > 0 AND EXISTS (" +
			"SELECT 1 FROM json_each(labels) AS l WHERE l.key = ? AND l.value = ?))"
	})
}

// rows reads the executions that a statement selects.
func (l *listing) rows(text string) error {
	return l.query(l.ctx, text, func(r columns) error {
		e, err := l.scanExecution(r)
		l.found = append(l.found, &machine.Record{Execution: e})
		return err
	})
}

// fill adds the specs and newest runs to executions, with payloads if the list requests them.
func fill(ctx context.Context, c *conn, records []*machine.Record, q *store.List) error {
	by := make(map[belay.ExecutionID]*machine.Record, len(records))
	ids := make([]belay.ExecutionID, len(records))
	for i, r := range records {
		ids[i] = r.Execution.ID
		by[r.Execution.ID] = r
	}
	specs := selectSpecHeads
	if q.Payloads {
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
	if err != nil || !q.Payloads && q.Outputs <= 0 {
		return err
	}
	for _, rec := range records {
		runs := selectRuns
		if !q.Payloads {
			runs = selectSmallRuns
			c.args.int(q.Outputs)
		}
		c.args.blob(rec.Execution.ID[:])
		if err := c.query(ctx, runs+" WHERE execution = ? ORDER BY token DESC LIMIT 1",
			into(table.Runs, &rec.Runs)); err != nil {
			return err
		}
	}
	return nil
}

// Chunks implements store.Store.
func (s *Store) Chunks(ctx context.Context, q belay.ChunkQuery) ([]machine.Chunk, error) {
	var all []machine.Chunk
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		c.args.blob(q.Execution[:]).text(q.Name).int(q.From).int(int64(store.ChunkLimit(q.Limit)))
		return c.query(ctx, selectChunks+" WHERE execution = ? AND name = ? AND n >= ? ORDER BY n LIMIT ?",
			values(table.Chunks, &all))
	})
	return all, classify("chunks of "+q.Execution.String(), err)
}

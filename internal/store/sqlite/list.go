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
func (s *Store) List(ctx context.Context, q store.List) ([]*machine.Record, error) {
	var out []*machine.Record
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		text := listing(c, q)
		err := c.query(ctx, text, func(r columns) error {
			e, err := scanExecution(r, &c.policies)
			out = append(out, &machine.Record{Execution: e})
			return err
		})
		if err != nil {
			return err
		}
		return fill(ctx, c, out, q.Payloads)
	})
	return out, classify("list", err)
}

// listing is the statement for a list; its arguments are gathered in c.
func listing(c *conn, q store.List) string {
	var where []string
	add := func(condition string) { where = append(where, condition) }
	switch {
	case !q.Parent.IsZero():
		add("parent = ?")
		c.args.blob(q.Parent[:])
	case !q.Children:
		add("parent IS NULL")
	}
	if !q.Before.IsZero() {
		add("id < ?")
		c.args.blob(q.Before[:])
	}
	if len(q.States) > 0 {
		add("state IN " + marks(1, len(q.States)))
		for _, state := range q.States {
			c.args.int(int64(state))
		}
		if owned(q.States) {
			add("worker IS NOT NULL")
		}
	}
	if q.Workflow != "" {
		add("workflow = ?")
		c.args.text(q.Workflow)
	}
	if q.Queue != "" {
		add("queue = ?")
		c.args.text(q.Queue)
	}
	if q.Key != "" {
		add("EXISTS (SELECT 1 FROM specs WHERE execution = id AND key = ?)")
		c.args.text(q.Key)
	}
	for _, k := range slices.Sorted(maps.Keys(q.Labels)) {
		add("EXISTS (SELECT 1 FROM specs, json_each(labels) AS l WHERE execution = executions.id AND l.key = ? AND l.value = ?)")
		c.args.text(k)
		c.args.text(q.Labels[k])
	}
	limit := int64(math.MaxInt64)
	if q.Limit > 0 {
		limit = int64(q.Limit)
	}
	c.args.int(limit)
	text := selectExecutions
	if len(where) > 0 {
		text += " WHERE " + strings.Join(where, " AND ")
	}
	return text + " ORDER BY id DESC LIMIT ?"
}

// owned reports whether only executions with an owner are in these states.
func owned(states []belay.State) bool {
	for _, s := range states {
		if s != belay.Running && s != belay.Scheduled {
			return false
		}
	}
	return true
}

// fill adds the specs and newest runs, with payloads if they are asked for.
func fill(ctx context.Context, c *conn, records []*machine.Record, payloads bool) error {
	by := make(map[belay.ExecutionID]*machine.Record, len(records))
	ids := make([]belay.ExecutionID, len(records))
	for i, r := range records {
		ids[i] = r.Execution.ID
		by[r.Execution.ID] = r
	}
	specs := "SELECT " + specColumns + ", NULL FROM specs"
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

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
)

const (
	selectSpecsOf     = "SELECT s.* FROM (SELECT unnest($1::uuid[]) AS id) u CROSS JOIN LATERAL (SELECT " + specColumns + " FROM specs WHERE execution = u.id ORDER BY generation DESC LIMIT 1) s"
	selectSpecHeadsOf = "SELECT s.* FROM (SELECT unnest($1::uuid[]) AS id) u CROSS JOIN LATERAL (SELECT " + specHeads + " FROM specs WHERE execution = u.id ORDER BY generation DESC LIMIT 1) s"
	selectLastRunsOf  = "SELECT r.* FROM (SELECT unnest($1::uuid[]) AS id) u CROSS JOIN LATERAL (" + selectRuns + " WHERE execution = u.id ORDER BY token DESC LIMIT 1) r"
)

// List implements store.Store. It walks the primary key, or the index of what
// narrows the list most.
func (s *Store) List(ctx context.Context, q store.List) ([]*machine.Record, error) {
	var out []*machine.Record
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		out = nil
		p := c.pipe()
		p.add("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", nil)
		listing(p, q, func(r columns) error {
			e, err := c.scan(r)
			rec := &machine.Record{Execution: e.Execution}
			if open := e.run(); open != nil && q.Payloads {
				rec.Runs = []*machine.Run{open}
			}
			out = append(out, rec)
			return err
		})
		if err := p.run(ctx); err != nil {
			return err
		}
		p = c.pipe()
		fill(p, out, q.Payloads)
		p.add("COMMIT", nil)
		return p.run(ctx)
	})
	return out, classify("list", err)
}

// listing adds the statement for a list.
func listing(p *pipe, q store.List, row func(columns) error) {
	s := p.add("", row)
	s.once = true // lists come in many shapes
	var where []string
	add := func(condition string, bind func()) {
		bind()
		where = append(where, strings.ReplaceAll(condition, "?", fmt.Sprintf("$%d", len(s.params))))
	}
	switch {
	case !q.Parent.IsZero():
		add("e.parent = ?::uuid", func() { s.id(q.Parent) })
	case !q.Children:
		where = append(where, "e.parent IS NULL")
	}
	if !q.Before.IsZero() {
		add("e.id < ?::uuid", func() { s.id(q.Before) })
	}
	if len(q.States) > 0 {
		add("e.state = ANY(?::smallint[])", func() { ints(s, int2s, q.States, func(x belay.State) int64 { return int64(x) }) })
	}
	if q.Workflow != "" {
		add("e.workflow = ?::text", func() { s.string(q.Workflow) })
	}
	if q.Queue != "" {
		add("e.queue = ?::text", func() { s.string(q.Queue) })
	}
	if q.Key != "" {
		add("EXISTS (SELECT 1 FROM specs WHERE execution = e.id AND key = ?::text)", func() { s.string(q.Key) })
	}
	for _, k := range slices.Sorted(maps.Keys(q.Labels)) {
		b := labelsText(map[string]string{k: q.Labels[k]})
		add("EXISTS (SELECT 1 FROM specs WHERE execution = e.id AND labels::jsonb @> ?::text::jsonb)", func() { s.string(b) })
	}
	limit := int64(math.MaxInt64)
	if q.Limit > 0 {
		limit = int64(q.Limit)
	}
	s.int(limit)
	s.text = "SELECT " + executionColumns + " FROM executions e"
	if owned(q.States) { // of many that ended long ago none is read
		s.text = "SELECT " + executionColumns + " FROM (SELECT id FROM executions WHERE worker IS NOT NULL OFFSET 0) o JOIN executions e ON e.id = o.id"
	}
	if len(where) > 0 {
		s.text += " WHERE " + strings.Join(where, " AND ")
	}
	s.text += fmt.Sprintf(" ORDER BY e.id DESC LIMIT $%d::bigint", len(s.params))
}

// owned reports whether only executions with an owner are in these states.
func owned(states []belay.State) bool {
	if len(states) == 0 {
		return false
	}
	for _, s := range states {
		if s != belay.Running && s != belay.Scheduled {
			return false
		}
	}
	return true
}

// fill asks for the specs and newest runs, with payloads if they are asked for.
func fill(p *pipe, records []*machine.Record, payloads bool) {
	by := make(map[belay.ExecutionID]*machine.Record, len(records))
	all := make([]belay.ExecutionID, len(records))
	for i, r := range records {
		all[i] = r.Execution.ID
		by[r.Execution.ID] = r
	}
	text := selectSpecHeadsOf
	if payloads {
		text = selectSpecsOf
	}
	idList(p.add(text, func(r columns) error {
		s, err := p.scanSpec(r)
		if err == nil {
			by[s.Execution].Spec = s
		}
		return err
	}), all)
	if payloads {
		idList(p.add(selectLastRunsOf, func(r columns) error {
			if rec := by[belay.ExecutionID(r.id(0))]; rec.Runs == nil {
				rec.Runs = []*machine.Run{scanRun(r)}
			}
			return nil
		}), all)
	}
}

const (
	selectChunks = "SELECT " + chunkColumns + " FROM blobs WHERE execution = $1::uuid AND name = $2::text AND n >= $3::bigint ORDER BY n LIMIT $4::bigint"
)

// Chunks implements store.Store.
func (s *Store) Chunks(ctx context.Context, q belay.ChunkQuery) ([]machine.Chunk, error) {
	var all []machine.Chunk
	err := s.query(ctx, func(p *pipe) {
		all = nil
		p.add(selectChunks, func(r columns) error {
			all = append(all, scanChunk(r))
			return nil
		}).id(q.Execution).string(q.Name).int(q.From).int(int64(store.ChunkLimit(q.Limit)))
	})
	return all, classify("chunks of "+q.Execution.String(), err)
}

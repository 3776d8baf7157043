package postgres

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

var lockLine = `
SELECT q.n, e.*
FROM (SELECT unnest($1::bigint[]) AS n, unnest($2::text[]) AS gate, unnest($3::bigint[]) AS most) q
CROSS JOIN LATERAL (
    SELECT ` + executionColumns + ` FROM executions e
    WHERE e.gate = q.gate
    ORDER BY coalesce(e.gate_rank, 0), e.due_at, e.id
    LIMIT q.most
    FOR NO KEY UPDATE SKIP LOCKED
) e`

const (
	findLaneGates = "SELECT name FROM objects WHERE kind = 'gate' AND name = ANY($1::text[])"

	countGates = `
SELECT g.n, (SELECT count(*) FROM places WHERE gate = g.gate AND held),
       (SELECT count(*) FROM (SELECT 1 FROM places WHERE gate = g.gate LIMIT $4::bigint) m),
       (SELECT count(*) FROM (SELECT 1 FROM executions WHERE gate = g.gate LIMIT $3::bigint) l)
FROM (SELECT unnest($1::bigint[]) AS n, unnest($2::text[]) AS gate) g`

	selectUnder = `
SELECT q.n, m.execution, m.held
FROM (SELECT unnest($1::bigint[]) AS n, unnest($2::text[]) AS gate, unnest($3::bigint[]) AS most,
             unnest($4::uuid[]) AS after) q
CROSS JOIN LATERAL (
    SELECT execution, held FROM places
    WHERE gate = q.gate AND execution > q.after
    ORDER BY execution
    LIMIT q.most
) m`

	writePlaces = `
INSERT INTO places (gate, execution, held)
SELECT unnest($1::text[]), unnest($2::uuid[]), unnest($3::bigint[]) <> 0
ON CONFLICT (gate, execution) DO UPDATE SET held = excluded.held`

	deletePlaces = `
DELETE FROM places p
USING (SELECT unnest($1::text[]) AS gate, unnest($2::uuid[]) AS execution) u
WHERE p.gate = u.gate AND p.execution = u.execution`

	selectHolders = "SELECT execution FROM places WHERE gate = $1::text AND held ORDER BY execution LIMIT $2::bigint"
	selectHeads   = `
SELECT id FROM executions
WHERE gate = $1::text
ORDER BY coalesce(gate_rank, 0), due_at, id
LIMIT $2::bigint`

	selectDueObjects = `
SELECT kind, name, next_at, CASE kind WHEN 'schedule' THEN body END FROM objects
WHERE next_at <= $1::bigint
ORDER BY next_at, kind, name
LIMIT $2::bigint`
	selectNextObject = "SELECT min(next_at) FROM objects WHERE next_at > $1::bigint"
)

// lockLines locks and reads the first executions that wait at gates (the heads of the gates'
// lines). It skips rows that another transaction has locked, so that it never waits for a lock.
func (t *tx) lockLines(p *pipe, queries []machine.LineQuery) {
	t.rows.Lines = make([]machine.GateLine, len(queries))
	for i, q := range queries {
		t.rows.Lines[i].Gate = q.Gate
	}
	if len(queries) == 0 {
		return
	}
	s := p.add(lockLine, func(r columns) error {
		line, e := &t.rows.Lines[r.int(0)], r[1:]
		line.Heads = append(line.Heads, belay.ExecutionID(e.id(0)))
		return t.found(e, true)
	})
	numbers(s, len(queries))
	texts(s, queries, func(q machine.LineQuery) string { return string(q.Gate) })
	ints(s, int8s, queries, func(q machine.LineQuery) int64 { return int64(q.Limit) })
}

// findLaneGates finds out, without a lock, which of the named gates of queues and workflows exist.
func (t *tx) findLaneGates(p *pipe, all []belay.GateID) {
	if len(all) == 0 {
		return
	}
	s := p.add(findLaneGates, func(r columns) error {
		t.rows.LaneGates = append(t.rows.LaneGates, belay.GateID(r.text(0)))
		return nil
	})
	texts(s, all, func(id belay.GateID) string { return string(id) })
}

// numbers adds an array of the numbers from 0 to n-1 to the arguments of a statement.
func numbers(s *step, n int) {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	ints(s, int8s, all, func(i int) int64 { return int64(i) })
}

// countGates counts the places and executions of gates, after the gates were locked, and reads the
// members of limits: the executions that name a limit and have not ended.
func (t *tx) countGates(p *pipe, more machine.Further, members []machine.MemberQuery) {
	if counts := more.Counts; len(counts) > 0 {
		s := p.add(countGates, func(r columns) error {
			t.rows.Counts = append(t.rows.Counts, machine.GateCount{
				Gate: counts[r.int(0)], Held: int(r.int(1)), Members: int(r.int(2)), Line: int(r.int(3)),
			})
			return nil
		})
		numbers(s, len(counts))
		texts(s, counts, func(id belay.GateID) string { return string(id) })
		s.int(machine.MaxHeads + 1).int(int64(more.CountMembers))
	}
	if len(members) > 0 {
		s := p.add(selectUnder, func(r columns) error {
			t.rows.Members = append(t.rows.Members, machine.Place{
				Gate: members[r.int(0)].Gate, Execution: r.id(1), Held: r.bool(2),
			})
			return nil
		})
		numbers(s, len(members))
		texts(s, members, func(q machine.MemberQuery) string { return string(q.Gate) })
		ints(s, int8s, members, func(q machine.MemberQuery) int64 { return int64(q.Limit) })
		after := make([]belay.ExecutionID, len(members))
		for i, q := range members {
			after[i] = q.After
		}
		idList(s, after)
	}
}

// writePlaces writes and deletes rows of places.
func (t *tx) writePlaces(p *pipe, c *machine.Changes) error {
	gone, there := split(c.Places, func(x *machine.Place) bool { return x.Gone })
	gate := func(x *machine.Place) string { return string(x.Gate) }
	execution := func(x *machine.Place) [16]byte { return x.Execution }
	if len(there) > 0 {
		s := p.add(writePlaces, nil)
		texts(s, there, gate)
		uuids(s, there, execution)
		ints(s, int8s, there, func(x *machine.Place) int64 {
			if x.Held {
				return 1
			}
			return 0
		})
	}
	if len(gone) > 0 {
		s := p.add(deletePlaces, nil)
		texts(s, gone, gate)
		uuids(s, gone, execution)
	}
	return nil
}

// objects finds the objects that the sweeper must check now, and the time of the next check of an
// object.
func (k *dueLook) objects(p *pipe, due *store.Due, most int64) {
	p.add(selectDueObjects, func(r columns) error {
		ref := machine.ObjectRef{Kind: machine.ObjectKind(r.text(0)), Name: r.text(1)}
		due.Objects = append(due.Objects, &machine.Object{ObjectRef: ref, NextAt: r.time(2), Body: r.blob(3)})
		return nil
	}).int(int64(k.now)).int(most)
	p.add(selectNextObject, func(r columns) error {
		due.NextObject = r.time(0)
		return nil
	}).int(int64(k.now))
}

var selectObject = selecting(table.Objects) + " WHERE kind = $1::text AND name = $2::text"

// showGate reads a gate's object and counts, the executions that have a place in it, and its line
// (the executions that wait at it).
func showGate(p *pipe, q store.Query, f *store.Filling, limit int64) {
	ref, id := machine.GateRef(q.Gate), string(q.Gate)
	p.add(selectObject, func(r columns) (err error) {
		f.Gate.Object, err = table.Scan(table.Objects, r)
		return err
	}).string(string(ref.Kind)).string(ref.Name)
	s := p.add(countGates, func(r columns) error {
		f.Gate.Count = machine.GateCount{
			Gate: q.Gate, Held: int(r.int(1)), Line: int(r.int(3)),
		}
		return nil
	})
	numbers(s, 1)
	texts(s, []string{id}, func(id string) string { return id })
	s.int(machine.MaxHeads + 1).int(0)
	ids := func(into *[]belay.ExecutionID) func(columns) error {
		return func(r columns) error {
			*into = append(*into, belay.ExecutionID(r.id(0)))
			return nil
		}
	}
	p.add(selectHolders, ids(&f.Gate.Holders)).string(id).int(limit)
	p.add(selectHeads, ids(&f.Gate.Heads)).string(id).int(limit)
}

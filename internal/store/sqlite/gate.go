package sqlite

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

const (
	selectLine = `
SELECT id
FROM executions
WHERE gate = ?
ORDER BY gate_rank, due_at, id
LIMIT ?`

	countGate = `
SELECT (SELECT count(*) FROM places WHERE gate = ?1 AND held = 1), (SELECT count(*) FROM (SELECT 1 FROM places WHERE gate = ?1 LIMIT ?3)),
       (SELECT count(*) FROM (SELECT 1 FROM executions WHERE gate = ?1 LIMIT ?2))`

	selectHolders = "SELECT execution FROM places WHERE gate = ? AND held = 1 ORDER BY execution LIMIT ?"
	selectUnder   = "SELECT execution, held FROM places WHERE gate = ? AND execution > ? ORDER BY execution LIMIT ?"

	writePlace = `
INSERT INTO places (gate, execution, held)
VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET held = excluded.held`
	deletePlace = "DELETE FROM places WHERE gate = ? AND execution = ?"

	findGate = "SELECT 1 FROM objects WHERE kind = 'gate' AND name = ?"

	selectDueObjects = "SELECT kind, name, next_at, CASE kind WHEN 'schedule' THEN body END FROM objects " +
		"WHERE next_at <= ? ORDER BY next_at, kind, name LIMIT ?"
	selectNextObject = "SELECT min(next_at) FROM objects WHERE next_at > ?"
)

// line reads the first executions that wait at a gate. It reads only an index, not the rows.
func (t *tx) line(q machine.LineQuery) (machine.GateLine, error) {
	line := machine.GateLine{Gate: q.Gate}
	t.args.text(string(q.Gate)).int(int64(q.Limit))
	err := t.query(t.ctx, selectLine, idsInto(&line.Heads))
	return line, err
}

// findLaneGates finds out which of the named gates of queues and workflows exist.
func (t *tx) findLaneGates(rows *machine.Rows, all []belay.GateID) error {
	for _, id := range all {
		t.args.text(string(id))
		err := t.query(t.ctx, findGate, func(columns) error {
			rows.LaneGates = append(rows.LaneGates, id)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// loadGates counts the places and executions of gates, and reads the members of limits: the
// executions that name a limit and have not ended.
func (t *tx) loadGates(rows *machine.Rows, more machine.Further, members []machine.MemberQuery) error {
	for _, id := range more.Counts {
		count, err := t.countGate(t.ctx, id, more.CountMembers)
		if err != nil {
			return err
		}
		rows.Counts = append(rows.Counts, count)
	}
	for _, q := range members {
		t.args.text(string(q.Gate)).blob(q.After[:]).int(int64(q.Limit))
		err := t.query(t.ctx, selectUnder, func(r columns) error {
			rows.Members = append(rows.Members, machine.Place{Gate: q.Gate, Execution: r.id(0), Held: r.int(1) != 0})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writePlaces writes and deletes rows of places.
func (t *tx) writePlaces(c *machine.Changes) error {
	for _, p := range c.Places {
		t.args.text(string(p.Gate)).blob(p.Execution[:])
		text := deletePlace
		if !p.Gone {
			held := int64(0)
			if p.Held {
				held = 1
			}
			t.args.int(held)
			text = writePlace
		}
		if _, err := t.exec(t.ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// objects finds the objects that the sweeper must check now, and the time of the next check of an
// object.
func (d *dueQuery) objects(due *store.Due) error {
	d.args.int(d.now).int(d.limit)
	err := d.query(d.ctx, selectDueObjects, func(r columns) error {
		ref := machine.ObjectRef{Kind: machine.ObjectKind(r.text(0)), Name: r.text(1)}
		due.Objects = append(due.Objects, &machine.Object{
			ObjectRef: ref, NextAt: machine.Time(r.int(2)), Body: r.blob(3),
		})
		return nil
	})
	if err != nil {
		return err
	}
	d.args.int(d.now)
	return d.query(d.ctx, selectNextObject, func(r columns) error {
		due.NextObject = machine.Time(r.int(0))
		return nil
	})
}

// countGate counts the places and executions of a gate, and its members up to a number.
func (c *conn) countGate(ctx context.Context, id belay.GateID, members int) (count machine.GateCount, err error) {
	c.args.text(string(id)).int(machine.MaxHeads + 1).int(int64(members))
	err = c.query(ctx, countGate, func(r columns) error {
		count = machine.GateCount{Gate: id, Held: int(r.int(0)), Members: int(r.int(1)), Line: int(r.int(2))}
		return nil
	})
	return count, err
}

// showGate reads a gate's object and counts, the executions that have a place in it, and its line
// (the executions that wait at it).
func (c *conn) showGate(ctx context.Context, q store.Query, f *store.Filling, limit int64) (err error) {
	ref := machine.GateRef(q.Gate)
	c.args.text(string(ref.Kind))
	c.args.text(ref.Name)
	var objects []*machine.Object
	if err := c.query(ctx, selectObject, into(table.Objects, &objects)); err != nil {
		return err
	}
	if len(objects) > 0 {
		f.Gate.Object = objects[0]
	}
	if f.Gate.Count, err = c.countGate(ctx, q.Gate, 0); err != nil {
		return err
	}
	c.args.text(string(q.Gate)).int(limit)
	if err := c.query(ctx, selectHolders, idsInto(&f.Gate.Holders)); err != nil {
		return err
	}
	c.args.text(string(q.Gate)).int(limit)
	return c.query(ctx, selectLine, idsInto(&f.Gate.Heads))
}

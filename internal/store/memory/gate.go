package memory

import (
	"cmp"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// placeKey is the key of an execution's row in a gate.
type placeKey struct {
	gate      belay.GateID
	execution belay.ExecutionID
}

// line returns the first executions that wait at a gate.
func (s *Store) line(q machine.LineQuery) machine.GateLine {
	line := machine.GateLine{Gate: q.Gate}
	for _, e := range bounded(s.parked(q.Gate), q.Limit) {
		line.Heads = append(line.Heads, e.ID)
	}
	return line
}

// parked returns the executions that wait at a gate, in the order of its line.
func (s *Store) parked(gate belay.GateID) []*machine.Execution {
	all := s.where(func(e *machine.Execution) bool { return e.Gate == gate })
	slices.SortStableFunc(all, func(a, b *machine.Execution) int {
		return cmp.Or(cmp.Compare(a.GateRank, b.GateRank), cmp.Compare(a.DueAt, b.DueAt))
	})
	return all
}

// loadGates counts the places and executions of gates, and reads the members of limits: the
// executions that name a limit and have not ended.
func (s *Store) loadGates(rows *machine.Rows, more machine.Further, members []machine.MemberQuery) {
	for _, id := range more.Counts {
		c := machine.GateCount{Gate: id, Line: min(len(s.parked(id)), machine.MaxHeads+1)}
		for key, held := range s.places {
			if key.gate == id {
				c.Members++
				if held {
					c.Held++
				}
			}
		}
		c.Members = min(c.Members, more.CountMembers)
		rows.Counts = append(rows.Counts, c)
	}
	for _, q := range members {
		var all []machine.Place
		for key, held := range s.places {
			if key.gate == q.Gate && key.execution.Compare(q.After) > 0 {
				all = append(all, machine.Place{Gate: key.gate, Execution: key.execution, Held: held})
			}
		}
		slices.SortFunc(all, func(a, b machine.Place) int { return a.Execution.Compare(b.Execution) })
		rows.Members = append(rows.Members, bounded(all, q.Limit)...)
	}
}

// writePlaces writes and deletes rows of places.
func (t *tx) writePlaces(c *machine.Changes) {
	for _, p := range c.Places {
		key := placeKey{p.Gate, p.Execution}
		if p.Gone {
			delete(t.places, key)
		} else {
			t.places[key] = p.Held
		}
	}
}

// dueObjects adds the objects that the sweeper must check now, and the time of the next check of an
// object.
func (s *Store) dueObjects(due *store.Due, now machine.Time, limit int) {
	var all []*machine.Object
	for _, o := range s.objects {
		if o.NextAt != 0 {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *machine.Object) int {
		return cmp.Or(cmp.Compare(a.NextAt, b.NextAt), a.Compare(b.ObjectRef))
	})
	for _, o := range all {
		switch {
		case o.NextAt <= now:
			d := &machine.Object{ObjectRef: o.ObjectRef, NextAt: o.NextAt}
			if o.Kind == machine.ScheduleObject {
				d.Body = o.Body
			}
			due.Objects = append(due.Objects, d)
		case due.NextObject == 0:
			due.NextObject = o.NextAt
		}
	}
	due.Objects = bounded(due.Objects, limit)
}

// showGate reads a gate's object and counts, the executions that have a place in it, and its line
// (the executions that wait at it).
func (s *Store) showGate(q store.Query, f *store.Filling) {
	var rows machine.Rows
	s.loadGates(&rows, machine.Further{Counts: []belay.GateID{q.Gate}}, nil)
	limit, _ := q.Bounds()
	f.Gate.Count = rows.Counts[0]
	if o := s.objects[machine.GateRef(q.Gate)]; o != nil {
		f.Gate.Object = copyObject(o)
	}
	for key, held := range s.places {
		if key.gate == q.Gate && held {
			f.Gate.Holders = append(f.Gate.Holders, key.execution)
		}
	}
	slices.SortFunc(f.Gate.Holders, belay.ExecutionID.Compare)
	f.Gate.Holders = bounded(f.Gate.Holders, int(limit))
	f.Gate.Heads = s.line(machine.LineQuery{Gate: q.Gate, Limit: int(limit)}).Heads
}

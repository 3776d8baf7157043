package machine

import (
	"cmp"
	"slices"

	"github.com/belaydev/belay"
)

// PlaceKey names a row of an execution in a gate.
type PlaceKey struct {
	gate      belay.GateID
	execution belay.ExecutionID
}

// parked are the executions that wait at a gate, in order.
func (k *keeper) parked(gate belay.GateID) []*Execution {
	all := k.where(func(e *Execution) bool { return e.Gate == gate })
	slices.SortStableFunc(all, func(a, b *Execution) int {
		return cmp.Or(cmp.Compare(a.GateRank, b.GateRank), cmp.Compare(a.DueAt, b.DueAt))
	})
	return all
}

// held returns the executions that have a place in a gate, and the members of a limit (all
// executions with a row in its gate), both sorted by id.
func (k *keeper) held(gate belay.GateID) (held, members []belay.ExecutionID) {
	for key, has := range k.places {
		if key.gate == gate {
			members = append(members, key.execution)
			if has {
				held = append(held, key.execution)
			}
		}
	}
	slices.SortFunc(held, belay.ExecutionID.Compare)
	slices.SortFunc(members, belay.ExecutionID.Compare)
	return held, members
}

// count answers the requests for the counts and the members of gates.
func (k *keeper) count(rows *Rows, more Further, queries []MemberQuery) {
	for _, id := range more.Counts {
		held, members := k.held(id)
		rows.Counts = append(rows.Counts, GateCount{
			Gate: id, Held: len(held), Members: min(len(members), more.CountMembers),
			Line: min(len(k.parked(id)), MaxHeads+1),
		})
	}
	for _, q := range queries {
		_, members := k.held(q.Gate)
		members = slices.DeleteFunc(members, func(id belay.ExecutionID) bool { return id.Compare(q.After) <= 0 })
		for _, id := range members[:min(len(members), q.Limit)] {
			held := k.places[PlaceKey{q.Gate, id}]
			rows.Members = append(rows.Members, Place{Gate: q.Gate, Execution: id, Held: held})
		}
	}
}

package postgres

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// looking returns a transaction that has searched a lane (the executions with equal queue,
// workflow, version, priority and labels) for due executions and found none.
func looking(s *Store, lane machine.LaneID, at machine.Time) *tx {
	from, lowered := s.floors.from(lane)
	return &tx{
		store: s, cutoff: at, looks: []look{{machine.ReadyQuery{Lane: lane, Limit: 1}, 0, from, lowered}},
		rows: &machine.Rows{Ready: make([]machine.ReadyLane, 1)},
	}
}

// floor is the ready time from which on the next claim searches a lane (a group of executions).
func (f *floors) floor(lane machine.LaneID) machine.Time {
	at, _ := f.from(lane)
	return at
}

// A hint (a message of another server about a commit) lowers the floor of a lane (the ready time
// from which on claims search it), and so does a commit of this server. A search that began before
// the hint or the commit does not raise the floor again.
func TestHintsLowerFloors(t *testing.T) {
	const lane, at, ready = machine.LaneID(7), machine.Time(60_000_000), machine.Time(1_000_000)
	for name, lower := range map[string]func(*Store){
		"a hint": func(s *Store) {
			s.floors.onHint(store.Hint{Lanes: []store.LaneHint{{Lane: lane, At: ready}}})
		},
		"a hint of any lane": func(s *Store) { s.floors.onHint(store.Hint{AnyLane: ready}) },
		"a lost hint":        func(s *Store) { s.floors.onHint(store.Hint{Lost: true}) },
		"a commit": func(s *Store) {
			s.floors.lower([]*machine.Execution{{Lane: lane, State: belay.Pending, DueAt: ready}})
		},
	} {
		for _, underway := range []bool{false, true} {
			s := &Store{}
			s.floors.looked(looking(s, lane, at), 0)
			if from := s.floors.floor(lane); from != at.Add(-floorAge) {
				t.Fatalf("after a look the next begins at %d", from)
			}
			slow := looking(s, lane, at+1)
			lower(s)
			if underway {
				s.floors.looked(slow, 0)
			}
			if from := s.floors.floor(lane); from > ready {
				t.Errorf("%s, a look under way %t: the next look begins at %d, above the execution at %d", name,
					underway, from, ready)
			}
			s.floors.looked(looking(s, lane, at+2), time.Millisecond)
			if from := s.floors.floor(lane); from != (at + 2).Add(-floorAge) {
				t.Errorf("%s, a look under way %t: after the next look the one after it begins at %d", name, underway,
					from)
			}
		}
	}
}

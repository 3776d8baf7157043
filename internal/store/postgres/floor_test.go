package postgres

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// looking is a transaction that looks for what is due in a lane and finds nothing.
func looking(s *Store, lane machine.LaneID, at machine.Time) *tx {
	from, lowered := s.floors.from(lane)
	return &tx{
		store: s, cutoff: at, looks: []look{{machine.ReadyQuery{Lane: lane, Limit: 1}, 0, from, lowered}},
		rows: &machine.Rows{Ready: make([]machine.ReadyLane, 1)},
	}
}

// floor is where the next look at a lane begins.
func (f *floors) floor(lane machine.LaneID) machine.Time {
	at, _ := f.from(lane)
	return at
}

// A hint lowers the floor of the server that hears it, whatever looks were under way
// meanwhile: these began before, and say nothing of what is there now. What this
// server commits itself does the same.
func TestHintsLowerFloors(t *testing.T) {
	const lane, at, ready = machine.LaneID(7), machine.Time(60_000_000), machine.Time(1_000_000)
	for name, lower := range map[string]func(*Store){
		"a hint": func(s *Store) {
			s.floors.heed(store.Hint{Lanes: []store.LaneHint{{Lane: lane, At: ready}}})
		},
		"a hint of any lane": func(s *Store) { s.floors.heed(store.Hint{AnyLane: ready}) },
		"a lost hint":        func(s *Store) { s.floors.heed(store.Hint{Lost: true}) },
		"a commit": func(s *Store) {
			s.floors.lower([]*machine.Execution{{Lane: lane, State: belay.Pending, DueAt: ready}})
		},
	} {
		for _, underway := range []bool{false, true} {
			s := &Store{}
			s.floors.looked(looking(s, lane, at), 0)
			if from := s.floors.floor(lane); from != at.Add(-behind) {
				t.Fatalf("after a look the next begins at %d", from)
			}
			slow := looking(s, lane, at+1)
			lower(s)
			if underway {
				s.floors.looked(slow, 0)
			}
			if from := s.floors.floor(lane); from > ready {
				t.Errorf("%s, a look under way %t: the next look begins at %d, above what is ready at %d", name,
					underway, from, ready)
			}
			s.floors.looked(looking(s, lane, at+2), time.Millisecond)
			if from := s.floors.floor(lane); from != (at + 2).Add(-behind) {
				t.Errorf("%s, a look under way %t: after the next look the one after it begins at %d", name, underway,
					from)
			}
		}
	}
}

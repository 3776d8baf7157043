package store

import (
	"sync"

	"github.com/belaydev/belay/internal/machine"
)

// GateStride is the number of gates that one call of Prune reads.
const GateStride = 200

// Gates is the position of a store's search for gates that Prune deletes. The search goes through all
// gates in the order of their names.
type Gates struct {
	mu    sync.Mutex
	after string
	ended bool // the search has reached its end, and begins again only when the search for executions has ended too
}

// After is the name after which the search continues.
func (s *Gates) After() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.after
}

// Pick chooses at most limit gates for deletion; a limit of 0 means no limit. list are the next
// GateStride gates, or all gates that are left. more says that the search is not at its end.
func (s *Gates) Pick(list []*machine.Object, before, now machine.Time, limit int) (idle []*machine.Object, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, false
	}
	for _, o := range list {
		if limit > 0 && len(idle) == limit {
			return idle, true
		}
		s.after = o.Name
		if o.Idle(before, now) {
			idle = append(idle, o)
		}
	}
	if more = len(list) >= GateStride; !more {
		s.after, s.ended = "", true
	}
	return idle, more
}

// Again notes whether the search for executions continues. If it has ended, a search for gates that
// has ended may begin again. If each search began again at its own end, one of the two searches
// could always have more to do, and Prune would never report that it has finished.
func (s *Gates) Again(executions bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = s.ended && executions
}

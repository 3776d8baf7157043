package store

import (
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// Vitals are facts that a store knows without a query to its database.
type Vitals struct {
	// Epoch is the floor of all new tokens, as the store last read it; see [machine.NextEpoch].
	// Begun says that this process began the epoch.
	Epoch belay.Token
	Begun bool
	// Ahead is how far the store's time is ahead of the clock that it follows, after that clock was
	// set back. Leapt is the total time by which that clock was set forwards since the store was
	// opened.
	Ahead, Leapt time.Duration
	// Damage is the first error that reported damaged data. It stays until the store is opened
	// again: a later read may succeed because it does not touch the damage.
	Damage error
}

// Seen collects, while a store works, the facts that make up its Vitals.
type Seen struct {
	mu     sync.Mutex
	vitals Vitals
}

// Epoch notes the floor of new tokens (the number above which they are) that a transaction has
// read.
func (s *Seen) Epoch(floor belay.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vitals.Epoch = max(s.vitals.Epoch, floor)
}

// Begun notes an epoch (by its floor, the number above which its tokens are) that this process has
// begun.
func (s *Seen) Begun(floor belay.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vitals.Epoch, s.vitals.Begun = max(s.vitals.Epoch, floor), true
}

// Damage notes an error that reports damaged data.
func (s *Seen) Damage(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vitals.Damage == nil {
		s.vitals.Damage = err
	}
}

// Vitals are the collected facts, with the state of the clock.
func (s *Seen) Vitals(c *Clock) Vitals {
	s.mu.Lock()
	v := s.vitals
	s.mu.Unlock()
	v.Ahead, v.Leapt = c.offset()
	return v
}

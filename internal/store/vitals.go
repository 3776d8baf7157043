package store

import (
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// Vitals are what a store knows of itself without asking its database.
type Vitals struct {
	// Epoch is the floor below all tokens that are given out, as it was last read; see
	// [machine.NextEpoch]. Begun reports that this process began it.
	Epoch belay.Token
	Begun bool
	// Ahead is by how much the time that the store shows is ahead of the clock that it
	// follows, which was set back. Leapt is by how much that clock was set forwards since
	// the store was opened, in all.
	Ahead, Leapt time.Duration
	// Damage is the first error which said that what is stored is damaged. It stays
	// until the store is opened again: another read may not touch what is damaged.
	Damage error
}

// Seen gathers what a store learns of itself while it works.
type Seen struct {
	mu     sync.Mutex
	vitals Vitals
}

// Epoch notes the floor that a transaction has read.
func (s *Seen) Epoch(floor belay.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vitals.Epoch = max(s.vitals.Epoch, floor)
}

// Begun notes an epoch that this process has begun.
func (s *Seen) Begun(floor belay.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vitals.Epoch, s.vitals.Begun = max(s.vitals.Epoch, floor), true
}

// Damage notes an error which says that what is stored is damaged.
func (s *Seen) Damage(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vitals.Damage == nil {
		s.vitals.Damage = err
	}
}

// Vitals are what was learned, with what the clock shows.
func (s *Seen) Vitals(c *Clock) Vitals {
	s.mu.Lock()
	v := s.vitals
	s.mu.Unlock()
	v.Ahead, v.Leapt = c.offset()
	return v
}

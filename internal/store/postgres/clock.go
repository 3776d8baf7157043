package postgres

import (
	"time"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// newClock returns this process's view of the database's clock. Transactions read the database's
// clock, and the newest mark of life of any server (the time at which it last showed that it runs).
// Between readings the clock shows the last reading plus the time that has passed in this process
// since. A reading is late by the time that the database's answer took.
func newClock(o Options) *store.Clock {
	if o.Clock != nil {
		return store.NewClock(o.Clock, o.Steady)
	}
	return store.NewClock(nil, store.Steady())
}

// Now implements store.Store.
func (s *Store) Now() machine.Time { return s.clock.Now() }

// Vitals implements store.Store.
func (s *Store) Vitals() store.Vitals { return s.seen.Vitals(s.clock) }

func duration(microseconds int64) time.Duration {
	return time.Duration(microseconds) * time.Microsecond
}

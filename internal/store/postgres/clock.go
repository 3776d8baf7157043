package postgres

import (
	"time"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// newClock is the database's clock as this process knows it. Transactions read it in the
// database, and so does the mark of life that any server left last; what is shown between
// them is the last reading and the time that has passed here since. A reading is as old
// as its way took.
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

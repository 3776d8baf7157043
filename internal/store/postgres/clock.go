package postgres

import (
	"sync"
	"time"

	"github.com/belaydev/belay/internal/machine"
)

// clock is the database's clock as this process knows it. Transactions read it
// in the database; what is shown between them is what the last readings said and
// the time that has passed here since. A reading is as old as its way took, so
// what is shown is never ahead of the database: what is due by it is due there.
type clock struct {
	wall func() time.Time // a test's own clock instead

	mu     sync.Mutex
	began  time.Time     // with this process's monotonic clock
	ahead  time.Duration // of the database's time before that, by the best readings of this window
	before time.Duration // and of the one before
	until  time.Duration // when the window ends
	last   machine.Time  // the newest time shown
}

// window is for how long a reading counts: clocks drift, or are set.
const window = 10 * time.Second

func newClock(wall func() time.Time) *clock { return &clock{wall: wall, began: time.Now()} }

// read takes in a reading that has just come, with the newest mark that was
// written, and gives the time to decide by. It never goes back: not before what
// was shown, nor before any mark.
func (c *clock) read(at, mark machine.Time) machine.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wall != nil {
		at = machine.At(c.wall())
	} else {
		c.note(at)
	}
	c.last = max(c.last, at, mark)
	return c.last
}

func (c *clock) note(at machine.Time) {
	here := time.Since(c.began)
	ahead := time.Duration(at)*time.Microsecond - here
	switch {
	case here >= c.until+window: // nothing was read for a whole window
		c.before, c.ahead, c.until = ahead, ahead, here+window
	case here >= c.until:
		c.before, c.ahead, c.until = c.ahead, ahead, here+window
	default:
		c.ahead = max(c.ahead, ahead)
	}
}

// now is the time to show.
func (c *clock) now() machine.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := machine.Time((max(c.ahead, c.before) + time.Since(c.began)) / time.Microsecond)
	if c.wall != nil {
		at = machine.At(c.wall())
	}
	c.last = max(c.last, at)
	return c.last
}

// Now implements store.Store: the database's clock, never ahead of it and never
// going back.
func (s *Store) Now() machine.Time { return s.clock.now() }

func duration(microseconds int64) time.Duration {
	return time.Duration(microseconds) * time.Microsecond
}

package store

import (
	"sync"
	"time"

	"github.com/belaydev/belay/internal/machine"
)

// Clock is the clock by which a store decides. It follows another clock (the wall clock of this
// machine or of the database) while that clock runs evenly. A Clock never goes back, whatever the
// other clock does:
//
//   - If the other clock is set back, or was ahead and was corrected, the Clock does not follow it:
//     the Clock continues at the normal pace, and [Clock.Ahead] is the difference. If it waited
//     instead, timers, retries and the reaper would stand still until the other clock has caught
//     up.
//   - If the other clock is set forwards, the Clock follows at once, and [Clock.Leapt] is the
//     size of the leap, so that running work is not charged for time that has not passed.
//   - Differences below a second occur when clocks drift or are read over a network. The Clock
//     corrects them by running a thousandth slower or a tenth faster. So the time that the Clock
//     skips without reporting a leap is at most a tenth of the time that passes. Workers allow for
//     this error: they use only two thirds of the time that a lease gives them.
//
// The pace is measured by a clock that cannot be set and that stands still while the machine is
// suspended.
type Clock struct {
	wall   func() machine.Time // nil if all readings of the other clock come through Read
	steady func() time.Duration

	mu    sync.Mutex
	began bool
	last  machine.Time  // the newest time that was returned
	at    time.Duration // the steady time when last was returned
	read  time.Duration // the steady time when the other clock was last read
	seen  machine.Time  // the other clock's time at that reading
	ahead time.Duration // how far the Clock was ahead of the other clock at the last reading
	leapt time.Duration // leaps for which no batch has extended deadlines yet
	leaps time.Duration // total of all leaps
}

const (
	// maxDrift is the largest difference between the other clock and the Clock (continued at its
	// own pace since the last reading) that counts as drift. If the difference is larger, the other
	// clock counts as set.
	maxDrift = time.Second
	// slower is the divisor for slowing down: the Clock runs a thousandth slower while it is ahead
	// of the other clock by at most maxDrift.
	slower = 1000
	// faster is the divisor for catching up: the Clock runs a tenth faster while it is behind the
	// other clock by at most maxDrift.
	faster = 10
)

// NewClock makes a clock that follows wall. If wall is nil, the clock gets all readings through
// Read. If steady is nil, the clock cannot measure time by itself: it follows the other clock
// forwards, and stands still while the other clock is behind.
func NewClock(wall func() time.Time, steady func() time.Duration) *Clock {
	c := &Clock{steady: steady}
	if wall != nil {
		c.wall = func() machine.Time { return machine.At(wall()) }
	}
	return c
}

// Steady returns a function that measures the time since this call of Steady, by the monotonic
// clock of this machine.
func Steady() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

// Now is the present time.
func (c *Clock) Now() machine.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wall != nil {
		return c.readLocked(c.wall(), 0)
	}
	if c.steady != nil && c.began {
		now := c.steady()
		c.last, c.at = c.paceLocked(now), c.wholeLocked(now)
	}
	return c.last
}

// Read takes two times: a reading of the other clock, made now or a moment ago, and a time that
// another server has already used in this store, such as the newest mark of life (the time at which
// a server last showed that it runs). It returns the time by which the store decides.
func (c *Clock) Read(at, shown machine.Time) machine.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wall != nil {
		at = c.wall()
	}
	return c.readLocked(at, shown)
}

func (c *Clock) readLocked(at, shown machine.Time) machine.Time {
	if c.steady == nil {
		c.last = max(c.last, at, shown)
		c.ahead = c.last.Sub(at)
		return c.last
	}
	now := c.steady()
	if c.began && now == c.read && at == c.seen && shown <= c.last {
		return c.last // a second reading at the same moment returns the same result
	}
	c.read, c.seen = now, at
	if !c.began {
		c.began = true
		c.last = max(c.last, at, shown)
	} else {
		c.last = c.followLocked(at, shown, now)
	}
	c.at, c.ahead = c.wholeLocked(now), c.last.Sub(at)
	return c.last
}

// followLocked returns the Clock's time after a new reading of the other clock. The reading is at,
// and was made at the steady time now; shown is a time that another server has already used in this
// store, or 0. followLocked adds the steady time since the last reading to the Clock's last time,
// then corrects the sum by at: it runs a little slower or faster if the difference is at most
// maxDrift, follows at if the other clock was set forwards, and ignores at if it was set back. The
// result is at least shown.
func (c *Clock) followLocked(at, shown machine.Time, now time.Duration) machine.Time {
	pace := c.paceLocked(now)
	switch off := at.Sub(pace); {
	case shown.Sub(pace) > maxDrift:
		return max(at, shown)
	case off > maxDrift:
		c.leapt += off
		c.leaps += off
		return at
	case off < -maxDrift:
		return max(pace, shown)
	case off >= 0:
		c.at -= min(off, (now-c.at)/faster) // moves the Clock ahead, as if more time had passed
		return max(shown, c.paceLocked(now))
	default:
		c.at += min(-off, (now-c.at)/slower) // holds the Clock back, as if less time had passed
		return max(c.last, shown, c.paceLocked(now))
	}
}

func (c *Clock) paceLocked(now time.Duration) machine.Time {
	return machine.Time(int64(c.last) + (now - c.at).Microseconds())
}

// wholeLocked rounds now down, so that a whole number of microseconds has passed since the last
// reading. The next reading counts the remainder. If each reading dropped its remainder, the time
// of a busy server would stand still.
func (c *Clock) wholeLocked(now time.Duration) time.Duration {
	return now - (now-c.at)%time.Microsecond
}

// Ahead is how far the Clock is ahead of the other clock; negative if it is behind.
func (c *Clock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// offset returns how far the Clock is ahead of the other clock, and the total time by which the
// other clock was set forwards (its leaps). offset reads the other clock now if possible, and
// otherwise uses the last reading.
func (c *Clock) offset() (ahead, leaps time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wall != nil {
		c.readLocked(c.wall(), 0)
	}
	return c.ahead, c.leaps
}

// Leapt is the total time of those leaps of the Clock (the other clock was set forwards) for which
// no batch has extended deadlines yet.
func (c *Clock) Leapt() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leapt
}

// MadeGood notes that a committed batch has extended deadlines by the time leapt, because the Clock
// leapt forwards by this time.
func (c *Clock) MadeGood(leapt time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leapt -= min(leapt, c.leapt)
}

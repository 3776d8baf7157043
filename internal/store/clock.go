package store

import (
	"sync"
	"time"

	"github.com/belaydev/belay/internal/machine"
)

// Clock is the time by which a store decides. It follows another clock, the wall clock of this
// machine or of the database, while that clock runs evenly. A Clock never goes back, whatever the
// other clock does:
//
//   - If the other clock is set back, or ran ahead and was corrected, the Clock does not follow:
//     its time goes on at the normal pace, and [Clock.Ahead] is the difference. Otherwise timers,
//     retries and the reaper would stand still until the other clock has caught up.
//   - If the other clock is set forwards, the Clock follows at once, and [Clock.Leapt] is the
//     size of the leap, so that running work is not charged for time that has not passed.
//   - Differences below a second occur when clocks drift or are read over a network. The Clock
//     corrects them by running a thousandth slower or a tenth faster. So the time that is skipped
//     without being reported as a leap is at most a tenth of the time that passes. Workers allow
//     for this: they use only two thirds of the time they were given.
//
// The pace is measured by a clock that cannot be set and that stands still while the machine is
// suspended.
type Clock struct {
	wall   func() machine.Time // nil if the readings come through Read
	steady func() time.Duration

	mu    sync.Mutex
	began bool
	last  machine.Time  // the newest time that was returned
	at    time.Duration // the steady time when last was returned
	read  time.Duration // the steady time when the other clock was last read
	seen  machine.Time  // the other clock's time at that reading
	ahead time.Duration // of the other clock, at the last reading
	leapt time.Duration // leaps for which no batch has extended deadlines yet
	leaps time.Duration // total of all leaps
}

const (
	// maxDrift is how much the difference to the other clock may change between two readings
	// without the other clock counting as set.
	maxDrift = time.Second
	// slower is the fraction by which the Clock runs slower to wait for a drifting clock.
	slower = 1000
	// faster is the fraction by which the Clock runs faster to catch up.
	faster = 10
)

// NewClock makes a clock that follows wall. With a nil wall it gets all readings through Read.
// With a nil steady it has no pace of its own: it follows the other clock forwards, and stands
// still while the other clock is behind.
func NewClock(wall func() time.Time, steady func() time.Duration) *Clock {
	c := &Clock{steady: steady}
	if wall != nil {
		c.wall = func() machine.Time { return machine.At(wall()) }
	}
	return c
}

// Steady measures the time from now on by the monotonic clock of this machine.
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

// Read takes a reading of the other clock, of this moment or of a moment ago, and a time that
// another server has shown for this store, such as the newest mark of life. It returns the time
// by which to decide.
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
		return c.last // several readings at one moment give the same time
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

// followLocked is the time after it went on at its own pace since the last reading and was
// corrected by the new one.
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
		c.at -= min(off, (now-c.at)/faster) // as if more time had passed
		return max(shown, c.paceLocked(now))
	default:
		c.at += min(-off, (now-c.at)/slower) // as if less time had passed
		return max(c.last, shown, c.paceLocked(now))
	}
}

func (c *Clock) paceLocked(now time.Duration) machine.Time {
	return machine.Time(int64(c.last) + (now - c.at).Microseconds())
}

// wholeLocked is now without the fraction of a microsecond that has passed since the last
// reading. The time does not show this fraction yet; it counts with the next reading. If each
// reading lost its fraction, the time of a busy server would stand still.
func (c *Clock) wholeLocked(now time.Duration) time.Duration {
	return now - (now-c.at)%time.Microsecond
}

// Ahead is how far the Clock is ahead of the other clock; negative if it is behind.
func (c *Clock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// offset is how far the Clock is ahead of the other clock, read now if possible and otherwise at
// the last reading, and the total of all leaps.
func (c *Clock) offset() (ahead, leaps time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wall != nil {
		c.readLocked(c.wall(), 0)
	}
	return c.ahead, c.leaps
}

// Leapt is the time that the Clock leapt forwards and for which no batch has extended deadlines
// yet.
func (c *Clock) Leapt() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leapt
}

// MadeGood notes that a batch was committed that extended deadlines for a leap.
func (c *Clock) MadeGood(leapt time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leapt -= min(leapt, c.leapt)
}

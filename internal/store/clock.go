package store

import (
	"sync"
	"time"

	"github.com/belaydev/belay/internal/machine"
)

// Clock is the time by which a store decides. It follows another clock, the wall clock
// of this machine or of the database, as long as that goes on evenly, and never goes
// back, whatever becomes of that one:
//
//   - A clock that is set back, or ran ahead once and was put right, is left behind:
//     time goes on at its normal pace from where it is, and [Clock.Ahead] tells by how
//     much it is ahead. Without that, timers, retries and the reaper would stand still
//     until the other clock has caught up.
//   - A clock that is set forwards is followed at once, and [Clock.Leapt] tells by how
//     much it leapt, so that what runs is not charged for time that has not passed.
//   - Less than a second, by which clocks differ that drift or are read over a network,
//     is made up for by a pace that is a thousandth slower, or a tenth faster. So what
//     leaps untold is never more than a tenth of the time that passes, and workers count
//     two thirds of what they were given.
//
// How fast time passes is measured by a clock that nobody can set and that stands still
// while the machine is suspended.
type Clock struct {
	wall   func() machine.Time // nil where readings come from elsewhere
	steady func() time.Duration

	mu    sync.Mutex
	began bool
	last  machine.Time  // the newest time that was shown
	at    time.Duration // when, by steady
	read  time.Duration // when the other clock was last read, by steady
	seen  machine.Time  // what the other clock showed then
	ahead time.Duration // of the other clock, at its last reading
	leapt time.Duration // that no batch has made good yet
	leaps time.Duration // all together
}

const (
	// evenly is how far two readings of a clock may be off without its having been set.
	evenly = time.Second
	// slower is the part of its pace by which time slows down to wait for a clock that
	// drifts.
	slower = 1000
	// faster is the part by which it is faster to catch up with it.
	faster = 10
)

// NewClock makes a clock that follows wall. With a nil wall it is told its readings by
// Read alone. With a nil steady the pace is that of the other clock: a clock that is set
// is then followed forwards, and backwards time stands still.
func NewClock(wall func() time.Time, steady func() time.Duration) *Clock {
	c := &Clock{steady: steady}
	if wall != nil {
		c.wall = func() machine.Time { return machine.At(wall()) }
	}
	return c
}

// Steady measures the time from now by the monotonic clock of this machine.
func Steady() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

// Now is the time to show.
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

// Read takes in what the other clock shows at this moment, or showed a moment ago, and
// a time that was shown by whoever else decides for this store, such as the newest mark
// of life. It gives the time to decide by.
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
		return c.last // readings at one moment show one time, however many there are
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

// followLocked is the time, after it has passed at its own pace since it was last shown.
func (c *Clock) followLocked(at, shown machine.Time, now time.Duration) machine.Time {
	pace := c.paceLocked(now)
	switch off := at.Sub(pace); {
	case shown.Sub(pace) > evenly: // others have leapt, and made it good
		return max(at, shown)
	case off > evenly:
		c.leapt += off
		c.leaps += off
		return at
	case off < -evenly:
		return max(pace, shown)
	case off >= 0:
		c.at -= min(off, (now-c.at)/faster) // as if that had passed too
		return max(shown, c.paceLocked(now))
	default:
		c.at += min(-off, (now-c.at)/slower) // as if that had not passed
		return max(c.last, shown, c.paceLocked(now))
	}
}

func (c *Clock) paceLocked(now time.Duration) machine.Time {
	return machine.Time(int64(c.last) + (now - c.at).Microseconds())
}

// wholeLocked is now, without the part of a microsecond that has passed since the last
// reading and that the time does not show yet: it counts with the next one. Lost at each
// reading it would have the time of a busy server stand still.
func (c *Clock) wholeLocked(now time.Duration) time.Duration {
	return now - (now-c.at)%time.Microsecond
}

// Ahead is by how much the time that is shown is ahead of the other clock; below zero
// for behind.
func (c *Clock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// offset is by how much time is ahead of the other clock now, where that can be read,
// or was when it was last read, and by how much it leapt forwards in all.
func (c *Clock) offset() (ahead, leaps time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wall != nil {
		c.readLocked(c.wall(), 0)
	}
	return c.ahead, c.leaps
}

// Leapt is by how much time leapt forwards and was not made good.
func (c *Clock) Leapt() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leapt
}

// MadeGood notes that a batch which knew of a leap was committed.
func (c *Clock) MadeGood(leapt time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leapt -= min(leapt, c.leapt)
}

package store_test

import (
	"testing"
	"time"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// hands are two clocks that only the test moves: one that can be set, and one that
// cannot.
type hands struct {
	wall   time.Time
	steady time.Duration
}

func (h *hands) pass(d time.Duration) {
	h.wall = h.wall.Add(d)
	h.steady += d
}

func (h *hands) clock() *store.Clock {
	return store.NewClock(func() time.Time { return h.wall }, func() time.Duration { return h.steady })
}

func newHands() *hands { return &hands{wall: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)} }

// Time goes on at its normal pace while the wall clock is behind, however far it was
// set back, and after a restart.
func TestTimeGoesOnWhenTheClockIsSetBack(t *testing.T) {
	for _, back := range []time.Duration{2 * time.Second, time.Hour, 10_000 * time.Hour} {
		h := newHands()
		c := h.clock()
		began := c.Now()
		h.wall = h.wall.Add(-back)
		for n := 1; n <= 100; n++ {
			h.pass(100 * time.Millisecond)
			if got, want := c.Now().Sub(began), time.Duration(n)*100*time.Millisecond; got != want {
				t.Fatalf("%s after it was set back by %s the time is %s later", want, back, got)
			}
		}
		if got := c.Ahead(); got != back {
			t.Errorf("it is %s ahead after it was set back by %s", got, back)
		}
		again := h.clock()
		if got := again.Read(0, c.Now()); got != c.Now() {
			t.Errorf("after a restart it shows %s", got.Time())
		}
		h.pass(time.Minute)
		if got := again.Now().Sub(began); got != 70*time.Second {
			t.Errorf("a minute after the restart the time is %s later", got)
		}
	}
}

// A clock that is set forwards is followed, and the leap is told until it was made good.
func TestALeapIsToldUntilItWasMadeGood(t *testing.T) {
	h := newHands()
	c := h.clock()
	began := c.Now()
	h.pass(time.Second)
	h.wall = h.wall.Add(time.Hour)
	if got := c.Now().Sub(began); got != time.Hour+time.Second {
		t.Errorf("the time is %s later", got)
	}
	h.pass(time.Second)
	c.Now()
	if got := c.Leapt(); got != time.Hour {
		t.Errorf("it leapt %s", got)
	}
	c.MadeGood(time.Hour)
	if got := c.Leapt(); got != 0 {
		t.Errorf("it leapt %s after that was made good", got)
	}
}

// Another server that has leapt and made it good is followed without a leap.
func TestALeapOfOthersIsFollowed(t *testing.T) {
	h := newHands()
	c := h.clock()
	began := c.Now()
	h.pass(time.Second)
	h.wall = h.wall.Add(time.Hour)
	if got := c.Read(0, began.Add(time.Hour+time.Second)).Sub(began); got != time.Hour+time.Second || c.Leapt() != 0 {
		t.Errorf("the time is %s later, leapt %s", got, c.Leapt())
	}
}

// Readings that drift or come late never make time go back or stand still, and the
// drift does not add up.
func TestDriftDoesNotAddUp(t *testing.T) {
	h := newHands()
	c := store.NewClock(nil, func() time.Duration { return h.steady })
	last := c.Read(machine.At(h.wall), 0)
	for n := range 100_000 {
		h.steady += 100 * time.Millisecond
		h.wall = h.wall.Add(99_990 * time.Microsecond) // a hundred parts in a million slower
		late := time.Duration(n%7) * time.Millisecond
		now := c.Read(machine.At(h.wall.Add(-late)), 0)
		if passed := now.Sub(last); passed < 99*time.Millisecond || passed > 107*time.Millisecond {
			t.Fatalf("reading %d: %s passed in a tenth of a second", n, passed)
		}
		last = now
	}
	if off := last.Sub(machine.At(h.wall)); off > 10*time.Millisecond || off < -10*time.Millisecond {
		t.Errorf("after 10,000 s the time is %s off", off)
	}
}

// Time goes on at its normal pace however often it is read: a reading between two
// microseconds loses nothing of what has passed.
func TestTimeGoesOnHoweverOftenItIsRead(t *testing.T) {
	h := newHands()
	c := h.clock()
	began := c.Now()
	h.wall = h.wall.Add(-time.Hour)
	for range 100_000 {
		h.pass(300 * time.Nanosecond)
		c.Now()
	}
	if got := c.Now().Sub(began); got != 30*time.Millisecond {
		t.Errorf("after 30ms, read every 300ns, the time is %s later", got)
	}
}

// Readings at one moment show one time, also while the store's clock catches up with the
// other one: the number of readings is not decided by the seed of a simulation.
func TestReadingsAtOneMomentShowOneTime(t *testing.T) {
	h := newHands()
	c := h.clock()
	c.Now()
	h.pass(300*time.Microsecond + 900*time.Nanosecond)
	h.wall = h.wall.Add(500 * time.Millisecond)
	first := c.Now()
	for range 1000 {
		if got := c.Now(); got != first {
			t.Fatalf("read again at the same moment it shows %s more", got.Sub(first))
		}
	}
}

// A clock that drifts is waited for however often the time is read.
func TestADriftingClockIsWaitedForHoweverOftenTheTimeIsRead(t *testing.T) {
	h := newHands()
	c := h.clock()
	c.Now()
	h.wall = h.wall.Add(-100 * time.Microsecond)
	for range 100_000 {
		h.pass(2 * time.Microsecond)
		c.Now()
	}
	if got := c.Ahead(); got > time.Microsecond || got < 0 {
		t.Errorf("after 200ms, read every 2µs, the time is %s ahead of its clock", got)
	}
}

// However often a clock is set forwards by less than a second, time is at most a tenth
// faster than it passes, beside what is told as a leap: a session does not end before the
// worker has stopped that counts two thirds of it.
func TestTimeIsNeverMuchFasterThanItPasses(t *testing.T) {
	for _, step := range []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 999 * time.Millisecond} {
		h := newHands()
		c := h.clock()
		last := c.Now()
		for n := range 200 {
			if n%20 == 0 && n < 100 {
				h.wall = h.wall.Add(step)
			}
			h.pass(50 * time.Millisecond)
			now, told := c.Now(), c.Leapt()
			c.MadeGood(told)
			if passed := now.Sub(last) - told; passed > 55*time.Millisecond || passed < 0 {
				t.Fatalf("steps of %s: %s passed in 50ms, and %s was told", step, passed, told)
			}
			last = now
		}
		for range 2000 {
			h.pass(50 * time.Millisecond)
			last = c.Now()
		}
		if behind := machine.At(h.wall).Sub(last); behind != 0 {
			t.Errorf("steps of %s: the time is still %s behind", step, behind)
		}
	}
}

// A server that begins shows the time of its clock, however little of it has passed since
// the newest mark: what another has stamped meanwhile is due for it too.
func TestTimeBeginsAtTheClock(t *testing.T) {
	h := newHands()
	shown := h.clock().Now()
	h.pass(800 * time.Millisecond)
	c := h.clock()
	c.Read(0, shown)
	if behind := machine.At(h.wall).Sub(c.Now()); behind != 0 {
		t.Errorf("the time is %s behind", behind)
	}
}

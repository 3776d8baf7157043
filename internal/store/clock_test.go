package store_test

import (
	"testing"
	"time"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// testClocks are two clocks that the test moves: a wall clock, which can be set, and a steady
// clock, which cannot be set.
type testClocks struct {
	wall   time.Time
	steady time.Duration
}

func (h *testClocks) pass(d time.Duration) {
	h.wall = h.wall.Add(d)
	h.steady += d
}

func (h *testClocks) clock() *store.Clock {
	return store.NewClock(func() time.Time { return h.wall }, func() time.Duration { return h.steady })
}

func newTestClocks() *testClocks {
	return &testClocks{wall: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
}

// If the wall clock is set back, however far, the clock continues at its normal pace until the wall
// clock has caught up, even after a restart.
func TestTimeGoesOnWhenTheClockIsSetBack(t *testing.T) {
	for _, back := range []time.Duration{2 * time.Second, time.Hour, 10_000 * time.Hour} {
		h := newTestClocks()
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

// If the wall clock is set forwards, the clock follows at once, and reports by how much (the leap)
// until a batch has extended deadlines for it.
func TestALeapIsReportedUntilDeadlinesAreExtended(t *testing.T) {
	h := newTestClocks()
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

// If another server has already extended deadlines because the wall clock was set forwards (a
// leap), the clock follows the wall clock and does not report the leap again.
func TestALeapThatAnotherServerHandledIsFollowed(t *testing.T) {
	h := newTestClocks()
	c := h.clock()
	began := c.Now()
	h.pass(time.Second)
	h.wall = h.wall.Add(time.Hour)
	if got := c.Read(0, began.Add(time.Hour+time.Second)).Sub(began); got != time.Hour+time.Second || c.Leapt() != 0 {
		t.Errorf("the time is %s later, leapt %s", got, c.Leapt())
	}
}

// Although the wall clock drifts and its readings come late, the clock never goes back or stands
// still, and the error does not accumulate.
func TestDriftDoesNotAddUp(t *testing.T) {
	h := newTestClocks()
	c := store.NewClock(nil, func() time.Duration { return h.steady })
	last := c.Read(machine.At(h.wall), 0)
	for n := range 100_000 {
		h.steady += 100 * time.Millisecond
		h.wall = h.wall.Add(99_990 * time.Microsecond) // the wall clock runs a hundred parts in a million too slow
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

// The clock keeps its normal pace however often it is read: readings within one microsecond lose no
// time.
func TestFrequentReadingsLoseNoTime(t *testing.T) {
	h := newTestClocks()
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

// Several readings at the same time return the same result, even while the clock catches up with
// the other clock. The number of readings in a simulation does not depend on its seed alone, so
// this number must not change the result.
func TestReadingsAtOneMomentShowOneTime(t *testing.T) {
	h := newTestClocks()
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

// While the clock is ahead of a drifting wall clock, it slows down at the same rate, however often
// it is read.
func TestFrequentReadingsDoNotHinderTheCorrectionOfDrift(t *testing.T) {
	h := newTestClocks()
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

// However often a clock is set forwards by less than a second, the store's time runs at most a
// tenth too fast, apart from reported leaps. A worker uses only two thirds of the TTL of its
// session, so it has stopped before the session expires.
func TestTimeRunsAtMostATenthTooFast(t *testing.T) {
	for _, step := range []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 999 * time.Millisecond} {
		h := newTestClocks()
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
				t.Fatalf("steps of %s: %s passed in 50ms, with a reported leap of %s", step, passed, told)
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

// A server that starts takes the time of its wall clock, even if that is less than a second ahead
// of the newest mark of life (the time at which a server last showed that it runs), because rows
// that another server has written since the mark must be due for this server too.
func TestANewServerTakesTheTimeOfItsClock(t *testing.T) {
	h := newTestClocks()
	shown := h.clock().Now()
	h.pass(800 * time.Millisecond)
	c := h.clock()
	c.Read(0, shown)
	if behind := machine.At(h.wall).Sub(c.Now()); behind != 0 {
		t.Errorf("the time is %s behind", behind)
	}
}

package machine

import (
	"math"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// A duration that is not a whole number of microseconds is rounded up, so that no deadline comes
// early.
func TestTimeRoundsUp(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want Time
	}{
		{0, 100}, {1, 101}, {999, 101}, {1000, 101}, {1001, 102}, {-1, 100}, {-1000, 99}, {-1500, 99},
		{time.Second, 1_000_100},
	} {
		if got := Time(100).Add(c.d); got != c.want {
			t.Errorf("100 + %s = %d, want %d", c.d, got, c.want)
		}
	}
}

// Add never returns an earlier time than its receiver, however long the duration is.
func TestTimeDoesNotWrapAround(t *testing.T) {
	for _, from := range []Time{1, began, latest - 1, latest} {
		if got := from.Add(math.MaxInt64); got < from || got > latest {
			t.Errorf("%d + the longest duration = %d", from, got)
		}
		if got := from.Add(math.MinInt64); got > from {
			t.Errorf("%d - the longest duration = %d", from, got)
		}
	}
	if got := latest.Sub(began); got != math.MaxInt64/time.Microsecond*time.Microsecond {
		t.Errorf("the end of times less now = %s", got)
	}
	if got := began.Sub(latest); got >= 0 {
		t.Errorf("now less the end of times = %s", got)
	}
	if y := latest.Time().Year(); y != 9999 {
		t.Errorf("times end in the year %d", y)
	}
	if _, err := latest.Time().MarshalJSON(); err != nil {
		t.Errorf("the last time is not JSON: %v", err)
	}
}

func TestNeverIsZero(t *testing.T) {
	if At(time.Time{}) != 0 || !Time(0).Time().IsZero() {
		t.Error("never is not zero on both sides")
	}
	if Time(0).over(began) || !began.over(began) || began.over(began-1) {
		t.Error("a moment is over when it has come, never is never over")
	}
	if first() != 0 || first(0, 0) != 0 || first(0, 7, 3) != 3 {
		t.Error("the first of moments leaves out never")
	}
}

// No timeout of a policy with the longest durations acts too early, and no batch panics with it.
func TestLongestPolicyNeverFires(t *testing.T) {
	const most = belay.Duration(math.MaxInt64)
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w, policy(belay.Policy{
		BackoffBase: most, BackoffCap: most, ScheduledTimeout: most, StartTimeout: most, RunTimeout: most,
		IdleTimeout: most,
		Timeout:     most, CancelGrace: most, LockDelay: most,
	}))
	s.do(&Tick{Execution: l.Execution})
	s.is(l.Execution, "running")
	s.do(s.act(l.Execution, belay.ActionCancel))
	s.do(&Tick{Execution: l.Execution})
	s.is(l.Execution, "running+cancelling")
	l2 := s.run(w, policy(belay.Policy{BackoffBase: most, BackoffCap: most, MaxAttempts: 9}))
	for range 3 {
		s.do(s.settle(l2, belay.OutcomeFailed, func(x *belay.Settlement) { x.RetryAfter = math.MaxInt64 }))
		s.is(l2.Execution, "pending(retry later)")
		s.do(s.act(l2.Execution, belay.ActionCancel))
		s.do(s.act(l2.Execution, belay.ActionRetry))
		l2 = s.win(w)
	}
}

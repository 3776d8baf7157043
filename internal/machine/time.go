package machine

import (
	"math"
	"time"
)

// Time is a moment of the store's clock: microseconds since 1970, 0 for never.
type Time int64

// At is the moment t as a Time; the zero time.Time is never.
func At(t time.Time) Time {
	if t.IsZero() {
		return 0
	}
	return Time(t.UnixMicro())
}

// Time is the moment as Go's own type, in UTC.
func (t Time) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(t)).UTC()
}

// latest is the end of the year 9999, the last that JSON can write. Times stop
// there instead of wrapping around, however long the durations of a policy.
const latest Time = 253_402_300_799_999_999

// Add is the moment d later, rounded up to a microsecond, so that no time is
// over early.
func (t Time) Add(d time.Duration) Time {
	us := Time(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return min(t+us, latest)
}

// Sub is the time from u to t, as far as a duration can tell it.
func (t Time) Sub(u Time) time.Duration {
	const most = Time(math.MaxInt64 / time.Microsecond)
	return time.Duration(min(max(t-u, -most), most)) * time.Microsecond
}

// over reports whether the moment t, if it is set, has come.
func (t Time) over(now Time) bool { return t != 0 && t <= now }

// first is the earliest of the moments that are set, 0 if none is.
func first(times ...Time) Time {
	var m Time
	for _, t := range times {
		if t != 0 && (m == 0 || t < m) {
			m = t
		}
	}
	return m
}

package machine

import (
	"math"
	"time"
)

// Time is a moment of the store's clock in microseconds since 1970; 0 stands for never.
type Time int64

// At converts t to a Time; the zero time.Time becomes 0.
func At(t time.Time) Time {
	if t.IsZero() {
		return 0
	}
	return Time(t.UnixMicro())
}

// Time converts the moment to Go's own type, in UTC.
func (t Time) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(t)).UTC()
}

// latest is the end of the year 9999, the last time that JSON can represent. Additions stop at
// latest instead of overflowing, however long the durations of a policy are.
const latest Time = 253_402_300_799_999_999

// Add returns the time d after t, rounded up to a microsecond, so that no deadline comes early.
func (t Time) Add(d time.Duration) Time {
	us := Time(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return min(t+us, latest)
}

// Sub returns the duration from u to t, limited to the longest duration that Go can represent.
func (t Time) Sub(u Time) time.Duration {
	const most = Time(math.MaxInt64 / time.Microsecond)
	return time.Duration(min(max(t-u, -most), most)) * time.Microsecond
}

// over reports whether the moment t is set and not after now.
func (t Time) over(now Time) bool { return t != 0 && t <= now }

// first is the earliest of the moments that are set, 0 if none is set.
func first(times ...Time) Time {
	var m Time
	for _, t := range times {
		if t != 0 && (m == 0 || t < m) {
			m = t
		}
	}
	return m
}

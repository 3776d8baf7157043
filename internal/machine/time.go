package machine

import "time"

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

// Add is the moment d later, rounded up to a microsecond, so that no time is
// over early.
func (t Time) Add(d time.Duration) Time {
	return t + Time((d+time.Microsecond-1)/time.Microsecond)
}

// Sub is the time from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t-u) * time.Microsecond }

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

package process

import "time"

// stopwatch is a timeout that can be paused. It must be used by a single goroutine. A timeout of 0
// never ends.
type stopwatch struct {
	timer *time.Timer // nil if there is no timeout
	left  time.Duration
	since time.Time // the time of the last start; zero while the stopwatch is paused
}

func newStopwatch(timeout time.Duration) stopwatch {
	if timeout <= 0 {
		return stopwatch{}
	}
	return stopwatch{timer: time.NewTimer(timeout), left: timeout, since: time.Now()}
}

// over returns the channel that gets a value when the timeout has passed.
func (s *stopwatch) over() <-chan time.Time {
	if s.timer == nil {
		return nil
	}
	return s.timer.C
}

func (s *stopwatch) pause() {
	if s.timer == nil || s.since.IsZero() {
		return
	}
	s.timer.Stop()
	s.left -= time.Since(s.since)
	s.since = time.Time{}
}

func (s *stopwatch) resume() {
	if s.timer == nil || !s.since.IsZero() {
		return
	}
	s.since = time.Now()
	s.timer.Reset(max(s.left, 0))
}

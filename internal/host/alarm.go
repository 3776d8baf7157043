package host

import (
	"sync"
	"time"
)

// Alarm calls a function once a time is over by a clock that goes on while the machine
// sleeps. A timer of package time stands still then, and goes on for what was left of it
// when the machine wakes; an alarm whose time is over by then goes off within half a
// second. It looks at its clock so often: the kernel's timers on such a clock cannot be
// waited for in a test whose time is its own. Methods are safe for concurrent use.
type Alarm struct {
	now  func() time.Duration
	fire func()

	mu    sync.Mutex
	timer *time.Timer
	at    time.Duration
	set   bool
}

// glance is how often an alarm looks at its clock. It is no round number, so that an alarm
// does not go off at the very instant of a timer that was set with it: which of the two is
// first would be left to chance.
const glance = 487*time.Millisecond + 13*time.Microsecond

// NewAlarm makes an alarm that is not set. It calls fire on a goroutine of its own.
func NewAlarm(now func() time.Duration, fire func()) *Alarm {
	a := &Alarm{now: now, fire: fire}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(time.Hour, a.look)
	a.timer.Stop()
	return a
}

// Reset sets it anew. A call for the time before may be under way.
func (a *Alarm) Reset(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at, a.set = a.now()+d, true
	a.timer.Reset(min(d, glance))
}

// Stop unsets it.
func (a *Alarm) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set = false
	a.timer.Stop()
}

func (a *Alarm) look() {
	a.mu.Lock()
	left := a.at - a.now()
	due := a.set && left <= 0
	switch {
	case due:
		a.set = false
	case a.set:
		a.timer.Reset(min(left, glance))
	}
	a.mu.Unlock()
	if due {
		a.fire()
	}
}

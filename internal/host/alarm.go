package host

import (
	"sync"
	"time"
)

// Alarm calls a function at a time of a clock that goes on while the machine sleeps. A timer of
// package time stops during the sleep, and needs the rest of its time after the machine wakes. An
// alarm whose time has passed during the sleep goes off within half a second. It polls its clock
// for that: in a test with virtual time, the kernel's timers on such a clock cannot be waited for.
// Methods are safe for concurrent use.
type Alarm struct {
	now  func() time.Duration
	fire func()

	mu    sync.Mutex
	timer *time.Timer
	at    time.Duration
	set   bool
}

// alarmPoll is how often an alarm looks at its clock. It is no round number, so that an alarm never
// goes off at exactly the time of a timer that was set together with it, which would make their
// order random.
const alarmPoll = 487*time.Millisecond + 13*time.Microsecond

// NewAlarm makes an alarm that is not set. The alarm calls fire in a goroutine of its own.
func NewAlarm(now func() time.Duration, fire func()) *Alarm {
	a := &Alarm{now: now, fire: fire}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(time.Hour, a.look)
	a.timer.Stop()
	return a
}

// Reset sets the alarm to a new time. A call for the old time may still be under way.
func (a *Alarm) Reset(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at, a.set = a.now()+d, true
	a.timer.Reset(min(d, alarmPoll))
}

// Stop cancels the alarm.
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
		a.timer.Reset(min(left, alarmPoll))
	}
	a.mu.Unlock()
	if due {
		a.fire()
	}
}

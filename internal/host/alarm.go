package host

import (
	"sync"
	"time"
)

// Alarm calls a function at a given time of a clock that continues while the machine sleeps. A
// timer of package time stops while the machine sleeps, and continues with the rest of its time
// afterwards. An Alarm whose time has passed during the sleep calls its function within half a
// second after the machine wakes. To notice the sleep, an Alarm reads its clock every half second.
// An Alarm does not use the kernel's timers on such a clock (timerfd), because a test with virtual
// time cannot wait for these timers. Methods are safe for concurrent use.
type Alarm struct {
	now  func() time.Duration
	fire func()

	mu    sync.Mutex
	timer *time.Timer
	at    time.Duration
	set   bool
}

// alarmPoll is how often an alarm reads its clock. It is not a round number, so that an alarm never
// calls its function at exactly the time of a timer that was set at the same moment: their order
// would be random.
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

// Reset sets the alarm to call fire after the duration d. A call of fire for the time that was set
// before may still be running.
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

package run

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Fence keeps effects back while it is not certain that the session lives.
//
// All its times are readings of one clock that counts suspend. Methods are safe
// for concurrent use.
type Fence struct {
	now       func() time.Duration
	deadline  atomic.Int64 // the reading at which effects stop
	maxFreeze time.Duration
	kill      func()

	mu       sync.Mutex
	thawed   chan struct{} // not nil while frozen
	frozenAt time.Duration
	killed   bool
	freezers []*freezer
	alarm    Alarm
	closed   bool
}

// Alarm calls a function once a time is over by the clock of a fence.
type Alarm interface {
	Reset(d time.Duration)
	Stop()
}

type freezer struct{ freeze, thaw func() }

// NewFence opens a fence for a session whose heartbeat, or opening, was sent at
// the reading sent and lives for ttl from then on. Once it has been frozen for
// maxFreeze it calls kill, once per freeze, on a goroutine of its own. The alarm freezes
// what makes no effect that looks at the clock.
func NewFence(now func() time.Duration, alarm func(fire func()) Alarm, sent, ttl, maxFreeze time.Duration,
	kill func()) *Fence {
	f := &Fence{now: now, maxFreeze: maxFreeze, kill: kill}
	f.deadline.Store(int64(closing(sent, ttl)))
	f.mu.Lock() // the alarm may go off before its field is set
	defer f.mu.Unlock()
	f.alarm = alarm(f.tick)
	f.armLocked(closing(sent, ttl) - now())
	return f
}

// closing is when effects must stop: a third of the TTL is left for an effect
// on its way, for process trees to be stopped, and for clocks that differ in
// speed.
func closing(sent, ttl time.Duration) time.Duration { return sent + ttl - ttl/3 }

// Enter returns true once an effect may happen: at once while the fence is
// open, else after it opened again. It returns false when done closes first.
func (f *Fence) Enter(done <-chan struct{}) bool {
	for int64(f.now()) >= f.deadline.Load() {
		thawed := f.freeze()
		if thawed == nil {
			continue // renewed in between
		}
		select {
		case <-thawed:
		case <-done:
			return false
		}
	}
	return true
}

// Renew opens the fence again for ttl from the sending of a heartbeat that was
// acknowledged, and thaws what is frozen.
func (f *Fence) Renew(sent, ttl time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := int64(closing(sent, ttl))
	if f.closed || next <= f.deadline.Load() {
		return
	}
	f.deadline.Store(next)
	if f.thawed == nil || int64(f.now()) >= next {
		return
	}
	for _, x := range f.freezers {
		x.thaw()
	}
	close(f.thawed)
	f.thawed = nil
	f.armLocked(time.Duration(next) - f.now())
}

// Frozen reports whether effects are kept back.
func (f *Fence) Frozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thawed != nil
}

// OnFreeze has freeze called when the fence closes and thaw when it opens
// again, until the returned function is called. Both must be quick and must not
// call the fence. If the fence is closed now, freeze is called now.
func (f *Fence) OnFreeze(freeze, thaw func()) (remove func()) {
	x := &freezer{freeze, thaw}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freezers = append(f.freezers, x)
	if f.thawed != nil {
		freeze()
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.freezers = slices.DeleteFunc(f.freezers, func(y *freezer) bool { return x == y })
	}
}

// Close stops the fence's alarm. What is frozen stays so.
func (f *Fence) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.alarm.Stop()
}

// freeze closes the fence, if its time is over, and returns the channel that
// closes when it opens again.
func (f *Fence) freeze() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed != nil {
		return f.thawed
	}
	now := f.now()
	if int64(now) < f.deadline.Load() {
		return nil
	}
	f.thawed, f.frozenAt, f.killed = make(chan struct{}), now, false
	for _, x := range f.freezers {
		x.freeze()
	}
	f.armLocked(f.maxFreeze)
	return f.thawed
}

// tick freezes at the deadline what makes no effect of its own (a process tree),
// and ends a freeze that has lasted too long.
func (f *Fence) tick() {
	if f.freeze() == nil {
		f.mu.Lock()
		f.armLocked(time.Duration(f.deadline.Load()) - f.now())
		f.mu.Unlock()
		return
	}
	f.mu.Lock()
	left := f.frozenAt + f.maxFreeze - f.now()
	kill := f.thawed != nil && left <= 0 && !f.killed && !f.closed
	if kill {
		f.killed = true
	} else if f.thawed != nil && !f.killed {
		f.armLocked(left)
	}
	f.mu.Unlock()
	if kill {
		f.kill()
	}
}

func (f *Fence) armLocked(d time.Duration) {
	if !f.closed {
		f.alarm.Reset(max(d, time.Millisecond))
	}
}

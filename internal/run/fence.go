package run

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Fence delays effects while it is not certain that the session is still open.
//
// All times of a Fence are readings of one clock, which also counts the time during which the
// machine sleeps. Its methods are safe for concurrent use.
type Fence struct {
	now       func() time.Duration
	deadline  atomic.Int64 // the reading at which the fence closes
	maxFreeze time.Duration
	kill      func()

	mu       sync.Mutex
	thawed   chan struct{} // closed when the fence opens again; nil while the fence is open
	frozenAt time.Duration
	killed   bool
	freezers []*freezer
	alarm    Alarm
	closed   bool
}

// Alarm calls a function after a duration has passed by the clock of a fence.
type Alarm interface {
	Reset(d time.Duration)
	Stop()
}

type freezer struct{ freeze, thaw func() }

// NewFence opens a fence for a session. The session is valid for the duration ttl, counted from
// sent, the clock's reading when the worker sent the request that opened the session. When a freeze
// (the time during which the fence is closed) has lasted for maxFreeze, the fence calls kill in a
// new goroutine, once for each freeze. The alarm closes the fence even if no effect checks the
// fence.
func NewFence(now func() time.Duration, alarm func(fire func()) Alarm, sent, ttl, maxFreeze time.Duration,
	kill func()) *Fence {
	f := &Fence{now: now, maxFreeze: maxFreeze, kill: kill}
	f.deadline.Store(int64(closing(sent, ttl)))
	f.mu.Lock() // the alarm may call tick before the field alarm is set
	defer f.mu.Unlock()
	f.alarm = alarm(f.tick)
	f.armLocked(closing(sent, ttl) - now())
	return f
}

// closing returns the reading at which effects must stop. The remaining third of the TTL is left
// for effects that have already passed the fence, for stopping processes, and for clocks that run
// at different speeds.
func closing(sent, ttl time.Duration) time.Duration { return sent + ttl - ttl/3 }

// Enter waits until an effect may happen, and then returns true: at once while the fence is open,
// and otherwise when the fence opens again. It returns false if done is closed before the fence
// opens.
func (f *Fence) Enter(done <-chan struct{}) bool {
	for int64(f.now()) >= f.deadline.Load() {
		thawed := f.freeze()
		if thawed == nil {
			continue // Renew has opened the fence since the check above
		}
		select {
		case <-thawed:
		case <-done:
			return false
		}
	}
	return true
}

// Renew opens the fence after an acknowledged heartbeat. The session is valid for the duration ttl,
// counted from sent, the clock's reading when the worker sent the heartbeat. If the fence was
// closed, Renew calls the thaw functions.
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

// Frozen reports whether the fence is closed, so that effects wait.
func (f *Fence) Frozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thawed != nil
}

// OnFreeze registers two functions until remove is called: the fence calls freeze when it closes,
// and thaw when it opens again. Both functions must be quick and must not call the fence. If the
// fence is already closed, OnFreeze calls freeze at once.
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

// Close stops the fence's alarm. If the fence is closed for effects, it does not open again.
func (f *Fence) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.alarm.Stop()
}

// freeze closes the fence if its deadline has passed. It returns a channel that is closed when the
// fence opens again, or nil if the fence is open.
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

// tick is called by the alarm. It closes the fence at the deadline, so that process trees are
// stopped even if no effect checks the fence. It calls kill if a freeze has lasted for maxFreeze.
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

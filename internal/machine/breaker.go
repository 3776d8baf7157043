package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// BreakerState is the state of a circuit breaker.
type BreakerState string

// The states of a circuit breaker.
const (
	// BreakerClosed lets everything through and counts failures.
	BreakerClosed BreakerState = "closed"
	// BreakerOpen lets nothing through.
	BreakerOpen BreakerState = "open"
	// BreakerHalfOpen lets a few probes through.
	BreakerHalfOpen BreakerState = "half_open"
)

// The terms of a circuit breaker.
const (
	// breakerFailures is how many failures within breakerWindow open it.
	breakerFailures = 5
	breakerWindow   = time.Minute
	// breakerOpenFor is how long it is open before probes are let through, and how long a
	// probe may take.
	breakerOpenFor = 30 * time.Second
	// breakerSuccesses is how many probes must succeed to close it.
	breakerSuccesses = 2
)

// Breaker is the circuit breaker of a target.
type Breaker struct {
	State BreakerState `json:"state"`
	// Forced says that an operator has set State, which stays until an operator changes it.
	Forced       bool `json:"forced,omitempty"`
	Failures     int  `json:"failure_count"` // since WindowStart while closed
	Successes    int  `json:"success_count"` // of probes while half open
	WindowStart  Time `json:"window_start,omitzero"`
	LastFailedAt Time `json:"last_failure_at,omitzero"`
	OpenedAt     Time `json:"opened_at,omitzero"`
	// NextRetryAt is, while open, when probes are let through; while half open, by when
	// those that are under way must have ended.
	NextRetryAt Time `json:"next_retry_at,omitzero"`
}

// probes is how many more probes are let through, beside those that are under way.
func (b *Breaker) probes(held int) int {
	if b.State != BreakerHalfOpen {
		return 0
	}
	return max(0, breakerSuccesses-b.Successes-held)
}

// failed notes a failure of the target.
func (b *Breaker) failed(now Time) {
	b.LastFailedAt = now
	switch {
	case b.Forced:
	case b.State == BreakerHalfOpen:
		b.open(now)
	case b.State == BreakerClosed:
		if b.WindowStart == 0 || b.WindowStart.Add(breakerWindow) <= now || b.WindowStart > now {
			b.WindowStart, b.Failures = now, 0
		}
		if b.Failures++; b.Failures >= breakerFailures {
			b.open(now)
		}
	}
}

func (b *Breaker) open(now Time) {
	b.State, b.OpenedAt, b.NextRetryAt, b.Successes = BreakerOpen, now, now.Add(breakerOpenFor), 0
}

// succeeded notes that a probe succeeded.
func (b *Breaker) succeeded() {
	if b.Forced || b.State != BreakerHalfOpen {
		return
	}
	if b.Successes++; b.Successes >= breakerSuccesses {
		b.close()
	}
}

func (b *Breaker) close() { *b = Breaker{State: BreakerClosed, LastFailedAt: b.LastFailedAt} }

// pass does what time does to the breaker. It reports whether it changed.
func (b *Breaker) pass(now Time) bool {
	if b.Forced || !b.NextRetryAt.over(now) {
		return false
	}
	switch b.State {
	case BreakerOpen:
		b.State, b.Successes, b.NextRetryAt = BreakerHalfOpen, 0, 0
	case BreakerHalfOpen: // a probe has not ended in time
		b.failed(now)
	case BreakerClosed:
		return false
	}
	return true
}

// force sets the state because an operator says so.
func (b *Breaker) force(action belay.GateAction, now Time) {
	*b = Breaker{State: BreakerClosed, LastFailedAt: b.LastFailedAt}
	switch action {
	case belay.GateForceOpen:
		b.State, b.Forced, b.OpenedAt = BreakerOpen, true, now
	case belay.GateForceClosed:
		b.Forced = true
	default:
	}
}

// blamesTarget reports whether a failure of a class counts against the target of its run.
func blamesTarget(c belay.Class) bool { return c == belay.ClassTransient || c == belay.ClassTimeout }

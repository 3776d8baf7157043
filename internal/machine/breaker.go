package machine

import (
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// BreakerState is the state of a circuit breaker.
type BreakerState string

// The states of a circuit breaker.
const (
	// BreakerClosed lets all executions through and counts failures.
	BreakerClosed BreakerState = "closed"
	// BreakerOpen lets no execution through.
	BreakerOpen BreakerState = "open"
	// BreakerHalfOpen lets one execution at a time through as a probe of the target. If a probe is
	// slow, the breaker lets another probe through while the slow probe still runs.
	BreakerHalfOpen BreakerState = "half_open"
)

// The limits of a circuit breaker.
const (
	// breakerFailures is the number of failures within breakerWindow that opens the breaker.
	breakerFailures = 5
	breakerWindow   = time.Minute
	// breakerOpenFor is how long the breaker is open at first before it lets a probe through. Each
	// probe that fails doubles the time, up to breakerOpenMax.
	breakerOpenFor = 30 * time.Second
	breakerOpenMax = 5 * time.Minute
	// breakerSuccesses is the number of probes that must succeed to close the breaker.
	breakerSuccesses = 2
	// breakerProbes is the number of probes that may run at the same time, not counting slow
	// probes; breakerProbesMax is the number of probes that may run at the same time, counting slow
	// probes.
	breakerProbes    = 1
	breakerProbesMax = 5
)

// Breaker is the circuit breaker of a target, the name of an external service that runs call.
type Breaker struct {
	State BreakerState `json:"state"`
	// Forced says that an operator has set State. The rules do not change a forced State. By and
	// Reason are the operator and the operator's reason.
	Forced       bool   `json:"forced,omitempty"`
	By           string `json:"by,omitempty"`
	Reason       string `json:"reason,omitempty"`
	Failures     int    `json:"failure_count"` // number of failures since WindowStart, while the breaker is closed
	Successes    int    `json:"success_count"` // number of probes that succeeded, while the breaker is half open
	WindowStart  Time   `json:"window_start,omitzero"`
	LastFailedAt Time   `json:"last_failure_at,omitzero"`
	OpenedAt     Time   `json:"opened_at,omitzero"`
	// NextRetryAt is, while the breaker is open, the time at which it will let a probe through.
	// While the breaker is half open, NextRetryAt is the time at which it lets another probe
	// through even if the last probe still runs.
	NextRetryAt Time `json:"next_retry_at,omitzero"`
	// Retries is the number of probes that failed or were slow since the breaker was closed.
	Retries int `json:"retries,omitempty"`
	// Probes are the running probes that are calls by steps.
	Probes []stepProbe `json:"probes,omitempty"`
	// Slow is the number of slow probes: they still run although another probe was let through
	// after them. While a slow probe runs, the breaker cannot know whether the target works: calls
	// of the target may take minutes, or the target may hang.
	Slow int `json:"slow,omitempty"`
}

func (b *Breaker) equal(c *Breaker) bool {
	return b.State == c.State && b.Forced == c.Forced && b.By == c.By && b.Reason == c.Reason &&
		b.Failures == c.Failures && b.Successes == c.Successes &&
		b.WindowStart == c.WindowStart && b.LastFailedAt == c.LastFailedAt && b.OpenedAt == c.OpenedAt &&
		b.NextRetryAt == c.NextRetryAt && b.Retries == c.Retries && b.Slow == c.Slow && slices.Equal(b.Probes, c.Probes)
}

// probes is the number of further probes that the breaker lets through, while held executions
// (those with a place in the gate) and the steps in b.Probes are running as probes.
func (b *Breaker) probes(held int) int {
	if b.State != BreakerHalfOpen {
		return 0
	}
	running := held + len(b.Probes)
	return max(0, min(breakerProbes-(running-min(b.Slow, running)), breakerProbesMax-running))
}

// openFor is how long the breaker now waits before it lets another probe through.
func (b *Breaker) openFor() time.Duration {
	return min(breakerOpenFor<<min(b.Retries, 8), breakerOpenMax)
}

// probing notes that a probe begins now, and sets the time at which the probe will count as slow.
func (b *Breaker) probing(now Time) { b.NextRetryAt = now.Add(b.openFor()) }

// probed counts the end of a probe. If slow probes run, probed assumes that a slow probe has ended,
// so that never more than breakerProbes probes run that are not slow.
func (b *Breaker) probed() { b.Slow = max(0, b.Slow-1) }

// failed counts a failure of the target.
func (b *Breaker) failed(now Time) {
	b.LastFailedAt = now
	switch {
	case b.Forced:
	case b.State == BreakerHalfOpen:
		b.Retries++
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
	b.State, b.OpenedAt, b.NextRetryAt, b.Successes = BreakerOpen, now, now.Add(b.openFor()), 0
	b.Probes, b.Slow = nil, 0
}

// succeeded counts a probe that succeeded.
func (b *Breaker) succeeded() {
	if b.Forced || b.State != BreakerHalfOpen {
		return
	}
	if b.Successes++; b.Successes >= breakerSuccesses {
		b.close()
	}
}

func (b *Breaker) close() { *b = Breaker{State: BreakerClosed, LastFailedAt: b.LastFailedAt} }

// pass applies the change that is due by now: an open breaker becomes half open, and a half-open
// breaker makes room for another probe if a running probe is slow. The running probes are the held
// executions (those with a place in the gate) and the steps in b.Probes. pass reports whether the
// breaker changed.
func (b *Breaker) pass(now Time, held int) bool {
	if b.Forced || !b.NextRetryAt.over(now) {
		return false
	}
	switch b.State {
	case BreakerOpen: // executions with a place are probes that began before the breaker opened
		b.State, b.Successes, b.NextRetryAt, b.Probes, b.Slow = BreakerHalfOpen, 0, 0, nil, held
	case BreakerHalfOpen:
		b.NextRetryAt = 0
		if extra := len(b.Probes) - (breakerProbesMax - 1); extra > 0 { // some calls never report their end
			b.Probes = slices.Delete(b.Probes, 0, extra)
		}
		if b.Slow = held + len(b.Probes); b.Slow > 0 {
			b.Retries++
		}
	case BreakerClosed:
		return false
	}
	return true
}

// force sets the state that an operator requests, or resets the breaker for GateAutomatic. If an
// operator forces a breaker open that is already forced open, OpenedAt keeps the time of the first
// order.
func (b *Breaker) force(c *belay.GateChange, now Time) {
	was := *b
	*b = Breaker{State: BreakerClosed, LastFailedAt: was.LastFailedAt}
	switch c.Action {
	case belay.GateForceOpen:
		b.State, b.OpenedAt = BreakerOpen, now
		if was.Forced && was.State == BreakerOpen {
			b.OpenedAt = was.OpenedAt
		}
	case belay.GateForceClosed:
	default:
		return
	}
	b.Forced, b.By, b.Reason = true, c.Actor, c.Reason
}

// blamesTarget reports whether a failure of this class counts as a failure of the run's target.
func blamesTarget(c belay.Class) bool { return c == belay.ClassTransient || c == belay.ClassTimeout }

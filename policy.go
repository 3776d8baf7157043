package belay

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration that people write as "15m".
type Duration time.Duration

// D is the duration as Go's own type.
func (d Duration) D() time.Duration { return time.Duration(d) }

// MarshalText writes the duration as Go does: 1h30m0s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return &Error{Code: CodeMalformed, Message: fmt.Sprintf(`%q is no duration; write one like "90s" or "15m"`, b)}
	}
	*d = Duration(v)
	return nil
}

// Limits that every Backend holds to; what is beyond them is refused with
// CodePayloadTooLarge and the limit.
const (
	// MaxPayload is the most bytes of an input, an output or a checkpoint.
	MaxPayload = 1 << 20
	// MaxSignal is the most bytes of a signal's payload.
	MaxSignal = 64 << 10
	// MaxSignals is the most signals that an execution keeps which no checkpoint has
	// consumed, and MaxSignalBytes the most bytes of their payloads. One more is refused
	// with CodeQueueFull.
	MaxSignals     = 10_000
	MaxSignalBytes = 320 << 20
	// MaxLog is the most bytes kept of one log: its first MiB and its tail. A
	// name of which a piece of the middle was dropped is a log.
	MaxLog = 16 << 20
	// MaxArtifact is the most bytes of one artifact, and of what one run writes
	// under any name. The artifact of an earlier run that it replaces may stay
	// until it is whole.
	MaxArtifact = 64 << 20
	// MaxChunk is the most bytes of one chunk of a log or artifact.
	MaxChunk = 256 << 10
	// MaxName is the most bytes of a name, a key, a label or a reason.
	MaxName = 200
	// MaxLabels is the most labels of one execution or worker.
	MaxLabels = 32
	// MaxPriority bounds priorities: -MaxPriority … MaxPriority.
	MaxPriority = 100
)

// Defaults of a Policy and of a worker's session.
const (
	DefaultMaxAttempts = 3
	DefaultBackoffBase = Duration(time.Second)
	DefaultBackoffCap  = Duration(30 * time.Second)
	DefaultMaxLosses   = 5
	DefaultCancelGrace = Duration(10 * time.Second)
	DefaultScheduled   = Duration(300 * time.Second)
	DefaultTTL         = Duration(15 * time.Second)
	DefaultHeartbeat   = Duration(5 * time.Second)
	MinTTL             = Duration(time.Second)
	MaxTTL             = Duration(365 * 24 * time.Hour)
	MinHeartbeat       = Duration(300 * time.Millisecond)
)

// OnLost says what becomes of an execution whose owner is lost.
type OnLost string

// OnExpired says what becomes of an execution whose named worker did not accept it.
type OnExpired string

// The choices; the empty string is the first of each, but for an owner from
// outside, who alone knows how to go on: if that is lost, it means Fail.
const (
	Requeue OnLost = "requeue" // the next worker takes it from its last checkpoint
	Fail    OnLost = "fail"    // it fails, and says why

	Reschedule  OnExpired = "reschedule"
	FailExpired OnExpired = "fail"
)

// Policy is what an execution's author may decide about its failures and
// limits. The zero value means the defaults.
type Policy struct {
	// MaxAttempts is how many failed or timed-out runs end the execution;
	// 0 means DefaultMaxAttempts, 1 means no retry.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// BackoffBase is the wait after the first failure; it doubles with each
	// further one up to BackoffCap. Up to a quarter more is added as jitter.
	BackoffBase Duration `json:"backoff_base,omitempty"`
	BackoffCap  Duration `json:"backoff_cap,omitempty"`
	// MaxLosses is how many runs in a row may be lost without a new
	// checkpoint; 0 means DefaultMaxLosses.
	MaxLosses int `json:"max_losses,omitempty"`

	// ScheduledTimeout bounds state scheduled; 0 means DefaultScheduled.
	ScheduledTimeout Duration `json:"scheduled_timeout,omitempty"`
	// StartTimeout bounds the time from due to running; 0 means none.
	StartTimeout Duration `json:"start_timeout,omitempty"`
	// RunTimeout bounds one run; 0 means none. The worker ends its work then;
	// the engine does so a cancel grace later if the worker has not. The same
	// grace holds for Timeout while the execution runs.
	RunTimeout Duration `json:"run_timeout,omitempty"`
	// IdleTimeout bounds the time without progress: a step, a checkpoint, a
	// line of output; 0 means none. Steps, checkpoints and stored output count
	// at once, other progress with the worker's next heartbeat, so less than
	// three heartbeats is unwise.
	IdleTimeout Duration `json:"idle_timeout,omitempty"`
	// Timeout bounds the whole execution from its first run on, waiting and
	// pauses included, never the queue before it; 0 means none.
	Timeout Duration `json:"timeout,omitempty"`

	// CancelGrace is how long a cancelled run may take to end by itself;
	// 0 means DefaultCancelGrace.
	CancelGrace Duration `json:"cancel_grace,omitempty"`
	// LockDelay is how long after a loss nobody may claim the execution, for
	// targets that cannot check a token.
	LockDelay Duration `json:"lock_delay,omitempty"`

	OnLost    OnLost    `json:"on_lost,omitempty"`
	OnExpired OnExpired `json:"on_expired,omitempty"`
	// NoDeadLetters leaves no dead letter when the execution fails.
	NoDeadLetters bool `json:"no_dead_letters,omitempty"`
	// Abandon lets the execution live on when its parent ends.
	Abandon bool `json:"abandon,omitempty"`
}

// Text is the policy as it is stored; nil for the zero policy.
func (p Policy) Text() []byte {
	if p == (Policy{}) {
		return nil
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of scalars always marshals
	}
	return b
}

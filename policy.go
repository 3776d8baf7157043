package belay

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration that people write as "15m".
type Duration time.Duration

// D converts the duration to a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// MarshalText writes the duration as Go does: 1h30m0s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return &Error{Code: CodeMalformed, Message: fmt.Sprintf(`%q is no duration; write a duration such as "90s" or "15m"`, b)}
	}
	*d = Duration(v)
	return nil
}

// Limits of every Backend. Data beyond a limit is refused with CodePayloadTooLarge; the message
// names the limit.
const (
	// MaxPayload is the largest size of an input, an output or a checkpoint, in bytes.
	MaxPayload = 1 << 20
	// MaxSignal is the largest size of a signal's payload, in bytes.
	MaxSignal = 64 << 10
	// MaxSignals is the largest number of signals that an execution keeps before a checkpoint
	// consumes them, and MaxSignalBytes is the largest total size of their payloads, in bytes.
	// Further signals are refused with CodeQueueFull.
	MaxSignals     = 10_000
	MaxSignalBytes = 320 << 20
	// MaxLog is the most bytes that are kept of one log: its first MiB and its tail. A name from
	// which chunks were dropped in the middle counts as a log, not as an artifact.
	MaxLog = 16 << 20
	// MaxArtifact is the largest size of one artifact, and of all the data that one run writes
	// under one name, in bytes. An artifact of an earlier run, which the new artifact replaces, may
	// stay until the new one is complete.
	MaxArtifact = 64 << 20
	// MaxChunk is the largest size of one chunk of a log or artifact, in bytes.
	MaxChunk = 256 << 10
	// MaxName is the largest length of a name, a key, a label or a reason, in bytes.
	MaxName = 200
	// MaxLabels is the largest number of labels of one execution or worker.
	MaxLabels = 32
	// MaxPriority is the highest priority; the lowest is -MaxPriority.
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

// OnLost is the policy for an execution whose owner is lost, because its worker crashed or was cut
// off.
type OnLost string

// OnExpired is the policy for an execution that its named worker did not accept within
// ScheduledTimeout.
type OnExpired string

// The values of OnLost and OnExpired. The empty string means the first of each, with one exception:
// if the owner is no worker but a program that called Backend.Lock, an empty OnLost means Fail,
// since that program alone knows how to continue the execution.
const (
	Requeue OnLost = "requeue" // another worker continues the execution from its last checkpoint
	Fail    OnLost = "fail"    // the execution fails with the reason

	Reschedule  OnExpired = "reschedule"
	FailExpired OnExpired = "fail"
)

// Policy sets the retries, timeouts and other limits of one execution. The zero value means the
// defaults.
type Policy struct {
	// MaxAttempts is after how many failed or timed-out runs the execution fails; 0 means
	// DefaultMaxAttempts, 1 means no retry.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// BackoffBase is the delay after the first failed run; it doubles with each further failure, up
	// to BackoffCap. Jitter adds up to a quarter.
	BackoffBase Duration `json:"backoff_base,omitempty"`
	BackoffCap  Duration `json:"backoff_cap,omitempty"`
	// MaxLosses is after how many lost runs in a row, without a new checkpoint, the execution
	// fails; 0 means DefaultMaxLosses.
	MaxLosses int `json:"max_losses,omitempty"`

	// ScheduledTimeout bounds the time in state scheduled; 0 means DefaultScheduled.
	ScheduledTimeout Duration `json:"scheduled_timeout,omitempty"`
	// StartTimeout bounds the time from when the execution is due until it runs; 0 means no limit.
	StartTimeout Duration `json:"start_timeout,omitempty"`
	// RunTimeout bounds one run; 0 means no limit. When it is over, the worker ends the run; if the
	// worker does not, the engine ends the run after a further CancelGrace. The engine adds the
	// same grace period to Timeout while the execution is running.
	RunTimeout Duration `json:"run_timeout,omitempty"`
	// IdleTimeout bounds the time without progress; 0 means no limit. Steps, checkpoints and stored
	// output count as progress at once; other progress counts with the worker's next heartbeat, so
	// choose at least three times the heartbeat interval.
	IdleTimeout Duration `json:"idle_timeout,omitempty"`
	// Timeout bounds the whole execution, waits and pauses included, from the start of its first
	// run; time in the queue before that does not count. 0 means no limit.
	Timeout Duration `json:"timeout,omitempty"`

	// CancelGrace is how long a cancelled run may take to end by itself;
	// 0 means DefaultCancelGrace.
	CancelGrace Duration `json:"cancel_grace,omitempty"`
	// LockDelay is how long after the loss of its owner the execution cannot be claimed, so that
	// the lost owner has stopped. It is for workflows that act on systems which cannot check a
	// fencing token.
	LockDelay Duration `json:"lock_delay,omitempty"`

	OnLost    OnLost    `json:"on_lost,omitempty"`
	OnExpired OnExpired `json:"on_expired,omitempty"`
	// NoDeadLetters makes the failed execution leave no dead letter.
	NoDeadLetters bool `json:"no_dead_letters,omitempty"`
	// Abandon lets the execution continue when its parent ends.
	Abandon bool `json:"abandon,omitempty"`
}

// Text is the policy as JSON, as the store keeps it; nil for the zero policy.
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

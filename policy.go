package belay

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration that people write as "15m".
type Duration time.Duration

// D returns the duration as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// MarshalText writes the duration in Go's format: 1h30m0s.
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

// Limits of every Backend. A Backend refuses data beyond a limit with CodePayloadTooLarge, and the
// message names the limit.
const (
	// MaxPayload is the largest size of an input, an output or a checkpoint, in bytes.
	MaxPayload = 1 << 20
	// MaxSignal is the largest size of a signal's payload, in bytes.
	MaxSignal = 64 << 10
	// MaxSignals is the largest number of signals that an execution keeps before a checkpoint
	// consumes them, and MaxSignalBytes is the largest total size of their payloads, in bytes. The
	// Backend refuses further signals with CodeQueueFull.
	MaxSignals     = 10_000
	MaxSignalBytes = 320 << 20
	// MaxConsumes is the largest length of Save.AlsoConsumes.
	MaxConsumes = 1000
	// MaxLog is the largest number of bytes that the store keeps of one log. A log keeps its first
	// MiB and its end; the chunks between them are dropped. As long as no chunk was dropped, the
	// limits of an artifact apply.
	MaxLog = 16 << 20
	// MaxArtifact is the largest size of one artifact, and of all the data that one run writes
	// under one name, in bytes. The store may keep an artifact of an earlier run until the artifact
	// that replaces it is complete.
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

// OnNoWorker is the policy for an execution that is due while no connected worker can take it.
type OnNoWorker string

// The values of OnLost, OnExpired and OnNoWorker. The empty string means the first value of each type, with one
// exception: if the owner is a program that called Backend.Lock, an empty OnLost means Fail, since
// only that program can continue the execution.
const (
	Requeue OnLost = "requeue" // another worker continues the execution from its last checkpoint
	Fail    OnLost = "fail"    // the execution fails, and its error gives the reason

	Reschedule  OnExpired = "reschedule"
	FailExpired OnExpired = "fail"

	WaitForWorker OnNoWorker = "wait" // the execution waits until a worker claims it
	// FailNoWorker makes the execution fail with the error "no workers available". The engine looks for
	// workers when the execution becomes due, and again whenever a session has ended or is drained. A
	// worker can take the execution if the worker's session is open and the worker has registered the
	// workflow, the queue and the required labels; the worker need not have a free slot.
	FailNoWorker OnNoWorker = "fail"
)

// Policy sets the retries, timeouts and other limits of one execution. The zero value means the
// defaults.
type Policy struct {
	// MaxAttempts is the number of failed or timed-out runs after which the execution fails; 0
	// means DefaultMaxAttempts, and 1 means no retry.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// BackoffBase is the delay after the first failed run. The delay doubles with each further
	// failure, up to BackoffCap. Jitter adds up to a quarter of the delay.
	BackoffBase Duration `json:"backoff_base,omitempty"`
	BackoffCap  Duration `json:"backoff_cap,omitempty"`
	// MaxLosses is the number of lost runs in a row, without a new checkpoint, after which the
	// execution fails; 0 means DefaultMaxLosses.
	MaxLosses int `json:"max_losses,omitempty"`

	// ScheduledTimeout bounds the time in state scheduled; 0 means DefaultScheduled.
	ScheduledTimeout Duration `json:"scheduled_timeout,omitempty"`
	// StartTimeout bounds the time from the moment at which the execution is due until it runs; 0
	// means no limit.
	StartTimeout Duration `json:"start_timeout,omitempty"`
	// RunTimeout bounds one run; 0 means no limit. After this time the worker ends the run. If the
	// worker does not, the engine ends the run after a further CancelGrace. The engine adds the
	// same grace period to Timeout while the execution is running.
	RunTimeout Duration `json:"run_timeout,omitempty"`
	// IdleTimeout bounds the time without progress of a run; 0 means no limit. Steps, checkpoints and
	// stored output count as progress at once. Other progress counts with the worker's next heartbeat,
	// which reports it in Held.Idle, so choose at least three times the heartbeat interval. A heartbeat
	// alone is no progress: an owner that is stuck may still send heartbeats. For an owner that called
	// Lock, only checkpoints and output count. There is no default, because a limit that fits one
	// workflow would end the long but healthy steps of another workflow.
	IdleTimeout Duration `json:"idle_timeout,omitempty"`
	// Timeout bounds the whole execution, waits and pauses included, from the start of its first
	// run. The time in the queue before the first run does not count. 0 means no limit.
	Timeout Duration `json:"timeout,omitempty"`

	// CancelGrace is how long a cancelled run may take to end by itself;
	// 0 means DefaultCancelGrace.
	CancelGrace Duration `json:"cancel_grace,omitempty"`
	// LockDelay is the time after the loss of an owner in which the execution cannot be claimed. In
	// this time the lost owner can stop. It is for workflows that act on systems which cannot check
	// a fencing token.
	LockDelay Duration `json:"lock_delay,omitempty"`

	OnLost    OnLost    `json:"on_lost,omitempty"`
	OnExpired OnExpired `json:"on_expired,omitempty"`
	// OnNoWorker says whether the execution waits or fails if no connected worker can take it.
	OnNoWorker OnNoWorker `json:"on_no_worker,omitempty"`
	// NoDeadLetters makes the failed execution leave no dead letter.
	NoDeadLetters bool `json:"no_dead_letters,omitempty"`
	// Abandon lets the execution continue when its parent ends.
	Abandon bool `json:"abandon,omitempty"`
}

// Text returns the policy as JSON in the form in which the store keeps it: each duration is text
// only, without its milliseconds. It returns nil for the zero policy.
func (p Policy) Text() []byte {
	if p == (Policy{}) {
		return nil
	}
	b, err := json.Marshal(policyFields(p))
	if err != nil {
		panic(err) // Marshal of a struct of these fields cannot fail
	}
	return b
}

package belay

import (
	"context"
	"encoding/json"
	"time"
)

// DefaultLockTTL is how long an outside owner's lock lives after a heartbeat,
// unless it asks for something else. It is told to beat three times as often.
const DefaultLockTTL = Duration(30 * time.Second)

// LockRequest asks to own one execution from outside: by a program that is no
// worker and runs it in its own way. The lock is a session of one execution. It
// is lost like any session whose heartbeats stay away; then the execution fails,
// unless its policy says to requeue it.
type LockRequest struct {
	// ID is the session's id and the operation's: locking again with it finds
	// the lock. The Backend makes one if it is zero.
	ID        WorkerID    `json:"id,omitzero"`
	Execution ExecutionID `json:"execution"`
	// Owner says to people who it is. At most MaxName bytes.
	Owner string `json:"owner"`
	// TTL is how long the lock lives after a heartbeat; 0 means
	// DefaultLockTTL, and MinTTL is the least.
	TTL Duration `json:"ttl,omitempty"`
	// Reopen opens a failed or cancelled execution again in the same commit; one
	// that has not ended is locked as it is.
	Reopen bool `json:"reopen,omitempty"`
}

// Lock answers a LockRequest with all that is needed to go on.
type Lock struct {
	Lease Lease
	// ExpiresIn is how long the lock lives, counted from the sending of the
	// request or of the last heartbeat.
	ExpiresIn time.Duration
	// Heartbeat is how often the owner should renew it.
	Heartbeat time.Duration
	// Execution is the execution as it is now, with its input.
	Execution Execution
	// Checkpoints are the newest of each key that count, in order of seq.
	Checkpoints []Checkpoint
	// Signals are those not consumed yet, in order of seq.
	Signals []Signal
	// More tells that the reply had no room for all of them. Owner.Resume reads the
	// rest.
	More bool
	// Replayed says that the lock was held under this id already.
	Replayed bool
}

// Complete reads the checkpoints and signals that the reply had no room for.
func (l *Lock) Complete(ctx context.Context, from Owner) error {
	have := Resumed{Checkpoints: l.Checkpoints, Signals: l.Signals}
	for after := have.Last(); l.More; {
		part, err := from.Resume(ctx, ResumeQuery{Lease: l.Lease, After: after})
		if err != nil {
			return err
		}
		l.Checkpoints, l.Signals = append(l.Checkpoints, part.Checkpoints...), append(l.Signals, part.Signals...)
		after, l.More = max(after, part.Last()), part.More
	}
	return nil
}

// Holder says who owns an execution, to whoever cannot have it.
type Holder struct {
	Owner     string        `json:"owner"`
	Worker    WorkerID      `json:"worker"`
	Token     Token         `json:"token"`
	ExpiresIn time.Duration `json:"-"`
}

// RunRecord is one attempt at an execution as the store held it at one moment.
type RunRecord struct {
	ID         RunID           `json:"id"`
	Execution  ExecutionID     `json:"execution"`
	Token      Token           `json:"token"`
	Worker     WorkerID        `json:"worker"`
	Attempt    int             `json:"attempt"`
	Generation int             `json:"generation"`
	Outcome    Outcome         `json:"outcome,omitzero"` // zero while it runs
	StartedAt  time.Time       `json:"started_at,omitzero"`
	EndedAt    time.Time       `json:"ended_at,omitzero"`
	Output     json.RawMessage `json:"output,omitempty"`
	Error      *Failure        `json:"error,omitempty"`
	CostTokens int64           `json:"cost_tokens,omitempty"`
}

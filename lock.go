package belay

import (
	"context"
	"encoding/json"
	"time"
)

// DefaultLockTTL is how long a lock is valid after a heartbeat, unless its owner requests another
// duration. The reply tells the owner to send a heartbeat every third of this time.
const DefaultLockTTL = Duration(30 * time.Second)

// LockRequest requests the ownership of one execution for a program that is not a worker. The lock
// is a session for this execution alone. Like any session, it expires when its heartbeats stop;
// then the execution fails, unless its policy's OnLost is Requeue.
type LockRequest struct {
	// ID is the id of the session and of the lock operation: a second request with the same ID
	// takes no second lock and returns the lock of the first request. If ID is zero, the Backend
	// makes an id.
	ID        WorkerID    `json:"id,omitzero"`
	Execution ExecutionID `json:"execution"`
	// Owner is the name of the owner as people read it. It has at most MaxName bytes.
	Owner string `json:"owner"`
	// TTL is how long the lock is valid after a heartbeat; 0 means DefaultLockTTL. The minimum is
	// MinTTL.
	TTL Duration `json:"ttl,omitempty"`
	// Reopen opens a failed or cancelled execution again in the transaction that locks it. For an
	// execution that has not ended, Reopen has no effect.
	Reopen bool `json:"reopen,omitempty"`
}

// Lock is the answer to a LockRequest. It has all data that the owner needs to continue the
// execution.
type Lock struct {
	Lease Lease
	// ExpiresIn is how long the lock is valid, counted from the time at which the request or the
	// last heartbeat was sent.
	ExpiresIn time.Duration
	// Heartbeat is how often the owner should renew the lock.
	Heartbeat time.Duration
	// Execution is the execution in its current state, with its input.
	Execution Execution
	// Checkpoints has the newest valid checkpoint of each key, in order of seq.
	Checkpoints []Checkpoint
	// Signals has the signals that no checkpoint has consumed yet, in order of seq.
	Signals []Signal
	// More says that the reply had no room for all checkpoints and signals. Owner.Resume reads the
	// others.
	More bool
	// Replayed says that an earlier LockRequest with the same ID took this lock.
	Replayed bool
}

// Complete reads the checkpoints and signals for which the reply to Lock had no room, and adds them
// to l.
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

// Holder describes the present owner of an execution to a program that tried to lock the execution.
type Holder struct {
	Owner     string        `json:"owner"`
	Worker    WorkerID      `json:"worker"`
	Token     Token         `json:"token"`
	ExpiresIn time.Duration `json:"-"`
}

// RunRecord is one run (attempt) of an execution, read from the store at one moment.
type RunRecord struct {
	ID         RunID           `json:"id"`
	Execution  ExecutionID     `json:"execution"`
	Workflow   string          `json:"workflow"`
	Token      Token           `json:"token"`
	Worker     WorkerID        `json:"worker"`
	Attempt    int             `json:"attempt"`
	Generation int             `json:"generation"`
	Outcome    Outcome         `json:"outcome,omitzero"` // zero while the run goes on
	StartedAt  time.Time       `json:"started_at,omitzero"`
	EndedAt    time.Time       `json:"ended_at,omitzero"`
	DurationMS int64           `json:"duration_ms,omitempty" doc:"From started_at to ended_at, at least 1; absent while the run goes on."` // 0 while the run goes on, otherwise at least 1
	Output     json.RawMessage `json:"output,omitempty"`
	Error      *Failure        `json:"error,omitempty"`
	CostTokens Cost            `json:"cost_tokens,omitempty"`
	// InputsHash and ConfigHash have the same values as the fields of the [Execution] with these names.
	InputsHash string `json:"inputs_hash,omitempty"`
	ConfigHash string `json:"config_hash,omitempty"`
}

// RunFilter selects runs of all executions. Empty fields select all.
type RunFilter struct {
	Worker   WorkerID
	Workflow string
	// Outcome selects the runs that ended with an outcome, and Running the runs that have not ended.
	// At most one of them is set.
	Outcome Outcome
	Running bool
	// Since and Until bound the time at which the run started, by the store's clock:
	// Since ≤ StartedAt < Until.
	Since, Until time.Time
	// Cursor is the Next of the previous page, empty for the first page.
	Cursor string
	// Limit is the largest number of runs on the page: 100 if it is 0, and never more than 1,000.
	Limit int
}

// RunPage is one page of a list of runs, the run that started last first.
type RunPage struct {
	// Runs are without their outputs and without the stacks of their errors.
	Runs []RunRecord `json:"runs"`
	// Next is the Cursor for the next page, empty on the last page. A page may have fewer runs than the
	// limit, or none, although further pages have some: one call examines 10,000 runs at most.
	Next string `json:"next,omitempty"`
}

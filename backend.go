package belay

import (
	"context"
	"time"
)

// Backend is Belay as a program sees it. Every method is safe for concurrent
// use, honours its context, and refuses with an *Error.
//
// A write whose reply was lost may have happened: send it again with the same
// operation id (ID, Op or Number) and it answers as it did the first time.
type Backend interface {
	Client
	Owner
	Keyring
	// Close ends what the Backend holds in this process. It blocks until
	// that is done.
	Close() error
}

// Client is what those who submit and watch use.
type Client interface {
	// Submit accepts executions. Each stands or falls alone, its error in
	// its answer; the call's own error means that none is known to have
	// been accepted.
	Submit(ctx context.Context, s ...Submission) ([]Submitted, error)
	// Control carries out an action. CodeConflict if it is not legal from
	// where the execution stands; doing what is already done is no error.
	Control(ctx context.Context, c Control) (Execution, error)
	// Signal delivers a signal; it is kept if nobody waits for it yet.
	// CodeConflict if the execution has ended.
	Signal(ctx context.Context, s SignalRequest) error
	// Execution reads one execution, CodeNotFound if there is none.
	Execution(ctx context.Context, id ExecutionID) (Execution, error)
	// Await answers with the execution as soon as it has ended, or as it is
	// when wait is over. Input, labels and policy may be left out.
	Await(ctx context.Context, id ExecutionID, wait time.Duration) (Execution, error)
	// Executions lists, newest first.
	Executions(ctx context.Context, f Filter) (Page, error)
	// Events reads history: ordered, unique, gapless. With Wait it is a long
	// poll that answers as soon as there is an event, and with none when the
	// time is over.
	Events(ctx context.Context, q EventQuery) ([]Event, error)
	// Runs reads the attempts at an execution, the newest first, 200 at most.
	// CodeNotFound if there is no such execution.
	Runs(ctx context.Context, id ExecutionID) ([]RunRecord, error)
	// Explain says why an execution is where it is.
	Explain(ctx context.Context, id ExecutionID) (Explanation, error)
	// Chunks reads a log or artifact.
	Chunks(ctx context.Context, q ChunkQuery) ([]StoredChunk, error)
	// Workers lists the sessions, the living first, newest first.
	Workers(ctx context.Context) ([]Worker, error)
}

// Owner is what workers use. Package worker does so correctly; other languages
// speak the same protocol over HTTP.
type Owner interface {
	// OpenWorker opens a session.
	OpenWorker(ctx context.Context, s WorkerSpec) (Session, error)
	// Claim wins executions for a worker's free slots. It waits up to Wait
	// while there are none, and answers early with Attention when the
	// worker's next heartbeat has something to tell. CodeLeaseLost when the
	// session has ended.
	Claim(ctx context.Context, r ClaimRequest) (ClaimReply, error)
	// Heartbeat renews the session. CodeLeaseLost when it has ended: then
	// everything held is lost.
	Heartbeat(ctx context.Context, h Heartbeat) (HeartbeatReply, error)
	// Drain stops new claims of a worker.
	Drain(ctx context.Context, id WorkerID) error
	// CloseWorker ends a session in order; what it still holds is released.
	CloseWorker(ctx context.Context, id WorkerID) error
	// Save writes a checkpoint and returns its seq. CodeLeaseLost, with the
	// cause, when the lease does not hold any more.
	Save(ctx context.Context, s Save) (int64, error)
	// Settle ends a run. CodeLeaseLost as with Save.
	Settle(ctx context.Context, s Settlement) error
	// Signals reads signals not consumed yet: the first of them, up to some
	// megabytes. There are no more once a query after the last finds none.
	Signals(ctx context.Context, q SignalQuery) ([]Signal, error)
	// Resume reads what the owner of a lease goes on from: what its claim or its lock
	// had no room for. CodeLeaseLost as with Save.
	Resume(ctx context.Context, q ResumeQuery) (Resumed, error)
	// Append writes a chunk of a log or artifact under a lease.
	Append(ctx context.Context, c Chunk) error
	// Lock makes the caller the owner of one execution from outside: token,
	// execution and last checkpoint in one commit. It takes one that is due,
	// or that waits, and that nobody owns. CodeLeaseHeld, with the Holder,
	// while somebody does; CodeConflict when it is not to be had otherwise.
	// The owner then uses Renew, Save, Append and Settle.
	Lock(ctx context.Context, r LockRequest) (Lock, error)
	// Renew is the heartbeat of one run: it renews the session that holds the
	// lease and counts as progress, and reconciles nothing. A lease without a
	// token is known by its secret. CodeLeaseLost as with Save.
	Renew(ctx context.Context, l Lease) (HeartbeatReply, error)
}

// Keyring keeps the keys that let others use a server.
type Keyring interface {
	// CreateKey makes a key and shows its secret this once.
	CreateKey(ctx context.Context, s KeySpec) (NewKey, error)
	// Keys lists the keys, revoked ones too, oldest first.
	Keys(ctx context.Context) ([]Key, error)
	// RevokeKey ends a key for good; doing it again is no error.
	// CodeNotFound if there is none.
	RevokeKey(ctx context.Context, r Revocation) error
}

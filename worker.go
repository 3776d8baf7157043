package belay

import (
	"encoding/json"
	"time"
)

// Process identifies an operating-system process on its host, well enough to
// prove its death there and nowhere else.
type Process struct {
	Host         string `json:"host,omitempty"`
	BootID       string `json:"boot_id,omitempty"`
	PIDNamespace uint64 `json:"pid_namespace,omitempty"`
	PID          int    `json:"pid,omitempty"`
	// Start is the process's start time in clock ticks since boot.
	Start uint64 `json:"start,omitempty"`
}

// Registration is one workflow a worker can run; an empty Version takes
// unversioned executions.
type Registration struct {
	Workflow string `json:"workflow"`
	Version  string `json:"version,omitempty"`
}

// WorkerSpec opens a worker's session.
type WorkerSpec struct {
	// ID is the session's id and the operation's: opening it again finds it.
	ID   WorkerID `json:"id,omitzero"`
	Name string   `json:"name"`
	// empty: "default"; of several those with work of one priority take turns
	Queues    []string          `json:"queues,omitempty"`
	Workflows []Registration    `json:"workflows"`
	Labels    map[string]string `json:"labels,omitempty"`
	Capacity  int               `json:"capacity"`
	// TTL is how long the session lives after a heartbeat; Heartbeat is how
	// often the worker means to send one.
	TTL       Duration `json:"ttl,omitempty"`
	Heartbeat Duration `json:"heartbeat,omitempty"`
	Process   Process  `json:"process,omitzero"`
	Version   string   `json:"version,omitempty"` // of the worker's program
	// External marks the session of one outside owner, which Lock opens.
	External bool `json:"external,omitempty"`
}

// WorkerState is where a worker's session stands.
type WorkerState uint8

// The states of a session. The last three are final.
const (
	WorkerOpen WorkerState = iota + 1
	WorkerDraining
	WorkerClosed
	WorkerDrained
	WorkerLost
)

var workerStateNames = [...]string{"", "open", "draining", "closed", "drained", "lost"}

// Ended reports whether the session is over; that never reverses.
func (s WorkerState) Ended() bool { return s >= WorkerClosed }

// String is the state's one word.
func (s WorkerState) String() string { return name(workerStateNames[:], int(s)) }

// MarshalText writes the state's one word.
func (s WorkerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the state's one word.
func (s *WorkerState) UnmarshalText(b []byte) error {
	i, err := index("worker state", workerStateNames[:], string(b))
	*s = WorkerState(i)
	return err
}

// Worker is a session as the store held it at one moment.
type Worker struct {
	WorkerSpec
	State       WorkerState `json:"state"`
	OpenedAt    time.Time   `json:"opened_at"`
	HeartbeatAt time.Time   `json:"heartbeat_at"`
	ExpiresAt   time.Time   `json:"expires_at"`
	EndedAt     time.Time   `json:"ended_at,omitzero"`
	EndReason   string      `json:"end_reason,omitempty"`
	Running     int         `json:"running"`
}

// Session answers a WorkerSpec.
type Session struct {
	ID        WorkerID `json:"id"`
	TTL       Duration `json:"ttl"`
	Heartbeat Duration `json:"heartbeat"`
	// Warning says what about the spec is legal and unwise.
	Warning string `json:"warning,omitempty"`
}

// Lease is the exclusive, expiring right to be an execution's owner. It lives
// as long as the worker's session and nobody newer claims the execution.
type Lease struct {
	Execution ExecutionID `json:"execution"`
	Worker    WorkerID    `json:"worker"`
	Token     Token       `json:"token"`
	Secret    Secret      `json:"-"`
}

// Run names the attempt that the lease is for.
func (l Lease) Run() RunID { return RunID{l.Execution, l.Token} }

// ClaimRequest asks for work. Numbers of one worker grow by one with each new
// claim, one in flight at a time; asked again, a number gets what it won.
type ClaimRequest struct {
	Worker WorkerID `json:"worker"`
	Number int64    `json:"number"`
	// Slots is how many executions at most; 0 only waits for attention.
	Slots int `json:"slots"`
	// Wait is how long to wait while there is nothing.
	Wait time.Duration `json:"-"`
	// Repeat says that the number was sent before and its reply not seen.
	Repeat bool `json:"repeat,omitempty"`
}

// ClaimReply is what a claim won.
type ClaimReply struct {
	Assignments []Assignment `json:"assignments,omitempty"`
	// Attention asks for a heartbeat now: something waits in its reply.
	Attention bool `json:"attention,omitempty"`
}

// AloneFor is how long a worker that has an assignment with Alone takes nothing else,
// unless its run saves something or ends before.
const AloneFor = 5 * time.Second

// Assignment is one execution won, with all that is needed to go on with it.
type Assignment struct {
	Lease      Lease           `json:"lease"`
	Workflow   string          `json:"workflow"`
	Version    string          `json:"version,omitempty"`
	Queue      string          `json:"queue"`
	Input      json.RawMessage `json:"input,omitempty"`
	Generation int             `json:"generation"`
	Attempt    int             `json:"attempt"`
	Parent     ExecutionID     `json:"parent,omitzero"`
	Policy     Policy          `json:"policy,omitzero"`
	// First tells that the execution was never claimed before, in any generation: no
	// run can have stored anything. A claim that is answered again does not say it.
	First bool `json:"first,omitempty"`
	// Alone tells that the execution was lost several times in a row: it may be what kills
	// its workers. The worker takes nothing else until the run has saved something, has
	// ended or has lasted for [AloneFor], so that no other dies with it.
	Alone bool `json:"alone,omitempty"`
	// Checkpoints are the newest of each key that count, in order of seq.
	Checkpoints []Checkpoint `json:"checkpoints,omitempty"`
	// Signals are those not consumed yet, in order of seq.
	Signals []Signal `json:"signals,omitempty"`
	// More tells that the reply had no room for everything: Checkpoints and Signals are
	// the first of them, and if there are none Input may be missing too. Owner.Resume
	// reads the rest.
	More bool `json:"more,omitempty"`
	// SignalSeq is the newest signal there is, seen or not.
	SignalSeq int64 `json:"signal_seq,omitempty"`
	// Remaining is what is left of the execution's own timeout; 0 means no
	// limit.
	Remaining time.Duration `json:"-"`
}

// ResumeQuery asks for what the owner of a lease goes on from, after a seq: 0 for all of it.
type ResumeQuery struct {
	Lease Lease
	After int64
}

// Resumed is a part, of some megabytes at most, of what an owner goes on from.
type Resumed struct {
	// Input is the execution's input, where the query was for all.
	Input json.RawMessage `json:"input,omitempty"`
	// Checkpoints are the newest of each key that count, in order of seq.
	Checkpoints []Checkpoint `json:"checkpoints,omitempty"`
	// Signals are those not consumed yet, in order of seq.
	Signals []Signal `json:"signals,omitempty"`
	// More tells that there are others, after [Resumed.Last].
	More bool `json:"more,omitempty"`
}

// Last is the seq of the last checkpoint or signal, 0 if there is none.
func (r *Resumed) Last() int64 {
	var last int64
	if n := len(r.Checkpoints); n > 0 {
		last = r.Checkpoints[n-1].Seq
	}
	if n := len(r.Signals); n > 0 {
		last = max(last, r.Signals[n-1].Seq)
	}
	return last
}

// CheckpointKind tells a step's result from a free-form state and from a wait.
type CheckpointKind uint8

// The kinds of checkpoints.
const (
	KindStep CheckpointKind = iota + 1
	KindState
	KindWait
)

var kindNames = [...]string{"", "step", "state", "wait"}

// String is the kind's one word.
func (k CheckpointKind) String() string { return name(kindNames[:], int(k)) }

// MarshalText writes the kind's one word.
func (k CheckpointKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the kind's one word.
func (k *CheckpointKind) UnmarshalText(b []byte) error {
	i, err := index("checkpoint kind", kindNames[:], string(b))
	*k = CheckpointKind(i)
	return err
}

// Checkpoint is saved progress. The newest of a kind and key counts.
type Checkpoint struct {
	Seq  int64           `json:"seq"`
	Kind CheckpointKind  `json:"kind"`
	Key  string          `json:"key"`
	Data json.RawMessage `json:"data,omitempty"`
	// Age is how long ago it was saved, by the store's clock, when it was
	// handed out. A sleep that began Age ago has that much less to go.
	Age time.Duration `json:"-"`
}

// Save writes a checkpoint under a lease.
type Save struct {
	Lease Lease           `json:"lease"`
	Op    OpID            `json:"op"`
	Kind  CheckpointKind  `json:"kind"`
	Key   string          `json:"key"`
	Data  json.RawMessage `json:"data,omitempty"`
	// Consumes is the seq of the signal that this wait took; 0 for none.
	Consumes int64 `json:"consumes,omitempty"`
	// CostTokens is added to the execution's cost.
	CostTokens int64 `json:"cost_tokens,omitempty"`
	// Repeat says that the op was sent before and its reply not seen.
	Repeat bool `json:"repeat,omitempty"`
}

// Signal is a signal, or the end of a child, that was delivered.
type Signal struct {
	Seq  int64  `json:"seq"`
	Name string `json:"name"`
	// Child is the child whose end this is; zero for a signal. Name is then
	// the key the parent started it under.
	Child   ExecutionID     `json:"child,omitzero"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Settlement ends a run.
type Settlement struct {
	Lease   Lease           `json:"lease"`
	Op      OpID            `json:"op"`
	Outcome Outcome         `json:"outcome"`
	Output  json.RawMessage `json:"output,omitempty"`
	Failure *Failure        `json:"failure,omitempty"`
	// RetryAfter is the least delay before the next attempt.
	RetryAfter time.Duration `json:"-"`
	// Wait is how long a suspended execution waits at most for anything;
	// 0 waits for a signal or child alone. WaitText says for what, in words that begin
	// with signal or child where it is one.
	Wait     time.Duration `json:"-"`
	WaitText string        `json:"wait_text,omitempty"`
	// SignalSeen is the newest signal the run knows of; if there is a newer
	// one the execution is due at once.
	SignalSeen int64 `json:"signal_seen,omitempty"`
	CostTokens int64 `json:"cost_tokens,omitempty"`
	Repeat     bool  `json:"repeat,omitempty"`
}

// Held names a run that a worker holds: from its claim's reply until its
// settlement is acknowledged.
type Held struct {
	Execution ExecutionID `json:"execution"`
	Token     Token       `json:"token"`
	// Idle is how long ago the run last made progress. It is looked at only
	// where the execution has an idle timeout.
	Idle time.Duration `json:"-"`
}

// Heartbeat renews a session and all leases under it, and reconciles both
// sides' lists of what the worker holds.
type Heartbeat struct {
	Worker WorkerID `json:"worker"`
	Holds  []Held   `json:"holds,omitempty"`
	// ClaimSeen is the highest claim number whose reply the worker has seen
	// or given up. What it won and does not hold is released at once.
	ClaimSeen int64 `json:"claim_seen"`
}

// HeartbeatReply is the control channel of a worker.
type HeartbeatReply struct {
	// ExpiresIn is how long the session lives, counted from the sending of
	// the heartbeat.
	ExpiresIn time.Duration `json:"-"`
	// Revoked are runs named that the worker does not own: end them.
	Revoked []Held `json:"revoked,omitempty"`
	// Cancel are runs to end, with the time left to do so.
	Cancel []Cancelling `json:"cancel,omitempty"`
	// Pause and Preempt are runs to give back at their next safe point.
	Pause   []Held `json:"pause,omitempty"`
	Preempt []Held `json:"preempt,omitempty"`
	// Signals are runs with signals newer than their claim.
	Signals []Signalled `json:"signals,omitempty"`
	// Drain asks the worker to claim nothing more and end.
	Drain bool `json:"drain,omitempty"`
}

// Cancelling is a run that was cancelled and has not ended.
type Cancelling struct {
	Held
	Within time.Duration `json:"-"`
}

// Signalled is a run for which signals were delivered.
type Signalled struct {
	Held
	SignalSeq int64 `json:"signal_seq"`
}

// SignalQuery reads the signals of an execution after a seq, those already
// consumed left out.
type SignalQuery struct {
	Execution ExecutionID
	After     int64
}

// Chunk is a piece of a log or an artifact, written under a lease.
type Chunk struct {
	Lease Lease  `json:"lease"`
	Name  string `json:"name"`
	// N numbers the chunks of one name from 0; the same number written again
	// replaces nothing and is no error if its content is the same.
	N    int64  `json:"n"`
	Data []byte `json:"data"`
	// Drop removes the chunks from DropFrom up to and without DropTo, which
	// is how a log keeps its head and its tail.
	DropFrom int64 `json:"drop_from,omitempty"`
	DropTo   int64 `json:"drop_to,omitempty"`
}

// ChunkQuery reads chunks of one name from a number on.
type ChunkQuery struct {
	Execution ExecutionID
	Name      string
	From      int64
	// Limit is at most 256 chunks; 0 means 64.
	Limit int
}

// StoredChunk is a chunk as it was written.
type StoredChunk struct {
	N     int64     `json:"n"`
	Token Token     `json:"token"`
	At    time.Time `json:"at"`
	Data  []byte    `json:"data"`
}

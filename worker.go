package belay

import (
	"encoding/json"
	"log/slog"
	"time"
)

// Process identifies an operating-system process. With this data, a program on the same host can
// prove that the process has ended; a program on another host cannot.
type Process struct {
	Host         string `json:"host,omitempty"`
	BootID       string `json:"boot_id,omitempty"`
	PIDNamespace uint64 `json:"pid_namespace,omitempty"`
	PID          int    `json:"pid,omitempty"`
	// Start is the process's start time in clock ticks since boot.
	Start uint64 `json:"start,omitempty"`
}

// Registration is one workflow that a worker can run. With an empty Version, the worker runs
// executions without a version.
type Registration struct {
	Workflow string `json:"workflow"`
	Version  string `json:"version,omitempty"`
}

// WorkerSpec describes a worker that opens a session.
type WorkerSpec struct {
	// ID is the id of the session and of the open operation: a second OpenWorker with the same ID
	// opens no second session and returns the first. If ID is zero, the Backend makes an id.
	ID   WorkerID `json:"id,omitzero"`
	Name string   `json:"name"`
	// Queues are the queues from which the worker claims; empty means "default". Queues that have
	// work of the same priority take turns.
	Queues    []string          `json:"queues,omitempty"`
	Workflows []Registration    `json:"workflows"`
	Labels    map[string]string `json:"labels,omitempty"`
	Capacity  int               `json:"capacity"`
	// TTL is how long the session is valid after a heartbeat, and Heartbeat is the interval at
	// which the worker intends to send heartbeats.
	TTL       Duration `json:"ttl,omitempty"`
	Heartbeat Duration `json:"heartbeat,omitempty"`
	Process   Process  `json:"process,omitzero"`
	Version   string   `json:"version,omitempty"` // the version of the worker's program
	// Health is the address at which the worker answers health probes (GET /healthz over HTTP), as
	// IP:PORT, or as :PORT for the address from which the worker connects. A server probes only the
	// address from which the worker connects, and addresses that its configuration allows. If Health
	// is empty, or the worker's engine runs in its own process, the worker is never probed.
	Health string `json:"health,omitempty"`
	// External marks a session that Lock opened for an owner that is not a worker.
	External bool `json:"external,omitempty"`
}

// WorkerState is the state of a worker's session.
type WorkerState uint8

// The states of a session. Closed, drained and lost are final.
const (
	WorkerOpen WorkerState = iota + 1
	WorkerDraining
	WorkerClosed
	WorkerDrained
	WorkerLost
	// WorkerCordoned: an operator has stopped the worker from claiming, until the operator allows it
	// again. The worker keeps its runs.
	WorkerCordoned
	// WorkerUnhealthy: the last health probe of the worker has failed. The worker keeps its runs, and
	// claims nothing until a probe succeeds.
	WorkerUnhealthy
)

var workerStateNames = [...]string{"", "open", "draining", "closed", "drained", "lost", "cordoned", "unhealthy"}

// Ended reports whether the session has ended. An ended session stays ended.
func (s WorkerState) Ended() bool { return s >= WorkerClosed && s <= WorkerLost }

// Claims reports whether a worker in this state may claim executions now.
func (s WorkerState) Claims() bool { return s == WorkerOpen }

// String returns the state as one word.
func (s WorkerState) String() string { return name(workerStateNames[:], int(s)) }

// MarshalText writes the state as one word.
func (s WorkerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the state from its word.
func (s *WorkerState) UnmarshalText(b []byte) error {
	i, err := index("worker state", workerStateNames[:], string(b))
	*s = WorkerState(i)
	return err
}

// Cordon stops a worker from claiming executions, or with Off allows it again. A Cordon that changes
// nothing is no error.
type Cordon struct {
	Worker WorkerID
	Off    bool
	// Actor is the operator, and Reason is the reason why the operator cordons the worker. Each has
	// at most MaxName bytes. A second Cordon of a cordoned worker replaces both.
	Actor  string
	Reason string
}

// Cordoned says since when a worker is cordoned, by whom and why.
type Cordoned struct {
	// Since is the time of the first Cordon, by the store's clock.
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Worker is the session of a worker, read from the store at one moment.
type Worker struct {
	WorkerSpec
	State       WorkerState `json:"state"`
	OpenedAt    time.Time   `json:"opened_at"`
	HeartbeatAt time.Time   `json:"heartbeat_at"`
	ExpiresAt   time.Time   `json:"expires_at"`
	EndedAt     time.Time   `json:"ended_at,omitzero"`
	EndReason   string      `json:"end_reason,omitempty"`
	// Cordoned is nil unless State is WorkerCordoned.
	Cordoned *Cordoned `json:"cordoned,omitempty"`
	// UnhealthySince is when the health probes of the worker began to fail, and HealthError is the
	// error of the last failed probe, at most MaxName bytes without control characters. Both are zero
	// if the last probe succeeded, if the worker was never probed, or if the worker is draining. A
	// cordoned worker is probed too.
	UnhealthySince time.Time `json:"unhealthy_since,omitzero"`
	HealthError    string    `json:"health_error,omitempty"`
	// Mailbox is the name of the queue in the broker through which messages reach the worker; empty if the
	// worker gets no messages.
	Mailbox string `json:"mailbox,omitempty"`
	Running int    `json:"running"`
}

// Session is the answer to a WorkerSpec.
type Session struct {
	ID        WorkerID `json:"id"`
	TTL       Duration `json:"ttl"`
	Heartbeat Duration `json:"heartbeat"`
	// Warning names a setting of the spec that is allowed but risky. It is empty if there is none.
	Warning string `json:"warning,omitempty"`
}

// Lease is the exclusive, expiring right to be an execution's owner. It is valid until the worker's
// session ends or a newer claim takes the execution.
type Lease struct {
	Execution ExecutionID `json:"execution"`
	Worker    WorkerID    `json:"worker"`
	Token     Token       `json:"token"`
	Secret    Secret      `json:"-"`
}

// LogValue has the attributes of a log line about the run of the lease: execution, token and worker, without the
// secret. Package log/slog writes them into the line itself if their key is empty: slog.Any("", lease).
func (l Lease) LogValue() slog.Value {
	return slog.GroupValue(slog.Any("execution", l.Execution), slog.Int64("token", int64(l.Token)),
		slog.Any("worker", l.Worker))
}

// Run returns the id of the run to which the lease belongs.
func (l Lease) Run() RunID { return RunID{l.Execution, l.Token} }

// ClaimRequest requests executions. A worker has one claim in flight at a time, and its Number
// grows by one with each new claim. If the worker sends a claim again with the same Number, the
// reply has the executions that the claim won the first time.
type ClaimRequest struct {
	Worker WorkerID `json:"worker"`
	Number int64    `json:"number"`
	// Slots is the largest number of executions to claim. With 0, the call only waits for
	// Attention.
	Slots int `json:"slots"`
	// Wait is how long the call waits while no execution is due.
	Wait time.Duration `json:"-"`
	// Repeat says that the worker sent this Number before and has not received the reply.
	Repeat bool `json:"repeat,omitempty"`
	// Messages says that messages reach the worker's mailbox. Then the claim leaves out the queues whose
	// executions the server announces by messages.
	Messages bool `json:"messages,omitempty"`
}

// Mailbox is the queue in the message broker from which a worker gets its messages. Each message offers the
// worker an execution that is scheduled to it.
type Mailbox struct {
	// Queue is the name of the queue in the broker.
	Queue string `json:"queue"`
}

// MaxOffers is the largest number of offers that one accept may name.
const MaxOffers = 128

// AcceptRequest begins the runs of executions that are scheduled to a worker. The worker learns of these offers
// from messages of a broker, and from replies to heartbeats.
type AcceptRequest struct {
	Worker WorkerID `json:"worker"`
	// Number is the number of the accept. Each new accept of the session has a higher number, from 1 on;
	// several may be in flight. A repetition has the same number.
	Number int64 `json:"number"`
	// Offers are the executions with the tokens under which they are scheduled; at most MaxOffers.
	Offers []Held `json:"offers"`
}

// AcceptReply has the runs that an accept has begun. An offer that is not among them is out of date.
type AcceptReply struct {
	Assignments []Assignment `json:"assignments,omitempty"`
}

// ClaimReply has the executions that a claim won.
type ClaimReply struct {
	Assignments []Assignment `json:"assignments,omitempty"`
	// Attention says that the worker should send a heartbeat now, because the engine has a message
	// for the worker and sends it in the reply to a heartbeat.
	Attention bool `json:"attention,omitempty"`
}

// AloneFor is how long a worker claims no other execution after it has got an assignment whose
// field Alone is set. The worker may claim earlier if the run of that assignment saves a checkpoint
// or ends.
const AloneFor = 5 * time.Second

// Assignment is one execution that a claim won, with all data that the worker needs to continue it.
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
	// First says that the execution was never claimed before, in any generation, so that no run can
	// have stored anything. The answer to a repeated claim does not set First.
	First bool `json:"first,omitempty"`
	// Alone says that the execution was lost several times in a row, so that it may be the cause of
	// its workers' crashes. The worker claims no other execution until the run has saved a
	// checkpoint, has ended or has lasted for [AloneFor], so that a crash affects no other
	// execution.
	Alone bool `json:"alone,omitempty"`
	// Checkpoints has the newest valid checkpoint of each key, in order of seq.
	Checkpoints []Checkpoint `json:"checkpoints,omitempty"`
	// Signals has the signals that no checkpoint has consumed yet, in order of seq.
	Signals []Signal `json:"signals,omitempty"`
	// More says that the reply had no room for all data: checkpoints or signals with a higher seq
	// than those in the reply are missing. If the reply has no checkpoint and no signal, the input
	// may be missing too. Owner.Resume reads the missing data.
	More bool `json:"more,omitempty"`
	// SignalSeq is the seq of the newest signal, even if this reply has no room for that signal.
	SignalSeq int64 `json:"signal_seq,omitempty"`
	// Remaining is how much of the execution's Timeout is left; 0 means no limit.
	Remaining time.Duration `json:"-"`
	// Trace is the trace of the run, for the systems that the run calls. It is zero if the submission had no Trace and
	// the server makes no traces.
	Trace Trace `json:"-"`
}

// ResumeQuery requests the checkpoints and signals after a seq. If After is 0, the query requests
// all checkpoints and signals, and the input.
type ResumeQuery struct {
	Lease Lease
	After int64
}

// Resumed is one part of the data from which an owner continues an execution. A part has some
// megabytes at most.
type Resumed struct {
	// Input is the execution's input, if After was 0.
	Input json.RawMessage `json:"input,omitempty"`
	// Checkpoints has the newest valid checkpoint of each key, in order of seq.
	Checkpoints []Checkpoint `json:"checkpoints,omitempty"`
	// Signals has the signals that no checkpoint has consumed yet, in order of seq.
	Signals []Signal `json:"signals,omitempty"`
	// More says that there are further checkpoints or signals after the seq [Resumed.Last].
	More bool `json:"more,omitempty"`
}

// Last returns the highest seq of the part's checkpoints and signals, or 0 if it has none.
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

// CheckpointKind is the kind of a checkpoint: a step's result, a free-form state or the end of a
// wait.
type CheckpointKind uint8

// The kinds of checkpoints.
const (
	KindStep CheckpointKind = iota + 1
	KindState
	KindWait
)

var kindNames = [...]string{"", "step", "state", "wait"}

// String returns the kind as one word.
func (k CheckpointKind) String() string { return name(kindNames[:], int(k)) }

// MarshalText writes the kind as one word.
func (k CheckpointKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the kind from its word.
func (k *CheckpointKind) UnmarshalText(b []byte) error {
	i, err := index("checkpoint kind", kindNames[:], string(b))
	*k = CheckpointKind(i)
	return err
}

// Checkpoint is saved progress of an execution. A newer checkpoint of the same kind and key
// replaces an older one.
type Checkpoint struct {
	Seq  int64           `json:"seq"`
	Kind CheckpointKind  `json:"kind"`
	Key  string          `json:"key"`
	Data json.RawMessage `json:"data,omitempty"`
	// Age is the time, by the store's clock, from the moment at which the checkpoint was saved to
	// the moment at which the store read it. If the checkpoint marks the beginning of a sleep, Age
	// is the part of the sleep that has already passed.
	Age time.Duration `json:"-"`
}

// Save is a checkpoint to write under a lease.
type Save struct {
	Lease Lease           `json:"lease"`
	Op    OpID            `json:"op"`
	Kind  CheckpointKind  `json:"kind"`
	Key   string          `json:"key"`
	Data  json.RawMessage `json:"data,omitempty"`
	// Consumes is the seq of the signal that this checkpoint, the end of a wait, consumes; 0 means
	// none.
	Consumes int64 `json:"consumes,omitempty"`
	// AlsoConsumes has the seqs of further signals and ends of children that this checkpoint consumes,
	// MaxConsumes at most. So a state can take in many ends of children in one write.
	AlsoConsumes []int64 `json:"also_consumes,omitempty"`
	// CostTokens is added to the execution's cost.
	CostTokens Cost `json:"cost_tokens,omitempty"`
	// Usage is added to the usage of the execution on the present day; see UsageReport. It does not change
	// the cost: CostTokens must have its tokens too.
	Usage ModelUsage `json:"usage,omitzero"`
	// Repeat says that the owner sent this Op before and has not received the reply.
	Repeat bool `json:"repeat,omitempty"`
	// Took is how long the step or wait took, until its result was there; 0 if the owner does not report it.
	// Attempt is the number of the try that had this result, from 1. Steps are the steps and waits that
	// have ended since the last Save of the run and have no checkpoint of their own, such as failed
	// tries. The history shows all three; a repeated Save may have other values.
	Took    time.Duration `json:"-"`
	Attempt int           `json:"-"`
	Steps   []StepReport  `json:"-"`
}

// Signal is a delivered signal, or the delivered message that a child has ended.
type Signal struct {
	Seq  int64  `json:"seq"`
	Name string `json:"name"`
	// Child is the child that ended, or zero for a signal. With a child, Name is the key under
	// which the parent started the child.
	Child   ExecutionID     `json:"child,omitzero"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Settlement ends a run with an outcome. It is written under the lease of the run.
type Settlement struct {
	Lease   Lease           `json:"lease"`
	Op      OpID            `json:"op"`
	Outcome Outcome         `json:"outcome"`
	Output  json.RawMessage `json:"output,omitempty"`
	Failure *Failure        `json:"failure,omitempty"`
	// RetryAfter is the least delay before the next attempt.
	RetryAfter time.Duration `json:"-"`
	// Wait is the time after which a suspended execution is due again. With 0, the execution waits
	// until a signal or the end of a child arrives. WaitText describes the wait for people; it
	// begins with "signal" or "child" if the execution waits for a signal or a child.
	Wait     time.Duration `json:"-"`
	WaitText string        `json:"wait_text,omitempty"`
	// SignalSeen is the seq of the newest signal that the run has received. If there is a newer
	// signal, the execution is due at once.
	SignalSeen int64 `json:"signal_seen,omitempty"`
	CostTokens Cost  `json:"cost_tokens,omitempty"`
	Repeat     bool  `json:"repeat,omitempty"`
	// Steps are the steps and waits that have ended since the last Save of the run and have no checkpoint of
	// their own, and those that the run leaves unfinished. The history shows them.
	Steps []StepReport `json:"-"`
}

// Held names a run that a worker has. A worker has a run from the moment at which it receives the
// reply to its claim until the store has acknowledged the run's settlement.
type Held struct {
	Execution ExecutionID `json:"execution"`
	Token     Token       `json:"token"`
	// Idle is how long ago the run last made progress; 0 means that the heartbeat does not report
	// progress of the run. The engine uses Idle only for executions with an IdleTimeout.
	Idle time.Duration `json:"-"`
	// Steps are the current steps and waits of the run, at most MaxCurrent. A worker may leave out those that
	// have just begun.
	Steps []StepReport `json:"-"`
}

// Heartbeat renews a session and all leases under it. The engine also compares the worker's list of
// its runs with the store's list, so that the engine notices when a reply was lost.
type Heartbeat struct {
	Worker WorkerID `json:"worker"`
	Holds  []Held   `json:"holds,omitempty"`
	// ClaimSeen is the highest claim number whose reply the worker has received or does not wait
	// for any more. If a claim up to this number won executions that Holds does not name, the
	// engine releases them at once.
	ClaimSeen int64 `json:"claim_seen"`
	// AcceptSeen is the highest number of an accept up to which the worker has received the replies to all
	// accepts, or does not wait for them any more. If an accept up to this number began a run that Holds
	// does not name, the engine releases the run at once.
	AcceptSeen int64 `json:"accept_seen,omitempty"`
}

// HeartbeatReply tells a worker which of its runs it has lost, and which runs it should cancel,
// pause or give back.
type HeartbeatReply struct {
	// ExpiresIn is how long the session is valid, counted from the time at which the heartbeat was
	// sent.
	ExpiresIn time.Duration `json:"-"`
	// Revoked are the runs in Holds that the worker does not own any more: the worker must end them
	// and write nothing.
	Revoked []Held `json:"revoked,omitempty"`
	// Cancel are the runs of cancelled executions, each with the time in which the worker should
	// end it.
	Cancel []Cancelling `json:"cancel,omitempty"`
	// Pause and Preempt are the runs that the worker should give back at their next step or wait.
	Pause   []Held `json:"pause,omitempty"`
	Preempt []Held `json:"preempt,omitempty"`
	// Signals are the runs whose executions have signals that are newer than the claim.
	Signals []Signalled `json:"signals,omitempty"`
	// Offers are executions that are scheduled to the worker and that it has not accepted, for the case that
	// their messages were lost; MaxOffers at most. The worker may accept them again while an accept of them
	// is in flight.
	Offers []Held `json:"offers,omitempty"`
	// Drain tells the worker to claim nothing more and to end after its runs.
	Drain bool `json:"drain,omitempty"`
}

// Cancelling is a run that has not ended although its execution was cancelled.
type Cancelling struct {
	Held
	Within time.Duration `json:"-"`
}

// Signalled is a run whose execution has received signals.
type Signalled struct {
	Held
	SignalSeq int64 `json:"signal_seq"`
}

// SignalQuery requests an execution's signals that have a seq greater than After and that no
// checkpoint has consumed.
type SignalQuery struct {
	Execution ExecutionID
	After     int64
}

// Chunk is a piece of a log or an artifact, to write under a lease.
type Chunk struct {
	Lease Lease  `json:"lease"`
	Name  string `json:"name"`
	// N numbers the chunks of one name, from 0. A second write of the same number changes nothing;
	// it is an error unless its data is the same.
	N    int64  `json:"n"`
	Data []byte `json:"data"`
	// Chunks from DropFrom up to, not including, DropTo are deleted in the same write. A log uses
	// this to keep only its head and its tail.
	DropFrom int64 `json:"drop_from,omitempty"`
	DropTo   int64 `json:"drop_to,omitempty"`
}

// ChunkQuery requests the chunks of the log or artifact Name, beginning with chunk number From.
type ChunkQuery struct {
	Execution ExecutionID
	Name      string
	From      int64
	// Limit is at most 256 chunks; 0 means 64.
	Limit int
}

// StoredChunk is a chunk as the store keeps it.
type StoredChunk struct {
	N     int64     `json:"n"`
	Token Token     `json:"token"`
	At    time.Time `json:"at"`
	Data  []byte    `json:"data"`
}

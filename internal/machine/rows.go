package machine

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/belaydev/belay"
)

// Execution is the hot row: the current truth about one execution. Payloads,
// labels and history stand beside it in rows of their own.
type Execution struct {
	ID     belay.ExecutionID
	Parent belay.ExecutionID // zero for a root
	Child  string            // the key under which the parent started it
	// ParentGen is the generation of the parent that started it. Once the
	// parent has a newer one it does not depend on its parent any more: a
	// sweep finds it like the child of a parent that has ended.
	ParentGen int
	Workflow  string
	Version   string
	Queue     string
	Lane      LaneID
	Policy    *belay.Policy // nil for the defaults; never changed in place
	External  bool          // only owners from outside may have it; never changed

	State      belay.State
	PausedFrom belay.State  // while paused: where it goes back to
	Gate       belay.GateID // that parked it; empty for none
	Reason     string       // code
	ReasonText string

	DueAt   Time // when it may run; 0 while only a signal or child can wake it
	CheckAt Time // when the rules must look at it again

	Seq        int64
	Token      belay.Token
	Generation int
	BaseSeq    int64 // checkpoints and signals up to this seq do not count
	InputGen   int   // the generation whose input counts

	Worker  belay.WorkerID // the owner while scheduled or running
	Secret  belay.Secret
	ClaimNo int64 // the claim of that worker which won it

	Attempts    int // failed and timed-out runs of this generation
	Losses      int // lost runs in a row without a new checkpoint
	Checkpoints int // saved ever; none means nothing to load at a claim
	StateSeq    int64
	SignalSeq   int64 // newest signal delivered
	SignalSeen  int64 // newest signal the last suspended run knew
	Signals     int   // kept that no checkpoint has consumed, ends of children left out
	SignalBytes int64 // of their payloads
	Open        int   // children that have not ended
	Parted      int64 // the newest parting that was carried out; see Parting
	Cost        int64

	CreatedAt   Time
	ScheduledAt Time
	StartedAt   Time // first run of this generation
	RunAt       Time // begin of the current run
	ProgressAt  Time
	FinishedAt  Time

	CancelBy       Time
	PauseRequested bool
	Preempting     bool

	Class   belay.Class // of the failure; 0 if none
	Message string

	// New marks a row that is not in the store yet.
	New bool
	// Attention marks a running row whose owner should hear of it soon.
	Attention bool
}

// suspectAfter is how many losses in a row make an execution suspect: it may be what
// kills its workers.
const suspectAfter = 2

// AloneWait is how long an execution that is to run alone waits for a worker that runs
// nothing else. Then any worker may take it.
const AloneWait = 30 * time.Second

// Suspect reports whether the execution was lost so often in a row that it is to run
// alone.
func (e *Execution) Suspect() bool { return Suspect(e.Losses) }

// Suspect reports whether so many losses in a row make an execution suspect.
func Suspect(losses int) bool { return losses >= suspectAfter }

// lostTimes says how often in a row the execution was lost, which decides its lane.
func (e *Execution) lostTimes(n int) {
	if e.Losses = n; e.Suspect() {
		e.Lane = e.Lane.Alone()
	} else {
		e.Lane = e.Lane.Shared()
	}
}

// Ready is when the execution may be claimed; 0 while it may not be at all. It
// is what the ready index holds.
func (e *Execution) Ready() Time {
	if e.External || e.Gate != "" || e.State != belay.Pending && e.State != belay.Waiting {
		return 0
	}
	return e.DueAt
}

// policy is the execution's policy with the defaults filled in.
func (e *Execution) policy() belay.Policy {
	var p belay.Policy
	if e.Policy != nil {
		p = *e.Policy
	}
	return Defaults(p)
}

// Defaults is the policy with its zero fields filled in.
func Defaults(p belay.Policy) belay.Policy {
	or(&p.MaxAttempts, belay.DefaultMaxAttempts)
	or(&p.BackoffBase, belay.DefaultBackoffBase)
	or(&p.BackoffCap, belay.DefaultBackoffCap)
	or(&p.MaxLosses, belay.DefaultMaxLosses)
	or(&p.ScheduledTimeout, belay.DefaultScheduled)
	or(&p.CancelGrace, belay.DefaultCancelGrace)
	or(&p.OnLost, belay.Requeue)
	or(&p.OnExpired, belay.Reschedule)
	return p
}

func or[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// ParsePolicy reads what belay.Policy.Text wrote; nil for nothing.
func ParsePolicy(b []byte) (*belay.Policy, error) {
	if len(b) == 0 {
		return nil, nil
	}
	p := new(belay.Policy)
	if err := json.Unmarshal(b, p); err != nil {
		return nil, err
	}
	return p, nil
}

// Spec is what was submitted and does not change: beside the hot row, one row
// per input (a generation with another input adds one).
type Spec struct {
	Execution    belay.ExecutionID
	Generation   int
	Input        []byte
	Large        bool // Input was left out; see [MaxCarried]
	Labels       map[string]string
	WorkerLabels map[string]string
	Priority     int
	Key          string
	Trigger      belay.Trigger
	Hash         [32]byte // of the whole submission
}

// MaxCarried is the most bytes of an input that a store loads with what is ready in a
// lane. A larger one is read once its execution was won: a claim looks at more than it
// wins.
const MaxCarried = 8 << 10

// LaneID is derived from the lane's content, so that it is the same everywhere.
type LaneID int64

// Alone is the lane beside this one of executions that were lost [suspectAfter] times in
// a row: one of them may be what kills its workers, so each runs alone on its worker.
// A lane's own id is not negative.
func (id LaneID) Alone() LaneID {
	if id < 0 {
		return id
	}
	return ^id
}

// Shared is the lane itself, where id is the one beside it.
func (id LaneID) Shared() LaneID {
	if id < 0 {
		return ^id
	}
	return id
}

// IsAlone reports whether executions of the lane run alone on their workers.
func (id LaneID) IsAlone() bool { return id < 0 }

// Lane is the routing key of executions. Its priority is part of it, so that
// first in, first out within a lane is an index in order of time.
type Lane struct {
	ID       LaneID
	Queue    string
	Workflow string
	Version  string
	Priority int
	Labels   map[string]string // that a worker must have
}

// Run is one attempt. A change to a run that is not New writes its end only,
// and its begin where StartedSeq is set.
type Run struct {
	Execution    belay.ExecutionID
	Token        belay.Token
	Worker       belay.WorkerID
	Attempt      int
	Generation   int
	ScheduledSeq int64
	ScheduledAt  Time
	StartedSeq   int64
	StartedAt    Time
	EndedSeq     int64
	EndedAt      Time
	Outcome      belay.Outcome
	Final        bool       // the execution ended with it
	Op           belay.OpID // of the settlement
	OpSum        OpSum
	Output       []byte
	Class        belay.Class
	Message      string
	Stack        string
	Cost         int64
	InputHash    []byte
	ConfigHash   []byte
	New          bool
}

// Checkpoint is saved progress, append-only.
type Checkpoint struct {
	Execution belay.ExecutionID
	Seq       int64
	Kind      belay.CheckpointKind
	Key       string
	Token     belay.Token
	Op        belay.OpID
	OpSum     OpSum
	At        Time
	Data      []byte
	Cost      int64
	Pruned    bool // the data is gone; a newer one counts
}

// Signal is a signal or the end of a child.
type Signal struct {
	Execution  belay.ExecutionID
	Seq        int64
	Name       string
	Child      belay.ExecutionID
	Op         belay.OpID
	OpSum      OpSum
	Payload    []byte
	At         Time
	ConsumedBy int64 // seq of the checkpoint that took it
}

// Deed is an action of an operator or of the system that no other row records.
type Deed struct {
	Execution belay.ExecutionID
	Seq       int64
	Kind      string
	Actor     string
	Reason    string
	Op        belay.OpID
	OpSum     OpSum
	At        Time
	Token     belay.Token // of the run it ended, if any
	Final     bool
}

// DeadLetter is an execution that gave up, by generation.
type DeadLetter struct {
	Execution  belay.ExecutionID
	Generation int
	Seq        int64
	Token      belay.Token // of the run that failed, 0 if none ran
	Reason     string      // max_retries, permanent_error, lost, timeout
	Class      belay.Class
	Message    string
	At         Time
	Resolution string // empty while open; requeued, fixed, discarded
	ResolvedBy string
	ResolvedAt Time
	New        bool
}

// Worker is the row of a session.
type Worker struct {
	ID          belay.WorkerID
	Spec        belay.WorkerSpec // with defaults filled in; never changes
	State       belay.WorkerState
	OpenedAt    Time
	HeartbeatAt Time
	ExpiresAt   Time
	EndedAt     Time
	EndReason   string
	ClaimNo     int64 // last claim that won anything
	ClaimFloor  int64 // claims up to this number are given up
	New         bool
}

// ttl is how long a heartbeat lasts.
func (w *Worker) ttl() time.Duration { return w.Spec.TTL.D() }

// Key is an idempotency key within a workflow.
type Key struct{ Workflow, Key string }

// KeyRow remembers the execution of a key.
type KeyRow struct {
	Key
	Execution belay.ExecutionID
	Hash      [32]byte
	At        Time
}

// SignalRef names a signal.
type SignalRef struct {
	Execution belay.ExecutionID
	Seq       int64
}

// token is the next token of a row, never below what the epoch demands.
func token(last, epoch belay.Token) belay.Token { return max(last, epoch) + 1 }

func appendInt(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

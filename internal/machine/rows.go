package machine

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// Execution is the present state of one execution, the row that changes most often. Payloads,
// labels and history are in other rows.
type Execution struct {
	ID     belay.ExecutionID
	Parent belay.ExecutionID // zero for a root
	Child  string            // the key under which the parent started the execution
	// ParentGen is the generation of the parent that started this child. When the parent has a
	// newer generation, the child is cancelled as if its parent had ended.
	ParentGen int
	Workflow  string
	Version   string
	Queue     string
	Lane      LaneID
	Policy    *belay.Policy // nil for the defaults; never changed in place
	Gates     *belay.Gates  // the gates that the execution names; nil for none, never changed in place
	External  bool          // only external owners may own the execution; never changed
	// Notify are the notifications of a root; nil for none, and for a child and a delivery; never changed in place.
	Notify []belay.Notification
	// Trace is the trace of the submitter, or for a child the trace of the run that has started it; never changed.
	Trace belay.Trace

	State      belay.State
	PausedFrom belay.State  // while paused: the state to which resume returns
	Gate       belay.GateID // the gate at which the execution waits; empty for none
	GateRank   int          // the rank among the executions that wait at that gate: the lower rank goes first
	Places     Places       // the places in gates that the execution has
	AdmitBy    Time         // when the execution loses places that no run has used; 0 for none
	Reason     string       // the reason for the present state: a code for programs, and a text
	ReasonText string

	DueAt   Time // when the execution may run; 0 while only a signal or the end of a child can make it due
	CheckAt Time // the next moment at which a rule about time may apply

	Seq        int64
	Token      belay.Token
	Generation int
	BaseSeq    int64 // checkpoints and signals up to this seq belong to an earlier input and are ignored
	// InputGen is the generation in which the present input was given or a part of the work was
	// discarded. The ends of children of earlier generations are not delivered.
	InputGen int

	Worker  belay.WorkerID // the owner while scheduled or running
	Secret  belay.Secret
	ClaimNo int64 // the number of the worker's claim that won the execution, or minus the number of its accept

	Attempts    int // failed and timed-out runs of this generation
	Losses      int // lost runs in a row without a new checkpoint
	Checkpoints int // number of saved checkpoints; if 0, a claim loads none
	StateSeq    int64
	// Repeated is the token of the newest run whose repeated request saved a checkpoint: the run
	// got no answer to its first request, which may still arrive later.
	Repeated    belay.Token
	SignalSeq   int64      // newest signal delivered
	SignalSeen  int64      // newest signal that the last suspended run had seen
	Signals     int        // number of signals that no checkpoint has consumed, without the ends of children
	SignalBytes int64      // total payload bytes of Signals
	Open        int        // children that have not ended
	Parted      int64      // the newest Parting for which no child is left to cancel
	Cost        belay.Cost // the cost of its checkpoints and runs, and of its children
	Budget      belay.Cost // of a root: the largest Cost; 0 for none, and for a child
	// SpentBy is the root whose spent budget is the reason why the execution is paused or shall be;
	// zero if an operator has paused it.
	SpentBy belay.ExecutionID

	CreatedAt   Time
	ScheduledAt Time
	StartedAt   Time // first run of this generation
	RunAt       Time // begin of the current run
	ProgressAt  Time
	FinishedAt  Time

	CancelBy       Time
	PauseRequested bool
	Preempting     bool

	Class    belay.Class // class of the failure; 0 if the execution has not failed
	Message  string
	FailedBy belay.FailedBy // the part of Belay that ended the execution; 0 if its owner reported the failure

	// New marks a row that is not in the store yet.
	New bool
	// Attention marks a running execution whose owner must learn soon about a change.
	Attention bool
}

// suspectAfter is the number of losses in a row after which an execution is a suspect: a possible
// cause of its workers' crashes.
const suspectAfter = 2

// AloneWait is how long a suspect (an execution that must run alone) waits for a worker that runs
// nothing else. After AloneWait any worker may take it.
const AloneWait = 30 * time.Second

// Suspect reports whether the execution was lost so often in a row that it must run alone on a
// worker.
func (e *Execution) Suspect() bool { return Suspect(e.Losses) }

// Suspect reports whether this number of losses in a row makes an execution a suspect.
func Suspect(losses int) bool { return losses >= suspectAfter }

// setLosses sets the number of losses in a row, which decides whether the execution is in its
// ordinary lane or in the lane for suspects.
func (e *Execution) setLosses(n int) {
	if e.Losses = n; e.Suspect() {
		e.Lane = e.Lane.Alone()
	} else {
		e.Lane = e.Lane.Shared()
	}
}

// Ready is the time from which workers may claim the execution, 0 if no worker may claim it. Stores
// index this value.
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
	setDefault(&p.MaxAttempts, belay.DefaultMaxAttempts)
	setDefault(&p.BackoffBase, belay.DefaultBackoffBase)
	setDefault(&p.BackoffCap, belay.DefaultBackoffCap)
	setDefault(&p.MaxLosses, belay.DefaultMaxLosses)
	setDefault(&p.ScheduledTimeout, belay.DefaultScheduled)
	setDefault(&p.CancelGrace, belay.DefaultCancelGrace)
	setDefault(&p.OnLost, belay.Requeue)
	setDefault(&p.OnExpired, belay.Reschedule)
	setDefault(&p.OnNoWorker, belay.WaitForWorker)
	return p
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// ParsePolicy reads the text that belay.Policy.Text wrote; nil for no text.
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

// GatesText encodes the gates that an execution names, in the form that stores keep; empty for
// none.
func GatesText(g *belay.Gates) []byte {
	if g == nil || g.IsZero() {
		return nil
	}
	b, err := json.Marshal(g)
	if err != nil {
		panic(err) // names and numbers can always be encoded
	}
	return b
}

// ParseGates decodes a text of GatesText; nil for an empty text.
func ParseGates(b []byte) (*belay.Gates, error) {
	if len(b) == 0 {
		return nil, nil
	}
	g := new(belay.Gates)
	if err := json.Unmarshal(b, g); err != nil {
		return nil, err
	}
	return g, nil
}

// TraceText encodes a trace in the form that stores keep; empty for none.
func TraceText(t belay.Trace) string {
	if t.State == "" {
		return t.Parent
	}
	return t.Parent + "\n" + t.State
}

// ParseTrace decodes a text of TraceText.
func ParseTrace(text string) belay.Trace {
	parent, state, _ := strings.Cut(text, "\n")
	return belay.Trace{Parent: parent, State: state}
}

// Spec is the part of a submission that does not change. There is one row for each input; a
// generation with a new input adds a row.
type Spec struct {
	Execution    belay.ExecutionID
	Generation   int
	Input        []byte
	Large        bool // the input was not loaded; see [MaxCarried]
	Labels       map[string]string
	WorkerLabels map[string]string
	Priority     int
	Key          string
	Trigger      belay.Trigger
	CreatedBy    string // the actor of the submission; empty for a child
	// TriggerPayload is not loaded with the executions that a claim may win, and not by lists.
	TriggerPayload []byte
	Hash           [32]byte // hash of the submission; see Submit.hash
}

// MaxCarried is the size in bytes up to which a store loads the inputs of ready executions together
// with their lane. A store reads a larger input only after a claim has won the execution, because a
// claim loads more executions than it wins.
const MaxCarried = 8 << 10

// LaneID is a hash of the lane's content, so that every server computes the same id.
type LaneID int64

// Alone is the id of the lane for the suspects of this lane. Suspects were lost [suspectAfter]
// times in a row and may be the cause of their workers' crashes, so each runs alone on its worker.
// The ids of these lanes are negative, the ids of ordinary lanes are not.
func (id LaneID) Alone() LaneID {
	if id < 0 {
		return id
	}
	return ^id
}

// Shared is the id of the ordinary lane: id itself, or the lane to which the suspects' lane id
// belongs.
func (id LaneID) Shared() LaneID {
	if id < 0 {
		return ^id
	}
	return id
}

// IsAlone reports whether executions of the lane run alone on their workers.
func (id LaneID) IsAlone() bool { return id < 0 }

// Lane is the routing key of executions: the properties that decide which workers may claim them.
// The priority is part of the key, so that executions within a lane are ordered by their due times
// alone, and an index gives that order.
type Lane struct {
	ID       LaneID
	Queue    string
	Workflow string
	Version  string
	Priority int
	Labels   map[string]string // labels that a worker must have
}

// Run is one attempt. For a run that is not New, a store writes only the end, and the begin too if
// StartedSeq is set.
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
	Final        bool       // the execution ended with this run
	Op           belay.OpID // operation id of the settlement
	OpSum        OpSum
	Output       []byte
	Class        belay.Class
	Message      string
	Stack        string
	FailedBy     belay.FailedBy
	Cost         belay.Cost
	InputHash    []byte
	ConfigHash   []byte
	Steps        string // see stepsText; a store writes it with the end
	New          bool
}

// Checkpoint is saved progress. Rows are only added, never replaced.
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
	Cost      belay.Cost
	Took      int64  // how long the step took, in microseconds; 0 if its owner did not report it
	Attempt   int    // the number of the try within its run; 0 if its owner did not report it
	Steps     string // see stepsText
	Pruned    bool   // the data was deleted: a newer state replaced it, or a retry from an earlier step discarded it
}

// Signal is a signal sent to an execution, or the notice that a child has ended.
type Signal struct {
	Execution belay.ExecutionID
	Seq       int64
	Name      string
	Child     belay.ExecutionID
	Op        belay.OpID
	OpSum     OpSum
	Payload   []byte
	At        Time
	// ConsumedBy is the seq of the checkpoint that consumed the signal, or, for the end of a child,
	// of the action that discarded it.
	ConsumedBy int64
}

// Deed is an action of an operator or of the system that no other row records, or the actor of a signal, whose seq it
// then has.
type Deed struct {
	Execution belay.ExecutionID
	Seq       int64
	Kind      string
	Actor     string
	Reason    string
	Op        belay.OpID
	OpSum     OpSum
	At        Time
	Token     belay.Token // token of the run that the action ended, if any
	Final     bool
}

// Worker is the row of a worker's session.
type Worker struct {
	ID          belay.WorkerID
	Spec        belay.WorkerSpec // the spec with defaults filled in; never changes
	State       belay.WorkerState
	OpenedAt    Time
	HeartbeatAt Time
	ExpiresAt   Time
	EndedAt     Time
	// Why is the reason for which the session has ended. While the session lives, Why has the parts
	// of a [condition]; it is empty if there are none. See Failing and Mailbox.
	Why        string
	ClaimNo    int64 // the last claim that won an execution
	ClaimFloor int64 // claims up to this number are over: their replies arrived, or the worker ignores them
	// Current are the steps that the worker is busy with; see Heartbeat.current. A store loads it only for
	// Need.Current, and writes it only if Told is set: a heartbeat of this batch has set it.
	Current string
	Told    bool
	New     bool
}

// ttl is how long the session lives after a heartbeat.
func (w *Worker) ttl() time.Duration { return w.Spec.TTL.D() }

// Key is an idempotency key within a workflow.
type Key struct{ Workflow, Key string }

// KeyRow records which execution an idempotency key started.
type KeyRow struct {
	Key
	Execution belay.ExecutionID
	Hash      [32]byte
	At        Time
	// Holder is the present state of that execution. A store loads it with the row, without a lock.
	Holder KeyHolder
	// Was is the execution that gives the key up to this one; zero if the key is new. A store writes the
	// row only if the key still leads to that execution, or is not there any more.
	Was belay.ExecutionID
}

// SignalRef names a signal.
type SignalRef struct {
	Execution belay.ExecutionID
	Seq       int64
}

// token is the next token of an execution. It is above epoch, the floor of all new tokens.
func token(last, epoch belay.Token) belay.Token { return max(last, epoch) + 1 }

func appendInt(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

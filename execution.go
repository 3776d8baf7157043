package belay

import (
	"encoding/json"
	"time"
)

// Reason says why an execution that is neither running nor ended stands where
// it does.
type Reason struct {
	// Code is one of a short list: queued, delayed, retry, lost, released,
	// preempted, timer, signal, child, paused, reopened, scheduled, no_worker,
	// external (only an owner from outside may have it), gate (a gate is shut).
	Code string `json:"code"`
	// Text is a sentence with the facts.
	Text string `json:"text,omitempty"`
	// Until is when the store looks again by itself, if it does.
	Until time.Time `json:"until,omitzero"`
}

// GateID names a gate by its kind and its name, as in "limit:crawler".
type GateID string

// Failure is how a run or an execution failed.
type Failure struct {
	Class   Class  `json:"class"`
	Message string `json:"message"`
	// Stack is the stack of a panic, if it was one. Bounded to 16 KiB.
	Stack string `json:"stack,omitempty"`
}

// Trigger is what started an execution.
type Trigger string

// The triggers.
const (
	TriggerManual  Trigger = "manual"
	TriggerParent  Trigger = "parent"
	TriggerCron    Trigger = "cron"
	TriggerEvent   Trigger = "event"
	TriggerWebhook Trigger = "webhook"
	TriggerQueue   Trigger = "queue"
)

// Execution is one instance of a workflow, as the store held it at one moment.
type Execution struct {
	ID       ExecutionID `json:"id"`
	Workflow string      `json:"workflow"`
	Version  string      `json:"version,omitempty"`
	Queue    string      `json:"queue"`
	Priority int         `json:"priority,omitempty"`
	State    State       `json:"state"`
	Reason   *Reason     `json:"reason,omitempty"`
	// External keeps workers away: only an owner from outside may lock it.
	External bool `json:"external,omitempty"`
	// Gate is the gate that parked it. No worker gets it until that gate opens.
	Gate GateID `json:"gate,omitempty"`
	// Seq counts the transitions; it is the newest event's number.
	Seq        int64 `json:"seq"`
	Token      Token `json:"token"`
	Generation int   `json:"generation"`
	// Attempt is the number of the current or next run among those that
	// spend the retry budget, from 1.
	Attempt int `json:"attempt"`
	Losses  int `json:"losses,omitempty"`
	// Worker is the owner while running or scheduled.
	Worker       WorkerID          `json:"worker,omitzero"`
	Parent       ExecutionID       `json:"parent,omitzero"`
	ParentKey    string            `json:"parent_key,omitempty"`
	OpenChildren int               `json:"open_children,omitempty"`
	Checkpoints  int               `json:"checkpoints,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	WorkerLabels map[string]string `json:"worker_labels,omitempty"`
	Key          string            `json:"idempotency_key,omitempty"`
	Trigger      Trigger           `json:"trigger,omitempty"`
	Policy       *Policy           `json:"policy,omitempty"`
	Input        json.RawMessage   `json:"input,omitempty"`
	Output       json.RawMessage   `json:"output,omitempty"`
	Error        *Failure          `json:"error,omitempty"`
	CostTokens   int64             `json:"cost_tokens,omitempty"`

	CreatedAt  time.Time `json:"created_at"`
	DueAt      time.Time `json:"due_at,omitzero"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	ProgressAt time.Time `json:"progress_at,omitzero"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
	Deadline   time.Time `json:"deadline,omitzero"`

	// CancelBy is when a cancelled run is ended by force.
	CancelBy       time.Time `json:"cancel_by,omitzero"`
	PauseRequested bool      `json:"pause_requested,omitempty"`
}

// Submission asks for an execution.
type Submission struct {
	// ID is the execution's id and the operation's: submitting it again
	// finds the first. The Backend makes one if it is zero.
	ID           ExecutionID       `json:"id,omitzero"`
	Workflow     string            `json:"workflow"`
	Version      string            `json:"version,omitempty"`
	Input        json.RawMessage   `json:"input,omitempty"`
	Queue        string            `json:"queue,omitempty"`
	Priority     int               `json:"priority,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	WorkerLabels map[string]string `json:"worker_labels,omitempty"`
	// DueAt is when it may first run, by the store's clock; zero means now.
	DueAt time.Time `json:"due_at,omitzero"`
	// IdempotencyKey makes a repeat find the first execution of the same
	// workflow and key; with another body it is refused.
	IdempotencyKey string  `json:"idempotency_key,omitempty"`
	Trigger        Trigger `json:"trigger,omitempty"`
	Policy         Policy  `json:"policy,omitzero"`
	// External keeps workers away: the execution is owned from outside only.
	External bool `json:"external,omitempty"`
	// Parent is the lease of the run that starts this execution as a child,
	// and ParentKey the name its end will be delivered under. ID must then
	// be ChildID of the three.
	Parent    *Lease `json:"parent,omitempty"`
	ParentKey string `json:"parent_key,omitempty"`
}

// Submitted answers a Submission.
type Submitted struct {
	ID ExecutionID `json:"id"`
	// Replayed says that the execution was there already.
	Replayed bool `json:"replayed,omitempty"`
	// Err is why this one was refused; the others of the call stand.
	Err error `json:"-"`
}

// Event is one transition of an execution.
type Event struct {
	Execution ExecutionID `json:"execution"`
	// Seq orders the events of one execution without a gap, from 1.
	Seq int64 `json:"seq"`
	// Kind is one of submitted, scheduled, started, step, state, signal,
	// child, suspended, succeeded, failed, timed_out, lost, released,
	// preempted, cancelled, and the actions cancel, pause, resume, retry,
	// requeue, steal, preempt, schedule_timeout, start_timeout, timeout, forget.
	Kind string    `json:"kind"`
	At   time.Time `json:"at"`
	// Name is the step, signal or child it is about.
	Name    string   `json:"name,omitempty"`
	Token   Token    `json:"token,omitempty"`
	Worker  WorkerID `json:"worker,omitzero"`
	Attempt int      `json:"attempt,omitempty"`
	// Final says that the execution ended with this event.
	Final bool `json:"final,omitempty"`
	// Actor is who did it, where somebody did.
	Actor  string          `json:"actor,omitempty"`
	Text   string          `json:"text,omitempty"`
	Error  *Failure        `json:"error,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	Pruned bool            `json:"pruned,omitempty"`
}

// Filter selects executions; the zero Filter selects all roots.
type Filter struct {
	States   []State
	Workflow string
	Queue    string
	Key      string
	// Parent selects the children of one execution; Children adds children
	// of any.
	Parent   ExecutionID
	Children bool
	// Labels must all be there.
	Labels map[string]string
	// Cursor continues a Page; Limit is at most 1,000, 0 means 100.
	Cursor string
	Limit  int
}

// Page is a part of a list, newest first.
type Page struct {
	Executions []Execution `json:"executions"`
	// Next continues; empty at the end.
	Next string `json:"next,omitempty"`
	// SearchedUntil is set where a list has fewer executions than were asked for and
	// is not at its end: it looks at so many at a time, and all that were made since
	// then were looked at. There may be more to find after Next.
	SearchedUntil time.Time `json:"searched_until,omitzero" doc:"Set where fewer were found than were asked for and the search is not over: all that were made since then were looked at. Go on with next."`
}

// EventQuery asks for the events of one execution after a seq.
type EventQuery struct {
	Execution ExecutionID
	After     int64
	// Limit is at most 1,000; 0 means 1,000.
	Limit int
	// Wait is how long to wait if there is none yet.
	Wait time.Duration
	// Data asks for the data of checkpoints and signals too.
	Data bool
}

// Explanation says why an execution is where it is, in sentences.
type Explanation struct {
	Execution ExecutionID `json:"execution"`
	State     State       `json:"state"`
	Summary   string      `json:"summary"`
	Facts     []string    `json:"facts,omitempty"`
	// NextCheck is when the store looks again by itself, if it does.
	NextCheck time.Time `json:"next_check,omitzero"`
}

// Action is what an operator does to an execution.
type Action string

// The actions.
const (
	ActionCancel  Action = "cancel"
	ActionPause   Action = "pause"
	ActionResume  Action = "resume"
	ActionRetry   Action = "retry"   // reopen; finished steps count
	ActionRequeue Action = "requeue" // reopen with another input; none do
	ActionFork    Action = "fork"    // a new execution from a step of this one
	ActionSteal   Action = "steal"   // take it from its owner
	ActionPreempt Action = "preempt" // ask the owner to yield
)

// Control asks for an action. It answers with the execution as it is after it.
type Control struct {
	Execution ExecutionID     `json:"execution"`
	Action    Action          `json:"action"`
	Actor     string          `json:"actor,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Op        OpID            `json:"op,omitzero"`
	Grace     Duration        `json:"grace,omitempty"` // cancel: how long the run may take
	Input     json.RawMessage `json:"input,omitempty"` // requeue, fork: the new input
	// UpTo is the last seq of the source whose checkpoints a fork keeps;
	// 0 keeps all.
	UpTo int64 `json:"up_to,omitempty"`
	// Fork is the id of the new execution; the Backend makes one if zero.
	Fork ExecutionID `json:"fork,omitzero"`
}

// SignalRequest delivers a signal.
type SignalRequest struct {
	Execution ExecutionID     `json:"execution"`
	Name      string          `json:"name"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	// Op makes a repeat find the first.
	Op OpID `json:"op,omitzero"`
}

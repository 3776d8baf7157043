package belay

import (
	"encoding/json"
	"time"
)

// Reason says why an execution that has not ended is not running.
type Reason struct {
	// Code is one of these: queued, delayed, retry, lost, released, preempted, timer, signal,
	// child, paused, reopened, scheduled, no_worker, external (only an owner that is not a worker
	// may lock the execution), gate (a condition, such as a limit, keeps the execution from
	// workers).
	Code string `json:"code"`
	// Text is the reason as a sentence.
	Text string `json:"text,omitempty"`
	// Until is the time at which the engine has planned its next check of the execution. It is zero if
	// the engine has planned no check.
	Until time.Time `json:"until,omitzero"`
}

// Failure is the error of a failed run or execution.
type Failure struct {
	Class   Class  `json:"class"`
	Message string `json:"message"`
	// Stack is the stack of a panic, at most 16 KiB. It is empty if the failure was not a panic.
	Stack string `json:"stack,omitempty"`
	// Target is the target whose circuit breaker has refused a call. Only a settlement with
	// ClassCircuitOpen may have it: the execution then waits until the breaker lets calls through.
	// The target is not stored with the run.
	Target string `json:"target,omitempty"`
	// FailedBy is the part of Belay that ended the run or execution. It is empty if the owner reported
	// the failure itself; the Backend ignores it in a Settlement.
	FailedBy FailedBy `json:"failed_by,omitempty"`
}

// Trigger is the kind of source that started an execution.
type Trigger string

// The values of Trigger.
const (
	TriggerManual  Trigger = "manual"
	TriggerParent  Trigger = "parent"
	TriggerCron    Trigger = "cron"
	TriggerEvent   Trigger = "event"
	TriggerWebhook Trigger = "webhook"
	TriggerQueue   Trigger = "queue"
	// TriggerSwap: the Backend changes the mode of a resource.
	TriggerSwap Trigger = "swap"
	// TriggerNotification: the Backend reports the end of an execution; see Notification.
	TriggerNotification Trigger = "notification"
)

// Execution is one instance of a workflow, read from the store at one moment.
type Execution struct {
	ID       ExecutionID `json:"id"`
	Workflow string      `json:"workflow"`
	Version  string      `json:"version,omitempty"`
	Queue    string      `json:"queue"`
	Priority int         `json:"priority,omitempty"`
	State    State       `json:"state"`
	Reason   *Reason     `json:"reason,omitempty"`
	// External executions are not given to workers: another program owns them by Backend.Lock.
	External bool `json:"external,omitempty"`
	// Gate is the gate (a condition such as a limit) at which this execution waits: workers cannot
	// claim the execution until the gate opens. It is empty if the execution waits at no gate.
	Gate GateID `json:"gate,omitempty"`
	// Seq counts the transitions of the execution; the newest event has this seq.
	Seq        int64 `json:"seq"`
	Token      Token `json:"token"`
	Generation int   `json:"generation"`
	// Attempt is the number of the current or next attempt, from 1. Only failed and timed-out runs
	// raise this number.
	Attempt int `json:"attempt"`
	Losses  int `json:"losses,omitempty"`
	// Current are the steps and waits that the present run was busy with when its worker last reported them.
	// A step appears about a second after its begin. Lists leave Current out, and it is empty if the
	// worker reports no steps.
	Current []StepRecord `json:"current,omitempty"`
	// Worker is the owner while the execution is running. While the execution is scheduled, Worker
	// is the worker to which it is assigned and which has not accepted it yet.
	Worker       WorkerID    `json:"worker,omitzero"`
	Parent       ExecutionID `json:"parent,omitzero"`
	ParentKey    string      `json:"parent_key,omitempty"`
	OpenChildren int         `json:"open_children,omitempty"`
	Checkpoints  int         `json:"checkpoints,omitempty"`
	// StateSeq is the seq of the event that has the saved state of the execution; 0 if it has saved none.
	StateSeq     int64             `json:"state_seq,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	WorkerLabels map[string]string `json:"worker_labels,omitempty"`
	// Key is the idempotency key. For a submission with IdempotencyByContent the Backend has made it.
	Key string `json:"idempotency_key,omitempty"`
	// InputsHash and ConfigHash are the SHA-256 of the submission's input and configuration, in
	// hexadecimal, if it was submitted with IdempotencyByContent. They are empty if the execution was
	// requeued with another input.
	InputsHash string  `json:"inputs_hash,omitempty"`
	ConfigHash string  `json:"config_hash,omitempty"`
	Trigger    Trigger `json:"trigger,omitempty"`
	// CreatedBy is the actor that has submitted the execution, or has forked it. It is empty for a child,
	// which Parent has started, and if the submission named no actor.
	CreatedBy string          `json:"created_by,omitempty"`
	Policy    *Policy         `json:"policy,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
	Error     *Failure        `json:"error,omitempty"`
	// CostTokens is the sum of the costs of all its runs, and of its children.
	CostTokens Cost `json:"cost_tokens,omitempty"`
	// Budget limits CostTokens; nil for no limit, and for a child.
	Budget *Budget `json:"budget,omitempty"`
	// Notify are the notifications of the submission.
	Notify []Notification `json:"notify,omitempty"`

	CreatedAt  time.Time `json:"created_at"`
	DueAt      time.Time `json:"due_at,omitzero"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	ProgressAt time.Time `json:"progress_at,omitzero"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
	Deadline   time.Time `json:"deadline,omitzero"`

	// CancelBy is the time at which the engine ends a cancelled run that has not ended by itself.
	CancelBy       time.Time `json:"cancel_by,omitzero"`
	PauseRequested bool      `json:"pause_requested,omitempty"`
}

// Submission describes an execution to create.
type Submission struct {
	// ID is the id of the execution and of the submit operation: a second submission with the same
	// ID creates nothing and returns the first execution. If ID is zero, the Backend makes an id.
	ID       ExecutionID     `json:"id,omitzero"`
	Workflow string          `json:"workflow"`
	Version  string          `json:"version,omitempty"`
	Input    json.RawMessage `json:"input,omitempty"`
	// Document names a stored document, as in nightly or nightly@3, instead of a Workflow. Input is
	// the input of the document. The Backend reads the document before it stores the submission: the
	// execution contains the text, and has the labels LabelDocument and LabelDocumentVersion. If the
	// submission was accepted before, under its ID or IdempotencyKey, the Backend returns the first
	// execution, whatever the newest version is now.
	Document     string            `json:"document,omitempty"`
	Queue        string            `json:"queue,omitempty"`
	Priority     int               `json:"priority,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	WorkerLabels map[string]string `json:"worker_labels,omitempty"`
	// DueAt is the earliest time at which the execution may run, by the store's clock; zero means
	// now.
	DueAt time.Time `json:"due_at,omitzero"`
	// IdempotencyKey prevents a second execution: a submission with the workflow and the key of an
	// earlier submission creates nothing and returns the earlier execution. If the two submissions
	// have different bodies, the Backend refuses the later submission with CodeIdempotencyMismatch.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// Idempotency, if it is IdempotencyByContent, makes the Backend recognize the submission by its
	// content. It excludes an IdempotencyKey and a Parent.
	Idempotency Idempotency `json:"idempotency,omitempty"`
	// Trigger is empty or TriggerManual; for a child it may be TriggerParent. The Backend itself sets the other
	// values, for what a schedule or another source starts.
	Trigger Trigger `json:"trigger,omitempty"`
	// TriggerPayload has the data that the source of the trigger has sent, such as the body of a webhook:
	// JSON, at most MaxTriggerPayload bytes. The Backend keeps it for people; a run gets only the Input. Like
	// the Trigger, it does not decide whether two submissions are equal: the first payload stays.
	TriggerPayload json.RawMessage `json:"trigger_payload,omitempty"`
	// Actor names the person or program that submits the execution. A server uses the name of the
	// caller's API key instead, if it requires keys. It does not decide whether two submissions are equal:
	// the first actor stays. The Actor of a child is ignored.
	Actor  string `json:"actor,omitempty"`
	Policy Policy `json:"policy,omitzero"`
	// External executions are not given to workers: another program owns them by Backend.Lock.
	External bool `json:"external,omitempty"`
	// Budget limits the cost of the execution and all its descendants together. A child has none.
	Budget *Budget `json:"budget,omitempty"`
	// Notify asks for HTTP requests when the execution ends, at most MaxNotifications. A child has none.
	Notify []Notification `json:"notify,omitempty"`
	// Trace is the trace of the submitter; the spans of the execution belong to it. It does not decide whether two
	// submissions are equal: the first trace stays. The Backend ignores a Trace that is not valid, and the Trace of a
	// child, whose spans belong to the run that has started it.
	Trace Trace `json:"-"`
	Gates
	// Parent is the lease of the run that starts this execution as a child, and ParentKey is the
	// name under which the child's end is delivered to the parent. With a Parent, ID must be the
	// ChildID of the parent's id, the parent's generation and ParentKey.
	Parent    *Lease `json:"parent,omitempty"`
	ParentKey string `json:"parent_key,omitempty"`
}

// Budget limits the cost of an execution and all its descendants together. When their cost reaches Cost, the
// Backend pauses the execution with the reason "budget", and its descendants when they report a cost or before
// their next run. ActionBudget with a higher budget resumes all of them. A run that has started may
// exceed the budget, because it reports a cost after the cost was incurred.
type Budget struct {
	// Cost is above 0.
	Cost Cost `json:"cost"`
}

// Idempotency says by what the Backend recognizes a submission of the same work. If it is empty, the
// Backend recognizes a submission by its id and its IdempotencyKey.
type Idempotency string

// IdempotencyByContent allows at most one execution of a content to be under way or to have succeeded. The content is
// the workflow, its version, the input, the policy and whether the execution is external; the Backend compares inputs
// by value. While an execution of the content has not ended, a further submission returns it; after its success, a
// further submission returns it and its output. The next submission of the content creates a new execution in the
// following cases: the execution has failed, was cancelled, is being cancelled, was requeued with another input, or was
// deleted after its retention.
const IdempotencyByContent Idempotency = "content"

// Submitted is the answer of the Backend to one Submission.
type Submitted struct {
	ID ExecutionID `json:"id"`
	// Replayed says that an earlier submission created the execution.
	Replayed bool `json:"replayed,omitempty"`
	// Warning says that the version of the stored document which the submission names is deprecated.
	Warning string `json:"warning,omitempty"`
	// Err says why this submission was refused. It says nothing about the other submissions of the
	// call.
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
	// requeue, steal, preempt, schedule_timeout, message_expired, start_timeout, no_worker, timeout,
	// forget, delete, budget.
	Kind string    `json:"kind"`
	At   time.Time `json:"at"`
	// Name is the name of the step, signal or child that the event concerns.
	Name   string   `json:"name,omitempty"`
	Token  Token    `json:"token,omitempty"`
	Worker WorkerID `json:"worker,omitzero"`
	// Attempt is the number of the run's attempt; with a step, the number of the try within its run.
	Attempt int `json:"attempt,omitempty"`
	// DurationMS is how long the step or wait of the event took until its result was there, in milliseconds,
	// rounded up; 0 if the owner did not report it.
	DurationMS int64 `json:"duration_ms,omitempty"`
	// Steps are steps and waits without an event of their own: failed tries and others that ended before
	// this step or before the end of this run, and those that the run left unfinished.
	Steps []StepRecord `json:"steps,omitempty"`
	// Final says that the execution ended with this event.
	Final bool `json:"final,omitempty"`
	// Actor names the person or program that caused the event. It is empty if the system itself
	// caused the event.
	Actor  string          `json:"actor,omitempty"`
	Text   string          `json:"text,omitempty"`
	Error  *Failure        `json:"error,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	Pruned bool            `json:"pruned,omitempty"`
}

// Filter selects executions. The zero Filter selects all executions without a parent.
type Filter struct {
	States   []State
	Workflow string
	Queue    string
	Key      string
	// Parent selects the children of one execution. Children also selects the children of all
	// executions.
	Parent   ExecutionID
	Children bool
	// Labels selects the executions that have all of these labels.
	Labels map[string]string
	// Error selects the executions whose error contains this text of at most MaxErrorText bytes. The
	// letters A to Z are equal to a to z.
	Error string
	// IDs selects the executions with these ids, 1,000 at most. It includes children.
	IDs []ExecutionID
	// Cursor is the Next of the page before, or empty for the first page. Limit is at most 1,000; 0
	// means 100.
	Cursor string
	Limit  int
	// Outputs, if above 0, adds to executions that have succeeded their outputs of at most so many bytes each.
	Outputs int
	// Count adds Counts to the page, unless Key or IDs is set.
	Count bool
}

const (
	// MaxErrorText limits Filter.Error, in bytes.
	MaxErrorText = 200
	// MaxCounted is how many of the newest executions StateCounts examines.
	MaxCounted = 10_000
)

// StateCounts has the numbers of the executions in each state: of those that a Filter selects if its
// States and its Cursor do not count. Only the newest MaxCounted executions, or the newest MaxCounted
// children of the Filter's Parent, are examined. If there are older ones, More is set, and each number
// is a lower bound.
type StateCounts struct {
	States map[State]int `json:"states" doc:"A state without executions may be missing."`
	More   bool          `json:"more,omitempty" doc:"Only the newest 10,000 executions were examined; there are older ones."`
}

// Page is one page of a list, the newest execution first.
type Page struct {
	Executions []Execution `json:"executions"`
	// Next is the cursor of the next page. It is empty at the end of the list.
	Next string `json:"next,omitempty"`
	// Counts is set if the Filter has Count.
	Counts *StateCounts `json:"counts,omitempty"`
	// SearchedUntil is set if the page has fewer executions than the caller requested, because the
	// call stopped its search after it had read the largest number of executions that one call
	// reads. The call has searched all executions created since this time. To continue the search,
	// request the page with the cursor Next.
	SearchedUntil time.Time `json:"searched_until,omitzero" doc:"Set where the page has fewer executions than were asked for and the search is not over. The search has looked at all executions created since this time. Go on with next."`
}

// EventQuery requests the events of one execution after a seq.
type EventQuery struct {
	Execution ExecutionID
	After     int64
	// Limit is at most 1,000; 0 means 1,000.
	Limit int
	// Wait is how long the call waits for an event if there is none yet.
	Wait time.Duration
	// Data makes the reply contain the data of checkpoints and signals too.
	Data bool
}

// Explanation gives the reason for the current state of an execution, in sentences.
type Explanation struct {
	Execution ExecutionID `json:"execution"`
	State     State       `json:"state"`
	Summary   string      `json:"summary"`
	Facts     []string    `json:"facts,omitempty"`
	// NextCheck is the time at which the engine has planned its next check of the execution. It is zero
	// if the engine has planned no check.
	NextCheck time.Time `json:"next_check,omitzero"`
	// Remedies are actions of operators that may end the wait or the failure, the most likely first. There are
	// none if the execution goes on by itself, or if no action of Belay helps.
	Remedies []Remedy `json:"remedies,omitempty"`
}

// Remedy is an action of an operator, or a thing at which an operator should look.
type Remedy struct {
	Do RemedyAction `json:"do"`
	// Of and ID name the thing on which the action is.
	Of RemedyTarget `json:"of"`
	ID string       `json:"id"`
	// Signal is the name of the signal to send, for RemedySignal.
	Signal string `json:"signal,omitempty"`
	// Title is the action as an order, such as Resume queue "mail". Text says what the action changes, and what a
	// person should do before, as a part of a sentence.
	Title string `json:"title"`
	Text  string `json:"text"`
}

// RemedyAction is the action of a Remedy: an Action, a GateAction, or one of the following.
type RemedyAction string

// The actions of remedies that are neither an Action nor a GateAction.
const (
	RemedyLook     RemedyAction = "look" // examine the thing, which keeps the execution from going on
	RemedySignal   RemedyAction = "signal"
	RemedyUncordon RemedyAction = "uncordon"
)

// RemedyTarget is a kind of things on which remedies are.
type RemedyTarget string

// The kinds of things on which remedies are.
const (
	RemedyExecution RemedyTarget = "execution"
	RemedyGate      RemedyTarget = "gate"
	RemedyWorker    RemedyTarget = "worker"
	RemedyWorkers   RemedyTarget = "workers" // all workers; the ID is the queue
)

// Action is an operator's action on an execution.
type Action string

// The actions of operators.
const (
	ActionCancel  Action = "cancel"
	ActionPause   Action = "pause"
	ActionResume  Action = "resume"
	ActionRetry   Action = "retry"   // reopen an ended execution; finished steps before From keep their results
	ActionRequeue Action = "requeue" // reopen an ended execution with another input; all steps run again
	ActionFork    Action = "fork"    // create a new execution that continues after a step of this execution
	ActionSteal   Action = "steal"   // take the execution from its owner
	ActionPreempt Action = "preempt" // request that the owner give the execution back
	// ActionQuarantine gives an execution up: it fails at once, and its dead letter has the reason
	// manual.
	ActionQuarantine Action = "quarantine"
	// ActionDelete deletes an ended execution with all its rows and children. The audit keeps the actor and the reason.
	// The action is refused with CodeConflict in three cases: the execution or one of its children has not ended, the
	// dead letter is open, or the execution is a child (only its root can be deleted, together with all children). The
	// execution is gone when the call returns, except that a very large tree may take some time longer; its idempotency
	// key stays for a day. The call returns the execution without its output.
	ActionDelete Action = "delete"
	// ActionBudget gives a root another budget. If the cost of its tree is below the new budget, the
	// executions that were paused because the budget was spent continue; otherwise they stay paused, or the
	// root is paused. A child is refused with CodeConflict.
	ActionBudget Action = "budget"
)

// Control requests an action. The call returns the execution in its state after the action.
type Control struct {
	Execution ExecutionID     `json:"execution"`
	Action    Action          `json:"action"`
	Actor     string          `json:"actor,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Op        OpID            `json:"op,omitzero"`
	Grace     Duration        `json:"grace,omitempty"` // for cancel: how long the run may take to end
	Input     json.RawMessage `json:"input,omitempty"` // for requeue and fork: the new input
	// InputPatch is for requeue, instead of Input: a JSON Merge Patch (RFC 7396) that changes the
	// present input.
	InputPatch json.RawMessage `json:"input_patch,omitempty"`
	// KeepResults is for requeue: the execution keeps the results of its finished steps and its state beside the new
	// input, as after a retry. So its workflow function must accept these results together with the new input.
	KeepResults bool `json:"keep_results,omitempty"`
	// Generation is for retry and requeue: the generation whose failure the caller has seen. If the
	// execution was reopened since, or if the dead letter of this generation is resolved, the action
	// is refused with CodeConflict. 0 means the present generation, whatever it is.
	Generation int `json:"generation,omitempty"`
	// UpTo is for a fork. The fork, a new execution, gets the checkpoints of the forked execution
	// up to the seq UpTo; 0 means all checkpoints.
	UpTo int64 `json:"up_to,omitempty"`
	// From is for a retry: the results of the step or wait with this name, and all results that were saved after it,
	// are discarded, so that this work is done again. If From names a wait, this wait needs a new signal. Every other
	// discarded wait gets its signal again if the signal had arrived before the named step or wait was first saved;
	// otherwise it needs a new signal too. Name the step as the history does, with its branch and key:
	// "branch/step[key]". If there is no such step, the action is refused with CodeInvalid. If the retry needs an older
	// state that a newer state has replaced, the action is refused with CodeConflict.
	From string `json:"from,omitempty"`
	// At is for a fork, instead of UpTo: the fork gets the checkpoints that were saved before the step
	// or wait with this name, which is named as in From.
	At string `json:"at,omitempty"`
	// Budget is for ActionBudget: the new budget.
	Budget *Budget `json:"budget,omitempty"`
	// Fork is the id of the new execution. If it is zero, the Backend makes an id.
	Fork ExecutionID `json:"fork,omitzero"`
}

// SignalRequest delivers a signal.
type SignalRequest struct {
	Execution ExecutionID     `json:"execution"`
	Name      string          `json:"name"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	// Actor is the person or program that sends the signal, for the history and the audit. Over HTTP, it is the name
	// of the caller's key. If it is empty, the signal is not in the audit. With several requests that have the same
	// Op, the first actor stays.
	Actor string `json:"actor,omitempty"`
	// Op identifies the operation: a repeated request with the same Op delivers no second signal.
	Op OpID `json:"op,omitzero"`
}

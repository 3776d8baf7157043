package belay

import (
	"encoding/json"
	"time"
)

// BulkAction is the action that a bulk carries out on each of the executions that it selects.
type BulkAction string

// The actions of bulks.
const (
	// BulkRequeue reopens executions with an open dead letter. With an input or a patch of the input,
	// all steps run again; without both, finished steps keep their results.
	BulkRequeue BulkAction = "requeue"
	BulkDiscard BulkAction = "discard" // resolve open dead letters: the work is not needed
	BulkCancel  BulkAction = "cancel"  // cancel executions that have not ended
	BulkRetry   BulkAction = "retry"   // reopen failed or cancelled executions; finished steps keep their results
)

// BulkActions are all actions of bulks.
var BulkActions = []BulkAction{BulkRequeue, BulkDiscard, BulkCancel, BulkRetry}

// BulkWorkflow is the workflow of the executions that carry out bulks. A submission cannot name it;
// see [Bulker].
const BulkWorkflow = "belay.bulk"

// Limits and defaults of bulks.
const (
	// MaxBulk is the largest number of executions on which one bulk acts.
	MaxBulk = 100_000
	// MaxBulkRate is the highest rate of a bulk, in actions per second.
	MaxBulkRate     = 1000
	DefaultBulkRate = 10
	// DefaultBulkFailures is the default of Bulk.MaxFailures.
	DefaultBulkFailures = 0.1
	// MaxBulkNotes is the largest length of Bulk.Notes, in bytes.
	MaxBulkNotes = 150
	// MaxBulkStages is the largest number of stages of a canary, and MaxBulkStage the largest number of
	// executions in one stage.
	MaxBulkStages = 5
	MaxBulkStage  = 1000
)

// DefaultCanary returns the canary of a bulk that names none: one execution, and then ten more.
func DefaultCanary() []int { return []int{1, 10} }

// Bulk requests an action on many executions. An execution of [BulkWorkflow] carries it out, run by
// a server.
//
// The bulk acts on the executions that match the filter and were there when the bulk was accepted: for requeue and
// discard, on dead letters that were written before; for cancel and retry, on executions that were submitted before.
// The bulk reads them in pages, dead letters from the newest failure to the oldest and executions from the highest id
// to the lowest, and reads a page only when it has acted on the page before. So an execution that another caller has
// changed in the meantime is left out, or counted as a conflict. A bulk never selects a child or the execution of a
// bulk.
type Bulk struct {
	Action BulkAction `json:"action"`
	Filter BulkFilter `json:"filter,omitzero"`
	// All confirms a filter that selects everything: one that names no workflow, queue, label, reason,
	// class, fingerprint or text. Without All such a filter is refused.
	All bool `json:"all,omitempty"`
	// A requeue may set either Input or InputPatch: Input replaces the input of each execution, and InputPatch is a
	// JSON Merge Patch (RFC 7396) of the input that the execution has.
	Input      json.RawMessage `json:"input,omitempty"`
	InputPatch json.RawMessage `json:"input_patch,omitempty"`
	// Notes is the reason, which each dead letter and history shows together with the id of the bulk.
	Notes string `json:"notes,omitempty"`
	// Actor is the person or program that requests the bulk. All its actions have this actor.
	Actor string `json:"actor,omitempty"`
	// Rate is the highest number of actions per second; 0 means DefaultBulkRate.
	Rate float64 `json:"rate,omitempty"`
	// Canary has the numbers of executions on which the bulk acts in its first stages. After each
	// of these stages, the bulk waits until all executions that it has reopened have ended, and
	// stops if the share of failures is above MaxFailures. After the last of them, it acts on all
	// other executions. nil means DefaultCanary, and an empty slice means no canary.
	Canary []int `json:"canary,omitzero"`
	// MaxFailures is the largest share of failures, between 0 and 1; nil means DefaultBulkFailures. If the share of
	// failures among the ended executions is larger, the bulk stops by itself. The bulk checks the share after each
	// stage of the canary, then whenever at least ten executions have ended, and at the end. A reopened execution has
	// failed if it ends in another state than succeeded. A discard or a cancel has failed if it was refused. Conflicts
	// count neither as failures nor as successes.
	MaxFailures *float64 `json:"max_failures,omitempty"`
	// DryRun counts the selection and shows the first ten, and changes nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// Op identifies the request: a repeated request with the same Op starts no second bulk.
	Op OpID `json:"op,omitzero"`
}

// BulkFilter selects the executions of a bulk. Empty fields select all.
type BulkFilter struct {
	Workflow string `json:"workflow,omitempty"`
	// Since and Until bound the time of the failure (requeue, discard) or of the submission (cancel,
	// retry), by the store's clock: Since ≤ time < Until.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`

	// Reason, Class, Fingerprint and Text select dead letters, as in a [DeadLetterFilter].
	Reason      string `json:"reason,omitempty"`
	Class       Class  `json:"class,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Text        string `json:"text,omitempty"`

	// Queue, Labels and States select executions, as in a [Filter]. For cancel the default of States is
	// all states of executions that have not ended, and for retry the state failed.
	Queue  string            `json:"queue,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	States []State           `json:"states,omitempty"`
}

// Narrow reports whether the filter names at least one property other than a time or a state.
func (f BulkFilter) Narrow() bool {
	return f.Workflow != "" || f.Reason != "" || f.Class != 0 || f.Fingerprint != "" || f.Text != "" || f.Queue != "" ||
		len(f.Labels) > 0
}

// BulkReply is the answer to a Bulk.
type BulkReply struct {
	// Execution is the execution that carries the bulk out; nil after a dry run. Its newest state, and
	// at the end its output, is a BulkProgress.
	Execution *Execution `json:"execution,omitempty"`
	// Replayed says that an earlier request with the same Op has started the bulk.
	Replayed bool `json:"replayed,omitempty"`
	// Preview is the result of a dry run; nil otherwise.
	Preview *BulkPreview `json:"preview,omitempty"`
}

// BulkPreview is the result of a dry run.
type BulkPreview struct {
	// Count is the number of executions that the bulk selects at this moment. More says that it may
	// select more than were counted: a dry run reads 100 pages at most, and counts up to MaxBulk.
	Count int  `json:"count"`
	More  bool `json:"more,omitempty"`
	// First are the first executions on which the bulk would act, ten at most.
	First []BulkItem `json:"first"`
}

// BulkItem is an execution that a bulk selects.
type BulkItem struct {
	Execution ExecutionID `json:"execution"`
	// Generation is the generation that failed, if the bulk selects dead letters; otherwise it is
	// the present generation of the execution.
	Generation int    `json:"generation"`
	Workflow   string `json:"workflow"`
	// State is the state of the execution; it is left out for a dead letter.
	State State `json:"state,omitempty"`
	// Message is the error of a dead letter.
	Message string `json:"message,omitempty"`
	// At is the time of the failure or of the submission, by the store's clock.
	At time.Time `json:"at"`
}

// BulkProgress is the state of a bulk, which its execution saves at least once a second while it
// acts, and its output.
type BulkProgress struct {
	// Stage is "canary" during the stages of the canary, then "all", and at the end "done" or "stopped".
	Stage string `json:"stage"`
	// Selected is the number of executions that the bulk has reached: the sum of the other counts, and the number of
	// executions on which the bulk acts next.
	Selected int `json:"selected"`
	// Running is the number of executions that the bulk has reopened and that have not ended.
	Running   int `json:"running"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	// Conflicts is the number of executions that another caller had changed or deleted before this bulk
	// acted on them.
	Conflicts int `json:"conflicts"`
	// More says that the selection has more than MaxBulk executions; the bulk has ended without them.
	More bool `json:"more,omitempty"`
	// Failures are the first failures, ten at most.
	Failures []BulkFailure `json:"failures,omitempty"`
	// Stopped says why the bulk has stopped by itself; it is empty if the bulk has not.
	Stopped string `json:"stopped,omitempty"`
}

// BulkFailure is a failure of a bulk: an action that was refused, or a reopened execution that did not
// succeed.
type BulkFailure struct {
	Execution ExecutionID `json:"execution"`
	Message   string      `json:"message"`
}

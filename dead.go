package belay

import (
	"encoding/json"
	"time"
)

// DeadLetter records that an execution failed for good: the engine does not retry it again. Only an
// execution without a parent has dead letters, one for each generation that failed. A dead letter
// is open until it is resolved, and it can be resolved only once.
type DeadLetter struct {
	Execution ExecutionID `json:"execution"`
	// Generation is the generation of the execution that failed: 1, and one more for each time that
	// the execution was reopened.
	Generation int    `json:"generation"`
	Workflow   string `json:"workflow"`
	// Reason is one of the DeadLetterReasons.
	Reason  string `json:"reason"`
	Class   Class  `json:"class"`
	Message string `json:"message"`
	// FailedBy names the part of Belay that ended the execution; it is zero if the execution's owner
	// reported the failure.
	FailedBy FailedBy `json:"failed_by,omitzero"`
	// At is the time of the failure, by the store's clock.
	At time.Time `json:"at"`
	// Run is the run that failed; it is zero if no run was in progress.
	Run RunID `json:"run,omitzero"`
	// Fingerprint is equal for dead letters of one workflow that have the same reason and class and
	// whose messages differ only in numbers, ids and quoted texts.
	Fingerprint string `json:"fingerprint"`
	// Resolution is empty while the dead letter is open; otherwise it is one of the resolutions.
	// ResolvedBy and ResolvedAt say who resolved it, and when.
	Resolution string    `json:"resolution,omitempty"`
	ResolvedBy string    `json:"resolved_by,omitempty"`
	ResolvedAt time.Time `json:"resolved_at,omitzero"`
	// Notes are what people wrote about the dead letter, the oldest first.
	Notes []DeadLetterNote `json:"notes,omitempty"`
}

// DeadLetterNote is a text that a person added to a dead letter, or gave as the reason for resolving
// it.
type DeadLetterNote struct {
	At   time.Time `json:"at"`
	By   string    `json:"by,omitempty"`
	Text string    `json:"text"`
}

// DeadLetterReasons are the reasons of dead letters:
//
//   - max_retries: the last attempt failed
//   - permanent_error: the workflow reported an error that no retry mends
//   - timeout: a timeout or the deadline ended the execution
//   - lost: the execution lost its owner too often
//   - no_worker: no worker was available, and the policy says that the execution fails then
//   - circuit_breaker: the circuit breaker of a target refused the execution's last attempt
//   - expired: the message about the execution expired in the queue of a worker
//   - manual: an operator gave the execution up
var DeadLetterReasons = []string{
	"max_retries", "permanent_error", "timeout", "lost", "no_worker", "circuit_breaker", "expired", "manual",
}

// DeadLetterWords are the words by which a [DeadLetterFilter] selects resolutions.
var DeadLetterWords = []string{
	"open", "resolved", "all", ResolvedRetried, ResolvedRequeued, ResolvedFixed, ResolvedDiscarded,
}

// The resolutions of dead letters.
const (
	ResolvedRetried   = "retried"   // the execution was reopened with its input
	ResolvedRequeued  = "requeued"  // the execution was reopened with another input
	ResolvedFixed     = "fixed"     // a person repaired the consequences by hand
	ResolvedDiscarded = "discarded" // a person decided that the work is not needed
)

// DeadLetterFilter selects dead letters. Empty fields select all.
type DeadLetterFilter struct {
	// Resolution is open (the default), resolved, all, or one of the resolutions.
	Resolution  string
	Reason      string
	Workflow    string
	Class       Class
	Fingerprint string
	// Text selects the dead letters whose message contains this text; the comparison ignores case.
	Text string
	// Since and Until bound the time of the failure, by the store's clock: Since ≤ At < Until.
	Since, Until time.Time
	// Cursor is the Next of the previous page, empty for the first page.
	Cursor string
	// Limit is the largest number of dead letters on the page: 100 if it is 0, and never more than
	// 1,000.
	Limit int
}

// DeadLetterPage is one page of a list of dead letters, the newest first.
type DeadLetterPage struct {
	DeadLetters []DeadLetter `json:"dead_letters"`
	// Next is the Cursor for the next page, empty on the last page. A page may have fewer dead letters
	// than the limit, or none, although further pages have some: one call examines 10,000 dead letters
	// at most.
	Next string `json:"next,omitempty"`
}

// DeadLetterGroup are the dead letters with one fingerprint.
type DeadLetterGroup struct {
	Fingerprint string `json:"fingerprint"`
	Workflow    string `json:"workflow"`
	Reason      string `json:"reason"`
	Class       Class  `json:"class"`
	Count       int    `json:"count"`
	// First and Last are the times of the oldest and the newest failure, by the store's clock. Message
	// and Newest are the message and the execution of the newest failure.
	First   time.Time   `json:"first"`
	Last    time.Time   `json:"last"`
	Message string      `json:"message"`
	Newest  ExecutionID `json:"newest"`
}

// DeadLetterGroups are groups of dead letters, the largest first.
type DeadLetterGroups struct {
	Groups []DeadLetterGroup `json:"groups"`
	// Examined is the number of dead letters that the call examined: the newest, at most 10,000. More
	// says that older dead letters exist, which the call did not examine.
	Examined int  `json:"examined"`
	More     bool `json:"more,omitempty"`
}

// DeadLetterDetail is a dead letter with everything that a person needs to repair the execution.
type DeadLetterDetail struct {
	DeadLetter
	// State and Current are the present state and generation of the execution, which may have been
	// reopened since.
	State   State `json:"state"`
	Current int   `json:"current_generation"`
	// Input is the input that the failed generation had.
	Input  json.RawMessage   `json:"input,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Queue  string            `json:"queue,omitempty"`
	Policy *Policy           `json:"policy,omitempty"`
	// Attempts is the number of attempts that the execution has used in its present generation.
	Attempts int `json:"attempts"`
	// Stack is the stack trace that the worker sent with the error of the failed run, if it sent one.
	Stack string `json:"stack,omitempty"`
	// Tasks are the children of the execution that have failed, at most 20.
	Tasks []FailedTask `json:"tasks,omitempty"`
	// Others are the execution's other dead letters, the newest first, at most 20.
	Others []DeadLetter `json:"others,omitempty"`
}

// FailedTask is a child that failed.
type FailedTask struct {
	Execution ExecutionID `json:"execution"`
	Key       string      `json:"key,omitempty"`
	Workflow  string      `json:"workflow"`
	Class     Class       `json:"class"`
	Message   string      `json:"message"`
}

// DeadLetterAction is an action on a dead letter.
type DeadLetterAction string

// The actions on dead letters. To reopen an execution, use [ActionRetry] or [ActionRequeue].
const (
	DeadLetterFix     DeadLetterAction = "fix"     // resolve it: a person has repaired the consequences
	DeadLetterDiscard DeadLetterAction = "discard" // resolve it: the work is not needed
	DeadLetterNoted   DeadLetterAction = "note"    // add a note
)

// DeadLetterChange requests an action on a dead letter.
type DeadLetterChange struct {
	Execution ExecutionID `json:"execution"`
	// Generation is the generation that failed; 0 means the newest dead letter of the execution.
	Generation int              `json:"generation,omitempty"`
	Action     DeadLetterAction `json:"action"`
	Actor      string           `json:"actor,omitempty"`
	// Note is the text of the note, or the reason for resolving the dead letter. It has at most
	// MaxNote bytes.
	Note string `json:"note,omitempty"`
	// Op identifies the operation: a repeated request with the same Op changes nothing more.
	Op OpID `json:"op,omitzero"`
}

// The limits of notes of a dead letter.
const (
	MaxNote  = 4 << 10 // the largest size of one note, in bytes
	MaxNotes = 100     // the largest number of notes of one dead letter
)

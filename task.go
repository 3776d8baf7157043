package belay

import (
	"encoding/json"
	"time"
)

// TaskState is the state of a task of a document.
type TaskState string

// The states of tasks.
const (
	TaskPending   TaskState = "pending"   // it has not started
	TaskRunning   TaskState = "running"   // a worker runs it
	TaskWaiting   TaskState = "waiting"   // for a worker, its next attempt, a signal, a time or an answer
	TaskSucceeded TaskState = "succeeded" // its work is done
	TaskFailed    TaskState = "failed"    // its work has failed for good
	TaskSkipped   TaskState = "skipped"   // its condition was false
	TaskBlocked   TaskState = "blocked"   // a task that it needs has failed with on_failure: quarantine
	TaskCancelled TaskState = "cancelled" // it was under way when its execution ended
)

// TaskStates lists the states of tasks.
var TaskStates = []TaskState{
	TaskPending, TaskRunning, TaskWaiting, TaskSucceeded, TaskFailed, TaskSkipped, TaskBlocked, TaskCancelled,
}

// Task is a task of an execution of a document, or an item of a foreach, read from the store at one moment.
type Task struct {
	// ID is the id of the task, as in build, or the name of the item, as in build[7].
	ID          string `json:"id"`
	Uses        string `json:"uses"`
	Description string `json:"description,omitempty"`
	// Needs are the tasks that must end before the task starts.
	Needs []string `json:"needs,omitempty"`
	// Compensates says that the task undoes the work of the task that it needs, and runs for no other purpose.
	Compensates bool      `json:"compensates,omitempty"`
	State       TaskState `json:"state"`
	// Execution is the child execution that does the work. It is zero if the task has not started, is a foreach, or
	// only waits.
	Execution ExecutionID `json:"execution,omitzero"`
	// Attempt is the number of the last attempt of the child, from 1.
	Attempt int `json:"attempt,omitempty"`
	// Generation is the generation of the document's execution in which the task has started.
	Generation int `json:"generation,omitempty"`
	// StartedAt is the begin of the first run of the child, and EndedAt the end of the child, by the store's clock.
	StartedAt time.Time `json:"started_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// WaitsFor says as a sentence why the child does not run.
	WaitsFor string `json:"waits_for,omitempty"`
	// Question says for which signal a task waits.
	Question *TaskQuestion `json:"question,omitempty"`
	// Error is the message of a failed task.
	Error string `json:"error,omitempty"`
	// Output is what the work has returned, if that is small; the child has a larger output. If a person has given the
	// output by hand, it is that output.
	Output json.RawMessage `json:"output,omitempty"`
	// Items counts the items of a foreach whose list is known.
	Items *TaskItems `json:"items,omitempty"`
	// ByHand is set if a person has skipped the task.
	ByHand *TaskByHand `json:"by_hand,omitempty"`
}

// TaskQuestion is the signal for which an approval or a signal task waits.
type TaskQuestion struct {
	// Signal is the name of the signal.
	Signal string `json:"signal"`
	// Approval says that the payload must be {"approved": true}, or the task fails.
	Approval bool `json:"approval,omitempty"`
	// Message is the question that people were asked: the expressions of the document have their values.
	Message string `json:"message,omitempty"`
}

// TaskItems counts the items of a foreach by their states. Open are those that have started and not ended.
type TaskItems struct {
	Total     int `json:"total"`
	Pending   int `json:"pending"`
	Open      int `json:"open"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
}

// TaskByHand names the person who has skipped a task, and the reason.
type TaskByHand struct {
	By   string `json:"by,omitempty"`
	Note string `json:"note,omitempty"`
}

// TaskQuery selects tasks of an execution.
type TaskQuery struct {
	Execution ExecutionID
	// Task selects one task, and the items of this task if it is a foreach.
	Task string
	// State selects tasks, or items, in this state.
	State TaskState
	// Cursor is the Next of the page before, or empty for the first page. Limit is at most 1,000; 0 means 100.
	Cursor string
	Limit  int
	// Outputs says that the tasks have their outputs.
	Outputs bool
}

// TaskPage is a part of the tasks of an execution, in the order of the document, or of the items of a task, in the
// order of their numbers.
type TaskPage struct {
	// Document is the name of the document.
	Document string `json:"document"`
	// Total is the number of tasks of the document, or of items of the task.
	Total int    `json:"total"`
	Tasks []Task `json:"tasks"`
	// Next is the cursor of the next page. It is empty at the end. A page may have fewer tasks than its limit, or none,
	// although further pages have some.
	Next string `json:"next,omitempty"`
}

// Repair makes a failed or cancelled execution of a document run again. Tasks that have succeeded or were skipped by
// their condition do not run again, apart from those that the repair names.
type Repair struct {
	Execution ExecutionID `json:"execution"`
	// From are tasks that run again, with all tasks that depend on them.
	From []string `json:"from,omitempty"`
	// Skip are tasks that do not run and count as succeeded.
	Skip   []TaskSkip `json:"skip,omitempty"`
	Actor  string     `json:"actor,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Op     OpID       `json:"op,omitzero"`
	// Generation is the generation whose failure the caller has seen. If the execution was reopened since, the repair
	// is refused with CodeConflict. 0 means the present generation.
	Generation int `json:"generation,omitempty"`
}

// TaskSkip names a task that counts as succeeded without its work.
type TaskSkip struct {
	// Task is the id of a task, as in build, or the name of an item of a foreach, as in build[7].
	Task string `json:"task"`
	// Output is the output of the task, as expressions see it. For a whole foreach it is a list.
	Output json.RawMessage `json:"output,omitempty"`
}

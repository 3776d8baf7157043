package belay

import (
	"encoding/json"
	"time"
)

// MaxTriggerPayload is the largest size of a TriggerPayload, in bytes.
const MaxTriggerPayload = 64 << 10

// MaxMeasured is the largest number of rows of one kind (runs, checkpoints, children, runs of children) that
// one [Metrics] counts: the newest ones.
const MaxMeasured = 10_000

// ExecutionDetail is an execution with facts that lists leave out. Client.Detail reads all parts in one
// snapshot of the store.
type ExecutionDetail struct {
	Execution
	// TriggerPayload has the data that the source of the trigger has sent, as it was submitted.
	TriggerPayload json.RawMessage `json:"trigger_payload,omitempty" doc:"The payload of the trigger, as it was submitted."`
	// ModifiedBy and ModifiedAt are the actor and the time of the newest action of a person or program on
	// the execution, such as a pause or a signal that has an actor. ModifiedBy is empty if the action named
	// no actor; both are zero if there was no action.
	ModifiedBy string    `json:"modified_by,omitempty" doc:"The actor of the newest action on the execution, such as a pause, or a signal that has an actor. Actions of Belay itself do not count."`
	ModifiedAt time.Time `json:"modified_at,omitzero" doc:"The time of the newest action on the execution; absent if there was none."`
	// Metrics is nil if the Backend did not compute the metrics.
	Metrics *Metrics `json:"metrics,omitempty"`
}

// Metrics are sums over the runs, checkpoints and children of one execution, in all its generations. A
// duration is in milliseconds; one that is not zero is at least 1. The metrics depend only on the rows of
// the store, and not on the time of the call.
type Metrics struct {
	// DurationMS is the time from the submission to the end; 0 if the execution has not ended.
	DurationMS int64 `json:"duration_ms,omitempty" doc:"From the submission to the end; absent until the execution has ended."`
	// WaitMS is the time from the submission to the begin of the first run; 0 if no run has begun. It contains
	// the delay that the submission asked for.
	WaitMS int64 `json:"wait_ms,omitempty" doc:"From the submission to the begin of the first run; absent until a run has begun."`
	// RunningMS is the sum of the durations of the runs that have ended, and RunningSince is the begin of the
	// run that has not ended, by the store's clock.
	RunningMS    int64     `json:"running_ms" doc:"The sum of the durations of the runs that have ended."`
	RunningSince time.Time `json:"running_since,omitzero" doc:"The begin of the run that goes on, which running_ms does not contain."`
	// Runs is the number of runs that have begun. Outcomes counts those that have ended, by outcome: the sum of
	// failed and timed_out is the number of attempts that the retry budgets were charged for.
	Runs     int            `json:"runs" doc:"The runs that have begun."`
	Outcomes map[string]int `json:"outcomes,omitempty" doc:"The runs that have ended, by outcome."`
	// Steps is the number of steps, by name, whose results the next run would use, and Checkpoints is the
	// number of checkpoints that were saved: steps, states and waits, each time. Both start at 0 again with
	// another input.
	Steps       int `json:"steps" doc:"The steps, by name, that have a result. A requeue with another input begins at 0 again."`
	Checkpoints int `json:"checkpoints" doc:"The checkpoints that were saved: steps, states and waits, each time. A requeue with another input begins at 0 again."`
	// CostTokens is the CostTokens of the execution.
	CostTokens Cost `json:"cost_tokens,omitempty" doc:"The cost of the execution and all its descendants."`
	// Children are nil if the execution has no children.
	Children *ChildMetrics `json:"children,omitempty"`
	// Truncated says that there are more than MaxMeasured rows of a kind, so that a sum lacks older ones.
	Truncated bool `json:"truncated,omitempty" doc:"There are more than 10,000 runs, checkpoints, children or runs of children: the sums contain only the newest 10,000."`
}

// ChildMetrics are sums over the direct children of an execution, of all its generations.
type ChildMetrics struct {
	// Total is the number of the children, and States counts them by state.
	Total  int            `json:"total" doc:"The children."`
	States map[string]int `json:"states" doc:"The children, by state."`
	// Runs is the number of the children's runs that have ended, and RunningMS is the sum of the durations of
	// these runs. The children's own children do not count.
	Runs      int   `json:"runs" doc:"The runs of the children that have ended."`
	RunningMS int64 `json:"running_ms" doc:"The sum of the durations of these runs. Children that run side by side can have a larger sum than their parent's duration."`
	// CostTokens is the cost of the children and all their descendants.
	CostTokens Cost `json:"cost_tokens,omitempty" doc:"The cost of the children and all their descendants."`
}

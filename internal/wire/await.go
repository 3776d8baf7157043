package wire

import "github.com/belaydev/belay"

// MaxAwait is the largest number of executions that one Await may name.
const MaxAwait = 1000

// Await requests the ends of several executions.
type Await struct {
	Executions []belay.ExecutionID `json:"executions" minItems:"1" maxItems:"1000"`
	WaitMS     int64               `json:"wait_ms,omitempty" minimum:"0" doc:"How long to wait, 60000 at most; without it the answer has only the executions that have ended already."`
}

// The events that answer an Await.
const (
	// EventEnded carries an execution that has ended.
	EventEnded = "ended"
	// EventRefused carries a Refused: an execution that cannot be awaited.
	EventRefused = "refused"
	// EventOver says that no more events will come: an event was sent for every execution, or the
	// time of the wait is over.
	EventOver = "over"
)

// Over is the data of EventOver.
type Over struct{}

// Refused is an execution that cannot be awaited, and the reason.
type Refused struct {
	Execution belay.ExecutionID `json:"execution"`
	Error     *Problem          `json:"error"`
}

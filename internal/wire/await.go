package wire

import "github.com/belaydev/belay"

// MaxAwait is the most executions that one Await names.
const MaxAwait = 1000

// Await asks to be told of the end of each of some executions.
type Await struct {
	Executions []belay.ExecutionID `json:"executions" minItems:"1" maxItems:"1000"`
	WaitMS     int64               `json:"wait_ms,omitempty" minimum:"0" doc:"For how long, 60,000 at most; without it those are told of that have ended already."`
}

// The events that answer an Await.
const (
	// EventEnded holds an execution that has ended.
	EventEnded = "ended"
	// EventRefused holds a Refused.
	EventRefused = "refused"
	// EventOver says that there is nothing more to come: all are told of, or the
	// wait is over.
	EventOver = "over"
)

// Over is the data of EventOver.
type Over struct{}

// Refused is an execution that cannot be awaited.
type Refused struct {
	Execution belay.ExecutionID `json:"execution"`
	Error     *Problem          `json:"error"`
}

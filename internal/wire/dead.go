package wire

import (
	"encoding/json"

	"github.com/belaydev/belay"
)

// Requeue reopens the execution of a dead letter. The header Idempotency-Key has the operation id.
type Requeue struct {
	Generation int             `json:"generation,omitempty" minimum:"0" doc:"The generation that failed; 0 is the newest dead letter."`
	Input      json.RawMessage `json:"input,omitempty" doc:"Another input, instead of the present one; then all steps run again."`
	InputPatch json.RawMessage `json:"input_patch,omitempty" doc:"A JSON Merge Patch (RFC 7396) that changes the present input; then all steps run again."`
	Notes      string          `json:"notes,omitempty" maxLength:"200" doc:"The reason, which the dead letter and the history keep."`
	Actor      string          `json:"actor,omitempty" maxLength:"200" doc:"The name of the reviewer, if the request needs no key."`
}

// Requeued is the answer to a requeue.
type Requeued struct {
	Resolution string          `json:"resolution" enum:"retried,requeued" doc:"retried: the input is the same and finished steps keep their results. requeued: all steps run again."`
	Execution  belay.Execution `json:"execution"`
}

// Resolve resolves a dead letter, or adds a note to one. The header Idempotency-Key has the operation
// id.
type Resolve struct {
	Generation int    `json:"generation,omitempty" minimum:"0" doc:"The generation that failed; 0 is the newest dead letter."`
	Notes      string `json:"notes,omitempty" maxLength:"4096" doc:"The text that the dead letter keeps."`
	Actor      string `json:"actor,omitempty" maxLength:"200" doc:"The name of the reviewer, if the request needs no key."`
}

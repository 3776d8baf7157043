package wire

import (
	"encoding/json"
	"time"

	"github.com/belaydev/belay"
)

// MaxWait is the longest time that a request may wait, for example for an event or for a due
// execution.
const MaxWait = 60 * time.Second

// HeaderWarning is a header of the answer to a submission that names a deprecated version of a
// stored document.
const HeaderWarning = "Belay-Warning"

const (
	// MaxBatch is the largest number of operations in one Batch.
	MaxBatch = 1000
	// MaxBatchBody is the largest size of a Batch in bytes.
	MaxBatchBody = 16 << 20
	// MaxBody is the largest size of any other request in bytes: a payload of belay.MaxPayload
	// bytes and the fields around it.
	MaxBody = belay.MaxPayload + 64<<10
)

// HeaderOnly with the value OnlySubmits is a header of a Batch whose operations all submit
// executions without a parent. A server under too much load can refuse such a Batch without reading
// its body. An older server does not know this header and reads the body.
const (
	HeaderOnly  = "Belay-Only"
	OnlySubmits = "submit"
)

// Batch has the writes that a client sends together in one request. Each operation succeeds or
// fails independently of the others; the operations have no order, and the store usually writes all
// of them in one commit.
type Batch struct {
	Ops []Op `json:"ops"`
}

// Op is one operation: exactly one field is set.
type Op struct {
	Submit *Submit `json:"submit,omitempty"`
	Signal *Signal `json:"signal,omitempty"`
	Save   *Save   `json:"save,omitempty"`
	Settle *Settle `json:"settle,omitempty"`
	Append *Append `json:"append,omitempty"`
}

// BatchReply answers a Batch, in the order of its operations.
type BatchReply struct {
	Results []Result `json:"results"`
}

// Result is the answer to one operation.
type Result struct {
	Submitted *belay.Submitted `json:"submitted,omitempty"`
	Seq       int64            `json:"seq,omitempty"` // the number of a saved checkpoint
	Error     *Problem         `json:"error,omitempty"`
}

// Check refuses a batch with too many operations, and an operation in which not exactly one of the
// fields of Op is set.
func (b *Batch) Check() error {
	if len(b.Ops) > MaxBatch {
		return tooMany("operations", len(b.Ops), MaxBatch)
	}
	for i := range b.Ops {
		o := &b.Ops[i]
		n := 0
		for _, set := range []bool{o.Submit != nil, o.Signal != nil, o.Save != nil, o.Settle != nil, o.Append != nil} {
			if set {
				n++
			}
		}
		if n != 1 {
			return &belay.Error{
				Code:    belay.CodeInvalid,
				Message: "an operation must be exactly one of submit, signal, save, settle, append",
			}
		}
	}
	return nil
}

// Signal delivers a signal to an execution.
type Signal struct {
	Execution belay.ExecutionID `json:"execution"`
	Name      string            `json:"name"`
	Payload   json.RawMessage   `json:"payload,omitempty"`
	Actor     string            `json:"actor,omitempty" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
	Op        belay.OpID        `json:"op,omitzero"`
}

// Save writes a checkpoint under a lease.
type Save struct {
	Lease      Lease                `json:"lease"`
	Op         belay.OpID           `json:"op,omitzero"`
	Kind       belay.CheckpointKind `json:"kind"`
	Key        string               `json:"key"`
	Data       json.RawMessage      `json:"data,omitempty"`
	Consumes   int64                `json:"consumes,omitempty"`
	Also       []int64              `json:"also_consumes,omitempty" maxItems:"1000"`
	CostTokens belay.Cost           `json:"cost_tokens,omitempty"`
	Usage      belay.ModelUsage     `json:"usage,omitzero"`
	Repeat     bool                 `json:"repeat,omitempty"`
	DurationMS int64                `json:"duration_ms,omitempty"`
	Attempt    int                  `json:"attempt,omitempty"`
	Steps      []StepReport         `json:"steps,omitempty"`
}

// SaveOf converts a checkpoint for the wire.
func SaveOf(s belay.Save) Save {
	return Save{
		LeaseOf(s.Lease), s.Op, s.Kind, s.Key, s.Data, s.Consumes, s.AlsoConsumes, s.CostTokens, s.Usage, s.Repeat,
		Millis(s.Took), s.Attempt, reportsOf(s.Steps),
	}
}

// Save converts the checkpoint from the wire.
func (w *Save) Save() belay.Save {
	return belay.Save{
		Lease: w.Lease.Lease(), Op: w.Op, Kind: w.Kind, Key: w.Key, Data: w.Data,
		Consumes: w.Consumes, AlsoConsumes: w.Also, CostTokens: w.CostTokens, Usage: w.Usage, Repeat: w.Repeat,
		Took: Duration(w.DurationMS), Attempt: w.Attempt, Steps: reports(w.Steps),
	}
}

// Settle ends a run.
type Settle struct {
	Lease        Lease           `json:"lease"`
	Op           belay.OpID      `json:"op,omitzero"`
	Outcome      belay.Outcome   `json:"outcome"`
	Output       json.RawMessage `json:"output,omitempty"`
	Failure      *belay.Failure  `json:"failure,omitempty"`
	RetryAfterMS int64           `json:"retry_after_ms,omitempty"`
	WaitMS       int64           `json:"wait_ms,omitempty"`
	WaitText     string          `json:"wait_text,omitempty"`
	SignalSeen   int64           `json:"signal_seen,omitempty"`
	CostTokens   belay.Cost      `json:"cost_tokens,omitempty"`
	Repeat       bool            `json:"repeat,omitempty"`
	Steps        []StepReport    `json:"steps,omitempty"`
}

// SettleOf converts a settlement for the wire.
func SettleOf(s belay.Settlement) Settle {
	return Settle{
		LeaseOf(s.Lease), s.Op, s.Outcome, s.Output, s.Failure, Millis(s.RetryAfter), Millis(s.Wait), s.WaitText,
		s.SignalSeen, s.CostTokens, s.Repeat, reportsOf(s.Steps),
	}
}

// Settlement converts the settlement from the wire.
func (w *Settle) Settlement() belay.Settlement {
	return belay.Settlement{
		Lease: w.Lease.Lease(), Op: w.Op, Outcome: w.Outcome, Output: w.Output, Failure: w.Failure,
		RetryAfter: Duration(w.RetryAfterMS), Wait: Duration(w.WaitMS), WaitText: w.WaitText,
		SignalSeen: w.SignalSeen, CostTokens: w.CostTokens, Repeat: w.Repeat, Steps: reports(w.Steps),
	}
}

// Append writes a chunk of a log or an artifact.
type Append struct {
	Lease    Lease  `json:"lease"`
	Name     string `json:"name"`
	N        int64  `json:"n"`
	Data     []byte `json:"data"`
	DropFrom int64  `json:"drop_from,omitempty"`
	DropTo   int64  `json:"drop_to,omitempty"`
}

// AppendOf converts a chunk for the wire.
func AppendOf(c belay.Chunk) Append {
	return Append{LeaseOf(c.Lease), c.Name, c.N, c.Data, c.DropFrom, c.DropTo}
}

// Chunk converts the chunk from the wire.
func (w *Append) Chunk() belay.Chunk {
	return belay.Chunk{
		Lease: w.Lease.Lease(), Name: w.Name, N: w.N, Data: w.Data, DropFrom: w.DropFrom, DropTo: w.DropTo,
	}
}

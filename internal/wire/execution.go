package wire

import (
	"encoding/json"
	"time"

	"github.com/belaydev/belay"
)

// Submit asks for an execution. Its policy stands beside the other fields.
type Submit struct {
	ID             belay.ExecutionID `json:"id,omitzero" doc:"The execution's id, made by the client: submitted again under it, the first is found."`
	Workflow       string            `json:"workflow" minLength:"1" maxLength:"200"`
	Version        string            `json:"version,omitempty" maxLength:"200"`
	Input          json.RawMessage   `json:"input,omitempty" doc:"Any JSON; at most 1 MiB."`
	Queue          string            `json:"queue,omitempty" maxLength:"200" doc:"default, unless said otherwise."`
	Priority       int               `json:"priority,omitempty" minimum:"-100" maximum:"100"`
	Labels         map[string]string `json:"labels,omitempty" doc:"For people and filters."`
	WorkerLabels   map[string]string `json:"worker_labels,omitempty" doc:"What a worker must carry."`
	Dispatch       string            `json:"dispatch,omitempty" enum:"external" doc:"external keeps workers away: the execution is locked from outside."`
	DueAt          time.Time         `json:"due_at,omitzero" doc:"When it may first run; now, unless said otherwise."`
	IdempotencyKey string            `json:"idempotency_key,omitempty" maxLength:"200" doc:"A repeat finds the first execution of the same workflow and key. The header Idempotency-Key means the same."`
	Trigger        belay.Trigger     `json:"trigger,omitempty" enum:"manual,parent,cron,event,webhook,queue"`
	Parent         *Lease            `json:"parent,omitempty" doc:"The lease of the run that starts this execution as its child."`
	ParentKey      string            `json:"parent_key,omitempty" maxLength:"200"`
	belay.Policy
}

// SubmitOf is a submission for the wire.
func SubmitOf(s belay.Submission) Submit {
	w := Submit{
		ID: s.ID, Workflow: s.Workflow, Version: s.Version, Input: s.Input, Queue: s.Queue, Priority: s.Priority,
		Labels: s.Labels, WorkerLabels: s.WorkerLabels, DueAt: s.DueAt, IdempotencyKey: s.IdempotencyKey,
		Trigger: s.Trigger, ParentKey: s.ParentKey, Policy: s.Policy,
	}
	if s.External {
		w.Dispatch = "external"
	}
	if s.Parent != nil {
		l := LeaseOf(*s.Parent)
		w.Parent = &l
	}
	return w
}

// Submission is the submission as its noun.
func (w *Submit) Submission() belay.Submission {
	s := belay.Submission{
		ID: w.ID, Workflow: w.Workflow, Version: w.Version, Input: w.Input, Queue: w.Queue, Priority: w.Priority,
		Labels: w.Labels, WorkerLabels: w.WorkerLabels, DueAt: w.DueAt, IdempotencyKey: w.IdempotencyKey,
		Trigger: w.Trigger, ParentKey: w.ParentKey, Policy: w.Policy, External: w.Dispatch == "external",
	}
	if w.Parent != nil {
		l := w.Parent.Lease()
		s.Parent = &l
	}
	return s
}

// Act is the body of an action on an execution. Its operation id is the header
// Idempotency-Key.
type Act struct {
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"Why; it stands in the history."`
	// Actor counts only where nobody had to prove who they are; otherwise it
	// is the name of the key.
	Actor string            `json:"actor,omitempty" maxLength:"200" doc:"Who, where no key says it."`
	Grace belay.Duration    `json:"grace,omitempty" doc:"cancel: how long the run may take to end by itself."`
	Input json.RawMessage   `json:"input,omitempty" doc:"retry, fork: another input; then no finished step counts."`
	UpTo  int64             `json:"up_to,omitempty" minimum:"0" doc:"fork: the last seq whose checkpoints the fork keeps; 0 keeps all."`
	Fork  belay.ExecutionID `json:"fork,omitzero" doc:"fork: the id of the new execution."`
}

// Deliver delivers a signal. Its operation id is the header Idempotency-Key.
type Deliver struct {
	Name    string          `json:"name" minLength:"1" maxLength:"200"`
	Payload json.RawMessage `json:"payload,omitempty" doc:"Any JSON; at most 64 KiB."`
}

// Chunks is a part of a log or artifact.
type Chunks struct {
	Chunks []belay.StoredChunk `json:"chunks"`
}

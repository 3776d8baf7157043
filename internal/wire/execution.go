package wire

import (
	"encoding/json"
	"time"

	"github.com/belaydev/belay"
)

// Submit requests a new execution. The fields of its policy stand beside the other fields.
type Submit struct {
	ID             belay.ExecutionID    `json:"id,omitzero" doc:"The execution's id, made by the client. A repeat with the same id finds the first execution."`
	Workflow       string               `json:"workflow,omitempty" minLength:"1" maxLength:"200" doc:"Required, unless document is set."`
	Version        string               `json:"version,omitempty" maxLength:"200"`
	Document       string               `json:"document,omitempty" minLength:"1" maxLength:"120" doc:"A stored document, as in nightly or nightly@3, instead of a workflow; input is its input. The execution keeps the version."`
	Input          json.RawMessage      `json:"input,omitempty" doc:"Any JSON; at most 1 MiB."`
	Queue          string               `json:"queue,omitempty" maxLength:"200" doc:"Without it the queue is named default."`
	Priority       int                  `json:"priority,omitempty" minimum:"-100" maximum:"100"`
	Labels         map[string]string    `json:"labels,omitempty" doc:"For people and filters."`
	WorkerLabels   map[string]string    `json:"worker_labels,omitempty" doc:"Labels that a worker must have to claim the execution."`
	Dispatch       string               `json:"dispatch,omitempty" enum:"external" doc:"external: workers never claim the execution; a program owns it by a lock."`
	DueAt          time.Time            `json:"due_at,omitzero" doc:"When the execution may first run; without it, at once."`
	IdempotencyKey string               `json:"idempotency_key,omitempty" maxLength:"200" doc:"A repeat with the same workflow and key finds the first execution. The header Idempotency-Key means the same."`
	Idempotency    string               `json:"idempotency,omitempty" enum:"content" doc:"content: while an execution with the same workflow, version, input and policy has not ended, or after it has succeeded, the answer is that execution. Not together with idempotency_key."`
	Trigger        belay.Trigger        `json:"trigger,omitempty" enum:"manual,parent" doc:"manual, or parent for a child. Belay itself sets the other triggers of executions."`
	TriggerPayload json.RawMessage      `json:"trigger_payload,omitempty" doc:"The data that has caused the submission: any JSON; at most 64 KiB. Only GET of this execution returns it. Like the trigger, it does not decide whether two submissions are equal."`
	Concurrency    *belay.Concurrency   `json:"concurrency,omitempty" doc:"A limit: at most max executions of its name are under way at once, each from its first run to its end."`
	Rate           *Rate                `json:"rate,omitempty" doc:"A rate: at most max runs of its name start within the time per."`
	Budget         *belay.Budget        `json:"budget,omitempty" doc:"The budget: when the cost of the execution and its descendants reaches it, they are paused until it is raised. Not for a child."`
	Notify         []belay.Notification `json:"notify,omitempty" maxItems:"10" doc:"HTTP requests that Belay sends when the execution ends. Not for a child."`
	Target         string               `json:"target,omitempty" maxLength:"200" doc:"What the runs call, as in payments:charge. While the target's circuit breaker is open, the execution waits."`
	Requires       *belay.Requires      `json:"requires,omitempty" doc:"A resource and its mode, which the runs use. Runs of one mode share the resource; runs of its other modes wait. preemptible: a run yields at its next step or wait when another mode has waited for the maximum wait."`
	Actor          string               `json:"actor,omitempty" maxLength:"200" doc:"The name of the submitter, if the request needs no key; otherwise created_by is the name of the key."`
	Traceparent    string               `json:"traceparent,omitempty" doc:"The trace of the submitter, as in W3C Trace Context. The header of the same name means the same. It is ignored if it is not valid, and for a child."`
	Tracestate     string               `json:"tracestate,omitempty" doc:"The tracestate that belongs to traceparent."`
	Parent         *Lease               `json:"parent,omitempty" doc:"The lease of the run that starts this execution as its child."`
	ParentKey      string               `json:"parent_key,omitempty" maxLength:"200"`
	PolicyFields
	PolicyMS
}

// SubmitOf converts a submission for the wire.
func SubmitOf(s belay.Submission) Submit {
	w := Submit{
		ID: s.ID, Workflow: s.Workflow, Version: s.Version, Document: s.Document, Input: s.Input,
		Queue: s.Queue, Priority: s.Priority,
		Labels: s.Labels, WorkerLabels: s.WorkerLabels, DueAt: s.DueAt, IdempotencyKey: s.IdempotencyKey,
		Idempotency: string(s.Idempotency),
		Trigger:     s.Trigger, TriggerPayload: s.TriggerPayload, Actor: s.Actor,
		ParentKey: s.ParentKey, PolicyFields: PolicyFields(s.Policy),
		Concurrency: s.Concurrency, Rate: RateOf(s.Rate), Target: s.Target, Requires: s.Requires,
		Budget: s.Budget, Notify: s.Notify,
	}
	if s.External {
		w.Dispatch = "external"
	}
	if s.Parent != nil {
		l := LeaseOf(*s.Parent)
		w.Parent = &l
	} else {
		w.Traceparent, w.Tracestate = s.Trace.Parent, s.Trace.State
	}
	return w
}

// Submission converts the submission from the wire. The error is CodeInvalid if the text and the milliseconds of a
// duration differ.
func (w *Submit) Submission() (belay.Submission, error) {
	policy, err := w.policy(w.PolicyFields)
	gates, wrong := w.gates()
	if err == nil {
		err = wrong
	}
	s := belay.Submission{
		ID: w.ID, Workflow: w.Workflow, Version: w.Version, Document: w.Document, Input: w.Input,
		Queue: w.Queue, Priority: w.Priority,
		Labels: w.Labels, WorkerLabels: w.WorkerLabels, DueAt: w.DueAt, IdempotencyKey: w.IdempotencyKey,
		Idempotency: belay.Idempotency(w.Idempotency),
		Trigger:     w.Trigger, TriggerPayload: w.TriggerPayload, Actor: w.Actor,
		ParentKey: w.ParentKey, Policy: policy, External: w.Dispatch == "external",
		Gates: gates, Budget: w.Budget, Notify: w.Notify,
		Trace: belay.Trace{Parent: w.Traceparent, State: w.Tracestate}.Valid(),
	}
	if w.Parent != nil {
		l := w.Parent.Lease()
		s.Parent = &l
	}
	return s, err
}

// Act is the body of an action on an execution. The header Idempotency-Key has the operation id.
type Act struct {
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"The reason, which the history shows."`
	// Actor counts only if requests need no key; otherwise the actor is the name of the request's
	// key.
	Actor string            `json:"actor,omitempty" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
	Grace belay.Duration    `json:"grace,omitempty" doc:"cancel: how long the run may take to end by itself."`
	Input json.RawMessage   `json:"input,omitempty" doc:"retry, fork: another input; then all steps run again."`
	From  string            `json:"from,omitempty" maxLength:"200" doc:"retry: the results of the step or wait with this name, and all results that were saved after it, are discarded; this work is done again."`
	At    string            `json:"at,omitempty" maxLength:"200" doc:"fork, without up_to: the fork keeps the results that were saved before the step or wait with this name."`
	UpTo  int64             `json:"up_to,omitempty" minimum:"0" doc:"fork: the last seq whose checkpoints the fork keeps; 0 keeps all."`
	Fork  belay.ExecutionID `json:"fork,omitzero" doc:"fork: the id of the new execution."`
	// InputPatch and Generation are for a retry and a requeue.
	InputPatch  json.RawMessage `json:"input_patch,omitempty" doc:"retry, requeue: a JSON Merge Patch (RFC 7396) that changes the present input; then all steps run again."`
	KeepResults bool            `json:"keep_results,omitempty" doc:"retry, requeue with another input: the results of finished steps and the state are kept, as in a retry with the present input."`
	Generation  int             `json:"generation,omitempty" minimum:"0" doc:"retry, requeue: the generation whose failure the caller has seen; if it was reopened or resolved since, the action is refused."`
	// Budget is for the action budget.
	Budget *belay.Budget `json:"budget,omitempty" doc:"budget: the new budget."`

	GraceMS int64 `json:"grace_ms,omitempty" minimum:"0" doc:"grace in milliseconds."`
}

// Repair is the body of POST /v1/executions/{id}/repair.
type Repair struct {
	From       []string         `json:"from,omitempty" maxItems:"1000" doc:"Tasks that run again, with all tasks that depend on them."`
	Skip       []belay.TaskSkip `json:"skip,omitempty" maxItems:"1000" doc:"Tasks, or items such as build[7], that do not run and count as succeeded."`
	Reason     string           `json:"reason,omitempty" maxLength:"200" doc:"The reason, which the history shows."`
	Actor      string           `json:"actor,omitempty" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
	Generation int              `json:"generation,omitempty" minimum:"0" doc:"The generation whose failure the caller has seen; if it was reopened since, the repair is refused."`
}

// Grant returns the grace period of a cancel. The error is CodeInvalid if the text and the
// milliseconds of the grace period differ.
func (w *Act) Grant() (belay.Duration, error) {
	d := w.Grace
	err := eachDuration(millis{"grace", &d, w.GraceMS})
	return d, err
}

// Deliver delivers a signal. The header Idempotency-Key has the operation id.
type Deliver struct {
	Name    string          `json:"name" minLength:"1" maxLength:"200"`
	Payload json.RawMessage `json:"payload,omitempty" doc:"Any JSON; at most 64 KiB."`
	Actor   string          `json:"actor,omitempty" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
}

// Chunks is a part of a log or artifact.
type Chunks struct {
	Chunks []belay.StoredChunk `json:"chunks"`
}

package belay

import (
	"encoding/json"
	"time"
)

// SubmitOption sets a field of a Submission. Calls that make the Submission themselves, such as
// workflow.Start, take such options.
type SubmitOption func(*Submission)

// WithID chooses the id of the execution, which is also the id of the submit operation: if a
// program sends a second submission with the same id, the Backend creates nothing and returns the
// first execution.
func WithID(id ExecutionID) SubmitOption {
	return func(s *Submission) { s.ID = id }
}

// IdempotencyKey prevents a second execution: a submission with the workflow and the key of an
// earlier submission creates nothing and returns the earlier execution. The key has this effect for
// as long as the store keeps the earlier execution, and for one day more. If the two submissions
// have different bodies, the Backend refuses the later submission with CodeIdempotencyMismatch. The
// key has at most MaxName bytes.
func IdempotencyKey(key string) SubmitOption {
	return func(s *Submission) { s.IdempotencyKey = key }
}

// ContentIdempotency prevents a second execution of the same content: the workflow, its version, the
// input and the policy. See [IdempotencyByContent]. It excludes [IdempotencyKey], and the Backend
// refuses it for children, which their parents recognize by their names.
func ContentIdempotency() SubmitOption {
	return func(s *Submission) { s.Idempotency = IdempotencyByContent }
}

// Queue names the queue of the execution. Without this option the queue is "default".
func Queue(name string) SubmitOption {
	return func(s *Submission) { s.Queue = name }
}

// Priority sets the priority, between -MaxPriority and MaxPriority. Workers claim an execution of
// higher priority first.
func Priority(p int) SubmitOption {
	return func(s *Submission) { s.Priority = p }
}

// Version restricts the execution to workers that registered this version of the workflow.
func Version(v string) SubmitOption {
	return func(s *Submission) { s.Version = v }
}

// Label adds a label, for people and for filters. It does not affect which worker claims the
// execution.
func Label(key, value string) SubmitOption {
	return func(s *Submission) { s.Labels = with(s.Labels, key, value) }
}

// WorkerLabel restricts the execution to workers that have this label.
func WorkerLabel(key, value string) SubmitOption {
	return func(s *Submission) { s.WorkerLabels = with(s.WorkerLabels, key, value) }
}

// DueAt sets the earliest time at which the execution may run, by the store's clock.
func DueAt(t time.Time) SubmitOption {
	return func(s *Submission) { s.DueAt = t }
}

// WithPolicy sets the policy of the execution: its retries, timeouts and other limits.
func WithPolicy(p Policy) SubmitOption {
	return func(s *Submission) { s.Policy = p }
}

// WithGates sets the gates of the execution: a limit ([Concurrency]), a rate ([Rate]), a target and a
// resource ([Requires]).
// The Backend refuses the submission with CodeConflict if it names a limit or a rate with other
// numbers than the first submission that named it. The Backend also refuses a child that names a
// limit which one of its ancestors names, because the child would wait for the ancestor, and the
// ancestor for the child.
//
// The gates of a child are not part of its identity: if a later run of the parent starts the child
// with other gates, because the code has changed, the child keeps the gates with which it was started
// first.
func WithGates(g Gates) SubmitOption {
	return func(s *Submission) { s.Gates = g }
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = make(map[string]string, 1)
	}
	m[key] = value
	return m
}

// WithBudget sets the budget of the execution, in tokens: see [Budget]. A child has none.
func WithBudget(cost Cost) SubmitOption {
	return func(s *Submission) { s.Budget = &Budget{Cost: cost} }
}

// WithTriggerPayload keeps the data that has caused the submission, such as the body of a request: JSON of at most
// MaxTriggerPayload bytes. People read the payload; a run gets only the input.
func WithTriggerPayload(payload json.RawMessage) SubmitOption {
	return func(s *Submission) { s.TriggerPayload = payload }
}

// WithActor names the person or program that submits the execution. A server that requires API keys uses
// the name of the key instead.
func WithActor(name string) SubmitOption {
	return func(s *Submission) { s.Actor = name }
}

// WithTrace makes the spans of the execution belong to the trace of the submitter.
func WithTrace(t Trace) SubmitOption {
	return func(s *Submission) { s.Trace = t }
}

// Notify adds notifications about the end of the execution: see [Notification].
func Notify(n ...Notification) SubmitOption {
	return func(s *Submission) { s.Notify = append(s.Notify, n...) }
}

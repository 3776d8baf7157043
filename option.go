package belay

import "time"

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
// earlier submission creates nothing and returns the earlier execution. This holds for as long as
// the store keeps that execution and one day more. If the two submissions have different bodies,
// the Backend refuses the later submission with CodeIdempotencyMismatch. The key has at most
// MaxName bytes.
func IdempotencyKey(key string) SubmitOption {
	return func(s *Submission) { s.IdempotencyKey = key }
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

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = make(map[string]string, 1)
	}
	m[key] = value
	return m
}

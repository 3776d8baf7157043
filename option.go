package belay

import "time"

// SubmitOption sets something of a Submission that the call it is given to does
// not ask for by itself.
type SubmitOption func(*Submission)

// WithID chooses the execution's id, which is the operation's too: the same
// submission under the same id finds the first.
func WithID(id ExecutionID) SubmitOption {
	return func(s *Submission) { s.ID = id }
}

// IdempotencyKey makes a repeat find the first execution of the same workflow
// and key, for as long as that is kept and a day more. With another body the
// repeat is refused with CodeIdempotencyMismatch. At most MaxName bytes.
func IdempotencyKey(key string) SubmitOption {
	return func(s *Submission) { s.IdempotencyKey = key }
}

// Queue names the queue; without it, it is "default".
func Queue(name string) SubmitOption {
	return func(s *Submission) { s.Queue = name }
}

// Priority is between -MaxPriority and MaxPriority; the higher goes first.
func Priority(p int) SubmitOption {
	return func(s *Submission) { s.Priority = p }
}

// Version asks for workers that registered this version of the workflow.
func Version(v string) SubmitOption {
	return func(s *Submission) { s.Version = v }
}

// Label adds a label for people and filters; it routes nothing.
func Label(key, value string) SubmitOption {
	return func(s *Submission) { s.Labels = with(s.Labels, key, value) }
}

// WorkerLabel asks for workers that carry the label.
func WorkerLabel(key, value string) SubmitOption {
	return func(s *Submission) { s.WorkerLabels = with(s.WorkerLabels, key, value) }
}

// DueAt is when the execution may first run, by the store's clock.
func DueAt(t time.Time) SubmitOption {
	return func(s *Submission) { s.DueAt = t }
}

// WithPolicy decides about failures and limits in place of the defaults.
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

package machine

import (
	"encoding/json"
	"time"

	"github.com/belaydev/belay"
)

// A condition says why a session that has not ended claims no executions, and where its messages go. A
// worker may be both cordoned and unhealthy; when one of these states ends, the condition keeps the
// details of the other state. Stores keep the condition as JSON in the column of [Worker.Why].
type condition struct {
	Cordoned *belay.Cordoned `json:"cordoned,omitempty"`
	// UnhealthySince is when the health probes began to fail; HealthError is the error of the last
	// probe.
	UnhealthySince time.Time `json:"unhealthy_since,omitzero"`
	HealthError    string    `json:"health_error,omitempty"`
	// Mailbox is the queue in the message broker from which the worker gets its messages.
	Mailbox string `json:"mailbox,omitempty"`
}

// condition decodes Why. It returns an empty condition if the session has ended or if Why cannot be
// read.
func (w *Worker) condition() condition {
	var c condition
	if w.State.Ended() || w.Why == "" || json.Unmarshal([]byte(w.Why), &c) != nil {
		return condition{}
	}
	return c
}

// why encodes the condition as the text of [Worker.Why]; an empty condition becomes an empty text.
func (c condition) why() string {
	if c == (condition{}) {
		return ""
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // times and short texts can always be encoded
	}
	return string(b)
}

// cordoned returns since when the session is cordoned, by which actor and why; nil if the session
// is not cordoned. If Why cannot be read, cordoned returns a value without these details, because
// the state of the session alone decides whether it is cordoned.
func (w *Worker) cordoned() *belay.Cordoned {
	if w.State != belay.WorkerCordoned {
		return nil
	}
	if c := w.condition().Cordoned; c != nil {
		return c
	}
	return new(belay.Cordoned)
}

// uncordoned returns the state that a session has without its cordon: unhealthy or open. The
// session has not ended and is not draining.
func (w *Worker) uncordoned() belay.WorkerState {
	if _, failure := w.Failing(); failure != "" {
		return belay.WorkerUnhealthy
	}
	return belay.WorkerOpen
}

// Failing returns the time since which the health probes of a session that has not ended fail, and
// the error of the last failed probe. The error is empty if the last probe has succeeded.
func (w *Worker) Failing() (since Time, failure string) {
	c := w.condition()
	if c.HealthError == "" {
		return 0, ""
	}
	return At(c.UnhealthySince), c.HealthError
}

// Mailbox returns the queue in the message broker from which the worker gets its messages; empty if the worker
// gets none, or if its session has ended.
func (w *Worker) Mailbox() string { return w.condition().Mailbox }

package machine

import (
	"encoding/json"
	"time"

	"github.com/belaydev/belay"
)

// A condition says why a session that has not ended claims nothing. A worker may be both cordoned and
// unhealthy; the end of the one part keeps the other. Stores keep the condition as JSON in the column
// of [Worker.Why].
type condition struct {
	Cordoned *belay.Cordoned `json:"cordoned,omitempty"`
	// UnhealthySince is when the health probes began to fail; HealthError is the error of the last one.
	UnhealthySince time.Time `json:"unhealthy_since,omitzero"`
	HealthError    string    `json:"health_error,omitempty"`
}

// condition returns the parts of Why; none if the session has ended or if Why cannot be read.
func (w *Worker) condition() condition {
	var c condition
	if w.State.Ended() || w.Why == "" || json.Unmarshal([]byte(w.Why), &c) != nil {
		return condition{}
	}
	return c
}

// why encodes the condition; empty if it has no parts.
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

// cordoned returns since when the session is cordoned, by whom and why; nil if it is not cordoned. If
// the stored text cannot be read, the answer is without these details, since the state is what counts.
func (w *Worker) cordoned() *belay.Cordoned {
	if w.State != belay.WorkerCordoned {
		return nil
	}
	if c := w.condition().Cordoned; c != nil {
		return c
	}
	return new(belay.Cordoned)
}

// uncordoned is the state of a session that has not ended, is not draining and is not cordoned.
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

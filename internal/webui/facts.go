package webui

import (
	"maps"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// stateOf returns the state of an execution, or "cancelling" or "pausing" while an action takes
// effect.
func stateOf(e *belay.Execution) state {
	s := state{Word: e.State.String(), Class: e.State.String()}
	switch {
	case !e.CancelBy.IsZero() && !e.State.Terminal():
		s.Word = "cancelling"
	case e.PauseRequested:
		s.Word = "pausing"
	}
	return s
}

// about returns the fact about an execution that a list shows: its error, the reason why it waits,
// the command that it runs, or the first line of its prompt.
func about(e *belay.Execution) string {
	switch {
	case e.Error != nil:
		return line(e.Error.Message)
	case e.Reason != nil && e.Reason.Text != "":
		return line(e.Reason.Code + ": " + e.Reason.Text)
	case e.Reason != nil:
		return line(e.Reason.Code)
	}
	if e.Document() != "" {
		return e.Workflow
	}
	for _, k := range slices.Sorted(maps.Keys(e.Labels)) {
		// belay run sets the label command to its command, and a job of an agent has the first line of its prompt
		if k == "command" || k == "prompt" && isJob(e) {
			return line(e.Labels[k])
		}
	}
	return ""
}

// took returns how long an execution ran, or has run so far.
func took(e *belay.Execution, now time.Time) string {
	switch {
	case e.StartedAt.IsZero():
		return "–"
	case e.FinishedAt.IsZero():
		return short(now.Sub(e.StartedAt))
	}
	return short(e.FinishedAt.Sub(e.StartedAt))
}

// owner is the present owner of an execution.
type owner struct {
	Name, ID  string
	Where     string // process and host
	External  bool
	Heartbeat *moment
	// Left is the time until the lease ends if no further heartbeat comes. Overdue says that the
	// lease has ended and that the engine is about to take the execution back.
	Left    string
	Overdue bool
	TTL     string
	// Part and Seconds are for the animated countdown to the end of the lease: Part is the rest of
	// the TTL in thousandths, and Seconds is the same rest in seconds.
	Part    int
	Seconds float64
}

// ownerOf finds the owner among the sessions; nil if there is none.
func ownerOf(e *belay.Execution, sessions []belay.Worker, now time.Time) *owner {
	if e.Worker.IsZero() || e.State.Terminal() {
		return nil
	}
	o := &owner{ID: e.Worker.String()}
	i := slices.IndexFunc(sessions, func(w belay.Worker) bool { return w.ID == e.Worker })
	if i < 0 {
		return o
	}
	w := &sessions[i]
	left := w.ExpiresAt.Sub(now)
	o.Name, o.External, o.Heartbeat, o.TTL = line(w.Name), w.External, when(w.HeartbeatAt, now), short(w.TTL.D())
	o.Where = place(w.Process)
	o.Left, o.Overdue = short(left), left <= 0 || w.State.Ended()
	if !o.Overdue && w.TTL > 0 {
		o.Part = min(1000, int(1000*left/w.TTL.D()))
		o.Seconds = left.Seconds()
	}
	return o
}

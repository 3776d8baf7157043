package engine

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// resting explains an execution that is not due, or that a worker has yet to accept.
func (x *explainer) resting(e *machine.Execution) {
	r := x.view.Reason
	due := "as soon as a worker claims it"
	if e.DueAt > x.now {
		due = "in " + ago(e.DueAt, x.now).String()
	}
	switch {
	case e.State == belay.Paused:
		x.pausedByPerson(e)
		return
	case e.State == belay.Scheduled:
		x.scheduled(e)
		return
	case r.Code == "timer":
		x.out.Summary = "It sleeps; it continues " + due + "."
		x.since(e)
		x.fact("its wait: %s", r.Text)
		x.fact("no command ends a sleep early; `belay cancel %s` ends the execution", e.ID)
	case r.Code == "signal":
		x.signal(e)
	case r.Code == "child":
		x.out.Summary = fmt.Sprintf("It waits for %s%s.", r.Text, x.childState())
		x.since(e)
		x.timeout(e, "the child has ended")
	case r.Code == "delayed":
		x.out.Summary = "It was submitted to start later: it is due " + due + "."
		x.fact("it was submitted %s ago", ago(x.now, e.CreatedAt))
		x.fact("no command starts it earlier; `belay cancel %s` ends it, so that you can submit it anew", e.ID)
	case r.Code == "retry":
		x.out.Summary = "Its last run failed; its next attempt starts " + due + "."
		x.since(e)
		x.fact("%s", r.Text)
		x.fact("the delay grows with each attempt, so that a target that is down can recover; no command is needed")
		x.fact("`belay get %s` shows the errors of its runs; `belay cancel %s` ends it", e.ID, e.ID)
	default:
		x.out.Summary = fmt.Sprintf("It is %s (%s); it continues %s.", e.State, r.Code, due)
		x.since(e)
		if r.Text != "" {
			x.fact("%s", r.Text)
		}
	}
	x.claimable(e)
}

// childState says in which state the only child is that has not ended; "" if there are several.
func (x *explainer) childState() string {
	if len(x.children) != 1 {
		return ""
	}
	c := x.children[0].Execution
	text := ", which is " + c.State.String()
	if c.ReasonText != "" {
		text += " for " + c.ReasonText
	}
	return text
}

// pausedByPerson explains an execution that is paused by an operator or because its budget is spent.
func (x *explainer) pausedByPerson(e *machine.Execution) {
	if !e.SpentBy.IsZero() {
		x.out.Summary = "It is paused because its budget is spent: " + x.view.Reason.Text + "."
		x.since(e)
		x.fact("`belay budget %s --cost TOKENS` raises the budget; then this execution continues", e.SpentBy)
		x.fact("`belay cancel %s` ends it", e.ID)
		x.remedy(belay.RemedyAction(belay.ActionBudget), belay.RemedyExecution, e.SpentBy.String(), "Change the budget",
			"continues the execution, if the new budget is higher than the cost so far")
		x.self(belay.ActionCancel, "Cancel", "ends it")
		return
	}
	x.out.Summary = fmt.Sprintf("It is paused; before that it was %s.", e.PausedFrom)
	x.deed("pause", "paused")
	x.fact("it stays paused until a person resumes it: `belay resume %s`", e.ID)
	if e.ReasonText == "" {
		x.self(belay.ActionResume, "Resume", "ends the pause")
	} else {
		x.self(belay.ActionResume, "Resume", "ends the pause; its wait goes on, for %s", e.ReasonText)
	}
	if e.ReasonText != "" {
		x.fact("its wait before the pause: %s", e.ReasonText)
	}
	x.unread()
}

// scheduled explains an execution that was assigned to a worker, which has yet to accept it.
func (x *explainer) scheduled(e *machine.Execution) {
	x.out.Summary = fmt.Sprintf("It was assigned to a worker %s ago, and the worker has yet to accept it.",
		ago(x.now, e.ScheduledAt))
	for _, w := range x.workers {
		x.fact("the worker is %q (%s); its last heartbeat was %s ago", w.Spec.Name, w.ID, ago(x.now, w.HeartbeatAt))
		if queue := w.Mailbox(); queue != "" {
			x.fact("its message is for the queue %s in RabbitMQ; if the message was lost, the reply to the worker's "+
				"next heartbeat offers the execution", queue)
		}
	}
	if e.CheckAt > x.now {
		x.fact("if the worker does not accept it within %s, it is taken back", ago(e.CheckAt, x.now))
	}
	x.fact("`belay lock steal %s --reason WHY` takes it back now, and another worker claims it", e.ID)
	x.self(belay.ActionSteal, "Take it from the worker", "takes it back now, and another worker claims it")
}

// signal explains an execution that waits for a signal.
func (x *explainer) signal(e *machine.Execution) {
	text := x.view.Reason.Text
	if text == "" {
		text = "a signal, or the end of a child"
	}
	x.out.Summary = fmt.Sprintf("It waits for %s.", text)
	x.since(e)
	x.timeout(e, "the signal arrives")
	if name, ok := signalName(text); ok {
		if strings.HasPrefix(name, "-") {
			x.fact("`belay signal %s -- %s` sends this signal", e.ID, machine.ShellWord(name))
		} else {
			x.fact("`belay signal %s %s` sends this signal", e.ID, machine.ShellWord(name))
		}
		x.out.Remedies = append(x.out.Remedies, belay.Remedy{Do: belay.RemedySignal, Of: belay.RemedyExecution,
			ID: e.ID.String(), Signal: name, Title: fmt.Sprintf("Send %q", name),
			Text: "sends the signal for which it waits: in the place of its usual sender"})
	}
	x.unread()
}

// signalName returns the name of the first signal in the description of a wait, such as
// signal "approved".
func signalName(text string) (string, bool) {
	_, after, ok := strings.Cut(text, `signal "`)
	if !ok {
		return "", false
	}
	quoted, err := strconv.QuotedPrefix(`"` + after)
	if err != nil {
		return "", false
	}
	name, err := strconv.Unquote(quoted)
	return name, err == nil && name != ""
}

// timeout says when the wait of an execution ends by itself.
func (x *explainer) timeout(e *machine.Execution, over string) {
	if e.DueAt == 0 {
		x.fact("this wait has no timeout: the execution continues only when %s; `belay cancel %s` ends it", over, e.ID)
	} else {
		x.fact("the execution continues when %s, or in %s by the timeout of the wait", over, ago(e.DueAt, x.now))
	}
}

// since says when the present wait of the execution began, which is when its last run ended.
func (x *explainer) since(e *machine.Execution) {
	for _, r := range x.rec.Runs {
		if r.Token == e.Token && r.EndedAt != 0 {
			x.fact("its last run ended %s ago; it has waited since", ago(x.now, r.EndedAt))
		}
	}
}

// deed says who did something to the execution last, when and why. kind is the kind of the action in
// the history.
func (x *explainer) deed(kind, verb string) {
	for i := len(x.deeds) - 1; i >= 0; i-- {
		if d := x.deeds[i]; d.Kind == kind {
			x.fact("%s", deed(d.Actor, verb, d.At.Time(), d.Reason, x.now))
			return
		}
	}
}

// unread names the signals that the execution has received but does not wait for, because the
// sender may have mistyped the name.
func (x *explainer) unread() {
	count := make(map[string]int)
	var names []string
	for _, s := range x.signals {
		if s.Child.IsZero() && s.ConsumedBy == 0 {
			if count[s.Name]++; count[s.Name] == 1 {
				names = append(names, s.Name)
			}
		}
	}
	for _, name := range names[:min(len(names), maxChildren)] {
		x.fact("signal %q (received: %d) was not consumed: the execution does not wait for a signal of that name",
			name, count[name])
	}
}

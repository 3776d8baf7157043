package engine

import (
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// otherMode says why a resource does not let the explained execution through. It adds facts: which runs use
// the resource, when its mode may change, and which execution changes it.
func (x *explainer) otherMode(g *belay.GateDetail) string {
	r, e := g.Resource, x.rec.Execution
	name, mode := fmt.Sprintf("resource %q", g.Name), e.Gates.Requires.Mode
	switch {
	case r.Swapping != nil:
		x.swapping(r)
		return fmt.Sprintf("the mode of %s changes to %q, and this execution requires the mode %q", name, r.Swapping.To,
			mode)
	case r.State == belay.ResourceFailed:
		x.fact("the last change of the mode failed: %s", r.Error)
		if !r.RetryAt.IsZero() {
			x.fact("the next change begins in %s; %s failed in a row", ago(machine.At(r.RetryAt), x.now),
				plural(r.Failures, "change"))
		}
		x.fact("`belay runs ls --workflow %s` shows the executions that change the mode", machine.ShellWord(swapWorkflow(r)))
		x.fact("when the cause is repaired, `belay resources set %s` with its terms makes it try again at once",
			machine.GateWord(g.ID))
		return fmt.Sprintf("the mode of %s could not be changed", name)
	case r.Mode == mode && r.State != belay.ResourceDraining && r.Wanted == "":
		x.fact("the resource lets executions through in the order of its line, as fast as workers start them")
		return fmt.Sprintf("%s has its mode, and others come before this execution", name)
	case r.Mode == mode && (r.Wanted == "" || r.Wanted == mode):
		x.users(g)
		x.fact("when no run uses the resource any more, the workflow %q loads the mode again", swapWorkflow(r))
		return fmt.Sprintf("the workflow that loads the modes of %s has changed since it got the mode %q", name, mode)
	case r.Mode == mode:
		x.users(g)
		x.fact("the mode %q has waited for the maximum wait of %s, so no further run of the mode %q starts", r.Wanted,
			brief(r.MaxWait.D()), mode)
		return fmt.Sprintf("%s is about to change from the mode %q to the mode %q", name, mode, r.Wanted)
	case r.Mode == "":
		x.turn(g, mode)
		return fmt.Sprintf("%s has no mode yet, and this execution requires the mode %q", name, mode)
	}
	x.users(g)
	x.turn(g, mode)
	return fmt.Sprintf("%s is in the mode %q, and this execution requires the mode %q", name, r.Mode, mode)
}

func swapWorkflow(r *belay.GateResourceInfo) string {
	if r.Swap == nil {
		return ""
	}
	return r.Swap.Workflow
}

// users names the runs that use a resource.
func (x *explainer) users(g *belay.GateDetail) {
	for _, h := range first(g.Holders) {
		x.fact("%s uses the resource%s", h, x.doing(h))
		x.look(h, "Open "+x.nameOf(h), "shows what this execution does, which uses the resource")
	}
	if more := g.Held - len(first(g.Holders)); more > 0 {
		x.fact("%d more use the resource", more)
	}
}

// turn says when a resource changes to the mode, as far as that is known.
func (x *explainer) turn(g *belay.GateDetail, mode string) {
	r := g.Resource
	for i, w := range r.Waiting {
		if w.Mode != mode {
			continue
		}
		if i > 0 {
			x.fact("executions of %s have waited longer; their modes come first", plural(i, "other mode"))
		}
		if !w.RetryAt.IsZero() {
			x.fact("the last change to the mode %q failed; the next one begins in %s at the earliest", mode,
				ago(machine.At(w.RetryAt), x.now))
			break
		}
		switch at := w.Since.Add(r.MaxWait.D()); {
		case r.State == belay.ResourceDraining:
			x.fact("no further run of the mode %q starts; the mode changes when the runs that use it have ended",
				r.Mode)
		case g.Held == 0:
			x.fact("no run uses the resource: its mode changes as soon as its minimum residency of %s is over",
				brief(r.MinResidency.D()))
		default:
			x.fact("the mode changes when no run uses the resource; after a further %s no run of the mode %q starts "+
				"any more",
				ago(machine.At(at), x.now), r.Mode)
		}
	}
	x.fact("no command is needed; `belay resources set %s --max-wait TIME` changes the maximum wait, now %s",
		machine.GateWord(g.ID), brief(r.MaxWait.D()))
}

// swapping describes the execution that changes the mode of a resource.
func (x *explainer) swapping(r *belay.GateResourceInfo) {
	s := r.Swapping
	text := ""
	for _, h := range x.holders {
		if h.Execution.ID == s.Execution {
			text = x.doing(s.Execution)
			if text == "" {
				text = ": it is " + h.Execution.State.String()
			}
		}
	}
	x.fact("%s has been changing the mode for %s%s", s.Execution, ago(x.now, machine.At(s.Since)), text)
	x.fact("`belay explain %s` says why it has not ended yet", s.Execution)
	x.look(s.Execution, "Open the change of the mode", "shows why it has not ended")
}

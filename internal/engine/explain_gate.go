package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// readGates reads the gates that keep owners from an execution: first the gate at which it waits, then
// the other shut gates that it would meet. If the execution waits at no gate but is due, these are the
// gates that its next claim would find shut.
func (r *Reader) readGates(ctx context.Context, x *explainer) error {
	e := x.rec.Execution
	due := e.State == belay.Pending || e.State == belay.Waiting
	if !due || e.Gate == "" && (e.DueAt == 0 || e.DueAt > x.now) {
		return nil
	}
	ids := e.Asks()
	at := e.WaitsAt()
	if at != "" {
		ids = slices.Insert(slices.DeleteFunc(ids, func(id belay.GateID) bool { return id == at }), 0, at)
	}
	for _, id := range ids {
		g, stops, err := r.stops(ctx, e, id, x.now)
		if err != nil {
			return err
		}
		if stops || id == at {
			x.gates = append(x.gates, g)
		}
	}
	if len(x.gates) == 0 {
		return nil
	}
	uses := first(x.gates[0].Holders)
	if g := x.gates[0].Resource; g != nil && g.Swapping != nil {
		uses = []belay.ExecutionID{g.Swapping.Execution}
	}
	for _, id := range uses {
		rec, err := r.store.Read(ctx, store.Read{Execution: id})
		if belay.CodeOf(err) == belay.CodeNotFound { // the gate was deleted since the list was read
			continue
		}
		if err != nil {
			return err
		}
		x.holders = append(x.holders, rec)
	}
	return nil
}

// stops reads a gate that a claim of the execution must pass, and reports whether the gate stops
// the claim.
func (r *Reader) stops(ctx context.Context, e *machine.Execution, id belay.GateID,
	now machine.Time) (g belay.GateDetail, stops bool, err error) {
	found, err := r.store.Query(ctx, store.Query{Of: store.OneGate, Gate: id, Limit: gateNames})
	if err != nil {
		return g, false, err
	}
	row := &found.Gate
	g.Holders, g.Line = row.Holders, row.Heads
	if id == e.WaitsAt() {
		if g.GateInfo, err = machine.GateView(id, row.Object, &row.Count, now); err == nil && e.Gate != id {
			found, err = r.store.Query(ctx, store.Query{Of: store.OneGate, Gate: e.Gate, Limit: gateNames})
			g.Line, g.Waiting = found.Gate.Heads, found.Gate.Count.Line
		}
		return g, true, err
	}
	g.GateInfo, stops, err = machine.Stops(e, id, row.Object, &row.Count, now)
	return g, stops, err
}

// gated explains an execution that no owner can take because of a gate.
func (x *explainer) gated() {
	e, g := x.rec.Execution, &x.gates[0]
	x.out.Summary = "It waits, since " + x.shut(g) + "."
	x.place(e, g)
	x.fact("`belay gates get %s` shows the gate", machine.ShellWord(string(g.ID)))
	x.remedy(belay.RemedyLook, belay.RemedyGate, string(g.ID), "Look at "+named(g), "shows why it is shut, and which "+
		"executions have passed it or wait")
	for i := range x.gates[1:] {
		other := &x.gates[1+i]
		n := len(x.out.Facts)
		why := x.shut(other)
		x.out.Facts = slices.Insert(x.out.Facts, n, "when this gate lets it through, it waits again, since "+why)
	}
	if e.DueAt != 0 && e.DueAt < x.now {
		x.fact("it has been due for %s; this wait uses up no attempt", ago(x.now, e.DueSince()))
	}
	if e.External {
		x.fact("no worker runs it: a program that locks it becomes its owner, and a lock is refused until then")
	}
	x.claimable(e)
}

// shut says why a gate is shut, and adds facts: which operator shut it, since when, when it will
// open, and the command that opens it.
func (x *explainer) shut(g *belay.GateDetail) string {
	name := fmt.Sprintf("%s %q", g.Kind, g.Name)
	switch {
	case g.Pause != nil:
		x.paused(g)
		return name + " is paused"
	case g.Breaker != nil && g.Breaker.State != string(machine.BreakerClosed):
		x.broken(g)
		return fmt.Sprintf("the circuit breaker of %s is %s", name, strings.ReplaceAll(g.Breaker.State, "_", "-"))
	case g.Resource != nil:
		return x.otherMode(g)
	case g.Limit != nil && g.Held >= g.Limit.Max:
		x.full(g)
		return fmt.Sprintf("%s is full: %d of %s %s taken", partOf(belay.GateLimit, g), g.Held,
			plural(g.Limit.Max, "place"), isAre(g.Held))
	case g.Rate != nil && g.Rate.Tokens == 0:
		x.spent(g)
		return fmt.Sprintf("%s is used up: it lets %s start per %s", partOf(belay.GateRate, g),
			plural(g.Rate.Max, "run"), brief(g.Rate.Per.D()))
	default:
		x.fact("the engine checks the gate at least once a second, so no command is needed")
		return name + ", which is open, lets executions through in the order of its line"
	}
}

// partOf names the limit or the rate of a gate.
func partOf(part string, g *belay.GateDetail) string {
	if g.Kind == part {
		return fmt.Sprintf("%s %q", part, g.Name)
	}
	return fmt.Sprintf("the %s of %s %q", part, g.Kind, g.Name)
}

// place says how many executions come before this one at the gate.
func (x *explainer) place(e *machine.Execution, g *belay.GateDetail) {
	switch n := slices.Index(g.Line, e.ID); {
	case n >= 0:
		x.fact("its place in the line is %d of %s", n+1, many(g.Waiting))
	case e.Gate != "":
		x.fact("more than %d executions are before it in the line", len(g.Line))
	case g.Kind == belay.GateQueue || g.Kind == belay.GateWorkflow:
		x.fact("a %s has no line: when it opens, higher priorities start first, and of one priority those that "+
			"have been due for longest", g.Kind)
	case g.Waiting == 0:
		x.fact("its line is empty: the next claim of a worker puts this execution first")
	default:
		x.fact("it is not in the line yet: the next claim of a worker puts it behind the %s that wait", many(g.Waiting))
	}
}

func (x *explainer) paused(g *belay.GateDetail) {
	x.fact("%s", deed(g.Pause.By, "paused", g.Pause.Since, g.Pause.Reason, x.now))
	if g.Pause.Until.IsZero() {
		x.fact("the pause has no end: it lasts until a person ends it")
	} else {
		x.fact("the pause ends by itself in %s", ago(machine.At(g.Pause.Until), x.now))
	}
	x.fact("`belay resume --%s %s` ends the pause now", g.Kind, machine.ShellWord(g.Name))
	x.gate(belay.GateResume, g, "Resume "+named(g), "ends the pause for all executions that wait here")
}

// deed describes an operator's action on a gate: the operator, the time and the reason.
func deed(by, verb string, at time.Time, reason string, now machine.Time) string {
	text := fmt.Sprintf("%s %s it %s ago", cmp.Or(by, "an operator"), verb, ago(now, machine.At(at)))
	if reason != "" {
		text += ": " + reason
	}
	return text
}

func (x *explainer) broken(g *belay.GateDetail) {
	b, name := g.Breaker, machine.GateWord(g.ID)
	switch {
	case b.Forced:
		x.fact("%s", deed(b.By, "opened", b.OpenedAt, b.Reason, x.now))
		x.fact("it stays open until a person changes it")
		x.fact("`belay breakers auto %s` closes it and lets it work by itself again", name)
		x.gate(belay.GateAutomatic, g, "Close the breaker of "+named(g),
			"lets executions through again; from then on the breaker opens and closes by itself")
		return
	case b.State == string(machine.BreakerHalfOpen):
		x.fact("it opened because runs failed; now one run after the other tries the target, and %d of them %s "+
			"succeeded", b.SuccessCount, hasHave(b.SuccessCount))
		if !b.NextRetryAt.IsZero() {
			x.fact("if the run that tries the target does not end within %s, another one tries it beside the first",
				ago(machine.At(b.NextRetryAt), x.now))
		}
		x.fact("no command is needed: it closes when enough runs have succeeded, and opens again if one of them fails")
		return
	default:
		x.fact("it opened by itself %s ago, after %d failures; the last was %s ago", ago(x.now, machine.At(b.OpenedAt)),
			b.FailureCount, ago(x.now, machine.At(b.LastFailedAt)))
		x.fact("in %s it lets one run after the other try the target, and closes when enough of them have succeeded",
			ago(machine.At(b.NextRetryAt), x.now))
	}
	x.fact("find out whether the target works; if it does, `belay breakers close %s` lets all runs through, until "+
		"`belay breakers auto %s`", name, name)
	x.gate(belay.GateForceClosed, g, "Force the breaker closed", "lets all runs through: check that the target works "+
		"before")
}

// gate adds an action on a gate.
func (x *explainer) gate(do belay.GateAction, g *belay.GateDetail, title, text string) {
	x.remedy(belay.RemedyAction(do), belay.RemedyGate, string(g.ID), title, "%s", text)
}

// named names a gate, as in queue "mail".
func named(g *belay.GateDetail) string { return fmt.Sprintf("%s %q", g.Kind, g.Name) }

// full says who set a limit whose places are taken, which executions have the places, and which
// command changes the limit.
func (x *explainer) full(g *belay.GateDetail) {
	unit := "execution"
	if g.Kind != belay.GateLimit {
		unit = "run"
	}
	for _, h := range first(g.Holders) {
		x.fact("%s has a place%s", h, x.doing(h))
		x.look(h, "Open "+x.nameOf(h), "shows what this execution does, which has a place")
	}
	if more := g.Held - len(first(g.Holders)); more > 0 {
		x.fact("%d more have a place", more)
	}
	x.fact("a place becomes free when one of these %ss ends; `belay explain ID` says why one of them has not ended yet",
		unit)
	x.gate(belay.GateSetLimit, g, "Change "+named(g), "allows more at a time")
	switch name := machine.GateWord(g.ID); g.Limit.Set {
	case 0:
		x.fact("the limit is %d, as the executions say that name it; `belay limits set %s MAX` allows more", g.Limit.Max,
			name)
	default:
		what := fmt.Sprintf("the limit to %d", g.Limit.Max)
		x.fact("%s", setBy(g.Limit.By, what, g.Limit.Since, g.Limit.Reason, x.now))
		x.fact("`belay limits set %s MAX` allows more, `belay limits rm %s` removes it", name, name)
	}
}

// doing describes what the holder of a place does, if Explain has read it.
func (x *explainer) doing(id belay.ExecutionID) string {
	for _, h := range x.holders {
		switch e := h.Execution; {
		case e.ID != id:
		case e.State == belay.Running:
			return ": it has run for " + ago(x.now, e.RunAt).String()
		case e.AdmitBy != 0:
			return ": it was let through and waits for a worker"
		case e.ReasonText != "":
			return fmt.Sprintf(": it is %s (%s)", e.State, e.ReasonText)
		default:
			return ": it is " + e.State.String()
		}
	}
	return ""
}

// nameOf names the holder of a place by its workflow, if Explain has read it.
func (x *explainer) nameOf(id belay.ExecutionID) string {
	for _, h := range x.holders {
		if h.Execution.ID == id {
			return h.Execution.Workflow
		}
	}
	return id.String()
}

// spent explains a rate that lets no further run start now: it says who set the rate, when the next
// run may start, and which command changes the rate.
func (x *explainer) spent(g *belay.GateDetail) {
	if g.Until.IsZero() {
		x.fact("the next run may start when those that were let through have started")
	} else {
		x.fact("the next run may start in %s", ago(machine.At(g.Until), x.now))
	}
	x.gate(belay.GateSetRate, g, "Change "+named(g), "allows more per "+brief(g.Rate.Per.D()))
	switch name := machine.GateWord(g.ID); {
	case !g.Rate.Set:
		x.fact("the executions that name the rate set it; `belay rates set %s MAX/TIME` allows more", name)
	default:
		x.fact("%s", setBy(g.Rate.By, "the rate", g.Rate.Since, g.Rate.Reason, x.now))
		x.fact("`belay rates set %s MAX/TIME` allows more, `belay rates rm %s` removes it", name, name)
	}
}

// setBy describes which operator set a limit or a rate, when and why.
func setBy(by, what string, at time.Time, reason string, now machine.Time) string {
	text := fmt.Sprintf("%s set %s", cmp.Or(by, "an operator"), what)
	if !at.IsZero() {
		text += fmt.Sprintf(", %s ago", ago(now, machine.At(at)))
	}
	if reason != "" {
		text += ": " + reason
	}
	return text
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// many is the number of executions in a line, as text. Stores count a line only up to MaxHeads + 1.
func many(n int) string {
	if n > machine.MaxHeads {
		return fmt.Sprintf("more than %d", machine.MaxHeads)
	}
	return fmt.Sprint(n)
}

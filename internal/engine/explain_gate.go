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
)

// gateOf reads the gate that keeps workers from claiming a due execution: the gate at which the
// execution waits, or else a shut gate of its queue or workflow. It returns nil if there is no such
// gate.
func (r *Reader) gateOf(ctx context.Context, e *machine.Execution) (*belay.GateDetail, error) {
	ids := []belay.GateID{e.Gate}
	if e.Gate == "" {
		ids = []belay.GateID{belay.Gate(belay.GateQueue, e.Queue), belay.Gate(belay.GateWorkflow, e.Workflow)}
	}
	for _, id := range ids {
		g, err := r.Gate(ctx, id)
		if err != nil || !g.Open || e.Gate != "" {
			return &g, err
		}
	}
	return nil, nil
}

// gated explains an execution that workers cannot claim because of a gate.
func (x *explainer) gated(g *belay.GateDetail) {
	e := x.rec.Execution
	name := fmt.Sprintf("%s %q", g.Kind, g.Name)
	switch {
	case g.Pause != nil:
		x.out.Summary = fmt.Sprintf("It waits, since %s is paused.", name)
		x.paused(g)
	case g.Breaker != nil && g.Breaker.State != string(machine.BreakerClosed):
		x.out.Summary = fmt.Sprintf("It waits, since the circuit breaker of %s is %s.", name,
			strings.ReplaceAll(g.Breaker.State, "_", " "))
		x.broken(g)
	case g.Limit != nil && g.Held >= g.Limit.Max:
		x.out.Summary = fmt.Sprintf("It waits for a place in %s: %d of %d are taken.", name, g.Held, g.Limit.Max)
		x.full(g)
	case g.Rate != nil && g.Rate.Tokens == 0:
		x.out.Summary = fmt.Sprintf("It waits for %s: its %d runs per %s have started.", name, g.Rate.Max,
			g.Rate.Per.D())
		x.spent(g)
	default:
		x.out.Summary = fmt.Sprintf("It waits for its turn at %s, which is open.", name)
	}
	if !g.Until.IsZero() {
		x.fact("the gate opens by itself in %s", ago(machine.At(g.Until), x.now))
	}
	if n := slices.Index(g.Line, e.ID); n >= 0 {
		x.fact("its place in the line is %d of %s", n+1, many(g.Waiting))
	} else if e.Gate != "" {
		x.fact("more than %d executions are before it in the line", len(g.Line))
	}
	for _, id := range g.Holders[:min(len(g.Holders), maxChildren)] {
		x.fact("%s has a place", id)
	}
	if g.Held > maxChildren {
		x.fact("%d more have a place", g.Held-maxChildren)
	}
	x.fact("`belay gates get %s` shows the gate", machine.ShellWord(string(g.ID)))
	if e.DueAt != 0 && e.DueAt < x.now {
		x.fact("it has been due for %s; the wait counts as no delay, and no attempt is charged", ago(x.now, e.DueAt))
	}
}

func (x *explainer) paused(g *belay.GateDetail) {
	x.fact("%s", deed(g.Pause.By, "paused", g.Pause.Since, g.Pause.Reason, x.now))
	x.fact("`belay resume --%s %s` ends the pause", g.Kind, machine.ShellWord(g.Name))
}

// deed says which operator did something to a gate, when and why.
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
		x.fact("`belay breakers auto %s` closes it and lets it work by itself again", name)
		return
	case b.State == string(machine.BreakerHalfOpen):
		x.fact("a few runs are let through to try the target; %d of them have succeeded", b.SuccessCount)
	default:
		x.fact("it opened %s ago, after %d failures; the last was %s ago", ago(x.now, machine.At(b.OpenedAt)),
			b.FailureCount, ago(x.now, machine.At(b.LastFailedAt)))
	}
	x.fact("if the target works, `belay breakers close %s` lets all runs through, until `belay breakers auto`", name)
}

// full names the command that changes a limit whose places are taken.
func (x *explainer) full(g *belay.GateDetail) {
	switch name := machine.GateWord(g.ID); g.Limit.Set {
	case 0:
		x.fact("the executions that name the limit set it to %d; `belay limits set %s MAX` allows more", g.Limit.Max, name)
	default:
		x.fact("an operator set the limit to %d; `belay limits set %s MAX` allows more, `belay limits rm %s` removes it",
			g.Limit.Max, name, name)
	}
}

// spent names the command that changes a rate whose tokens are taken.
func (x *explainer) spent(g *belay.GateDetail) {
	switch name := machine.GateWord(g.ID); {
	case !g.Rate.Set:
		x.fact("the executions that name the rate set it; `belay rates set %s MAX/TIME` allows more", name)
	default:
		x.fact("an operator set the rate; `belay rates set %s MAX/TIME` allows more, `belay rates rm %s` removes it", name,
			name)
	}
}

// many is the number of executions in a line, as text. Stores count a line only up to MaxHeads + 1.
func many(n int) string {
	if n > machine.MaxHeads {
		return fmt.Sprintf("more than %d", machine.MaxHeads)
	}
	return fmt.Sprint(n)
}

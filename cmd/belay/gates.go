package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

// gateKinds are the kinds of gates.
var gateKinds = []string{
	belay.GateLimit, belay.GateRate, belay.GateTarget, belay.GateQueue, belay.GateWorkflow, belay.GateResource,
}

func (a *app) gatesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "gates", Short: "Show limits, rates, circuit breakers, resources and pauses", Args: none,
		Long: `Show the gates: the limits, rates, circuit breakers, resources and pauses that decide
when an execution may start a run. An execution at a gate that is shut waits, and no
attempt is counted. A gate is a kind and a name:

  limit:NAME      the executions that name the limit (belay submit --concurrency)
  rate:NAME       the runs that name the rate (belay submit --rate)
  target:NAME     the circuit breaker of what runs call (belay submit --target)
  queue:NAME      all runs of a queue
  workflow:NAME   all runs of a workflow
  resource:NAME   the runs that use a resource in a mode (belay submit --requires)

belay pause and belay resume pause a queue, a workflow or a target; belay limits, belay
rates, belay breakers and belay resources change the other parts of a gate.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.gatesLsCommand("", ""), a.gatesGetCommand())
	return c
}

// gatesLsCommand returns a command that lists the gates of one kind, or of the kind that --kind
// names. If part is limit, rate, breaker or resource, the command lists only gates that have this part.
func (a *app) gatesLsCommand(kind, part string) *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use: "ls", Short: "List the gates that were set or named", Args: none,
		Long: "List the gates that an operator has set or that executions have named. belay gates get GATE also\n" +
			"shows the executions that have a place and those that wait.",
		RunE: func(c *cobra.Command, _ []string) error {
			if kind != "" && !slices.Contains(gateKinds, kind) {
				return usage("--kind is %s; it can be %s", quoted(kind), strings.Join(gateKinds, ", "))
			}
			if limit < 1 {
				return usage("--limit is %d; it must be 1 at least", limit)
			}
			return a.reading(c.Context(), func(r reader) error {
				gates, more, err := listGates(c.Context(), r, kind, part, limit)
				if err != nil {
					return err
				}
				if err := a.printGates(gates); err != nil {
					return err
				}
				if more {
					fmt.Fprintf(a.err, "belay: there are more than %d; list more of them with --limit\n", limit)
				}
				return nil
			})
		},
	}
	c.Flags().IntVar(&limit, "limit", 1000, "list at most so many")
	if part == "" {
		c.Flags().StringVar(&kind, "kind", kind, "list only gates of this `kind`: "+strings.Join(gateKinds, ", "))
		_ = c.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(gateKinds, cobra.ShellCompDirectiveNoFileComp))
		return a.readFlag(c)
	}
	c.Short = "List the " + part + "s"
	c.Long = "List the " + part + "s that an operator has set or that executions have named."
	return a.readFlag(c)
}

// listGates reads the gates that have the part (limit, rate, breaker or resource), or all gates if part is
// empty. It returns at most limit gates, and reports whether there are more.
func listGates(ctx context.Context, r reader, kind, part string, limit int) (gates []belay.GateInfo, more bool,
	err error) {
	for f := (belay.GateFilter{Kind: kind, Limit: 1000}); ; {
		page, err := r.Gates(ctx, f)
		if err != nil {
			return nil, false, err
		}
		for _, g := range page.Gates {
			switch {
			case part == "limit" && g.Limit == nil, part == "rate" && g.Rate == nil,
				part == "breaker" && g.Breaker == nil, part == "resource" && g.Resource == nil:
			case len(gates) == limit:
				return gates, true, nil
			default:
				gates = append(gates, g)
			}
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return gates, false, nil
		}
	}
}

func (a *app) printGates(gates []belay.GateInfo) error {
	if a.output == "json" {
		if gates == nil {
			gates = []belay.GateInfo{}
		}
		return screen.PrintJSON(a.out, gates)
	}
	if len(gates) == 0 {
		fmt.Fprintln(a.out, "no gates")
		return nil
	}
	head := []string{"GATE", "STATE", "LIMIT", "RATE", "BREAKER", "WHY"}
	resources := !slices.ContainsFunc(gates, func(g belay.GateInfo) bool { return g.Resource == nil })
	if resources {
		head = []string{"RESOURCE", "STATE", "MODE", "NEXT", "WHY"}
	}
	if a.wide() {
		head = append(head, "CHANGED", "BY")
	}
	t := screen.NewTable(a.out, head...)
	for i := range gates {
		g := &gates[i]
		row := []string{string(g.ID), gateState(g), limitOf(g), rateOf(g), breakerOf(g), whyShut(g)}
		if r := g.Resource; resources {
			row = []string{g.Name, string(r.State), dash(r.Mode), dash(nextMode(r)), whyShut(g)}
		}
		if a.wide() {
			row = append(row, since(g.UpdatedAt)+" ago", dash(g.UpdatedBy))
		}
		t.Row(row...)
	}
	return t.Flush()
}

func gateState(g *belay.GateInfo) string {
	switch {
	case g.Open:
		return "open"
	case g.Pause != nil:
		return "paused"
	}
	return "shut"
}

func limitOf(g *belay.GateInfo) string {
	if g.Limit == nil {
		return "-"
	}
	return fmt.Sprint(g.Limit.Max)
}

func rateOf(g *belay.GateInfo) string {
	if g.Rate == nil {
		return "-"
	}
	return fmt.Sprintf("%d/%s", g.Rate.Max, screen.Short(g.Rate.Per.D()))
}

func breakerOf(g *belay.GateInfo) string {
	switch {
	case g.Breaker == nil:
		return "-"
	case g.Breaker.Forced:
		return "forced " + g.Breaker.State
	}
	return g.Breaker.State
}

// whyShut says why a gate lets no execution through, which operator caused this, and until when.
func whyShut(g *belay.GateInfo) string {
	text := g.Why
	switch p, b := g.Pause, g.Breaker; {
	case p != nil:
		text = done("paused", p.By, p.Reason)
	case !g.Open && b != nil && b.Forced:
		text = done("opened", b.By, b.Reason)
	}
	if !g.Until.IsZero() {
		text += "; until " + g.Until.Local().Format(time.RFC3339)
	}
	return dash(text)
}

// done describes an operator's change of a gate: the change (what), the operator and the reason.
func done(what, by, reason string) string {
	if by != "" {
		what += " by " + by
	}
	if reason != "" {
		what += ": " + reason
	}
	return what
}

func (a *app) gatesGetCommand() *cobra.Command {
	return a.readFlag(&cobra.Command{
		Use: "get GATE", Short: "Show a gate, the executions that count towards it, and those that wait",
		Args: exactly("a gate"),
		Long: "Show a gate, the executions that have one of its places, and those that wait at it, the next one\n" +
			"first; a hundred of each at most. GATE is a kind, a colon and a name, as in queue:default or\n" +
			"target:payments:charge.",
		ValidArgsFunction: a.completeGates("", nil),
		RunE: func(c *cobra.Command, args []string) error {
			return a.reading(c.Context(), func(r reader) error {
				g, err := r.Gate(c.Context(), belay.GateID(args[0]))
				if err != nil {
					return err
				}
				return a.printGate(&g)
			})
		},
	})
}

func (a *app) printGate(g *belay.GateDetail) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, g)
	}
	say := func(name, format string, args ...any) {
		fmt.Fprintf(a.out, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	say("gate", "%s", g.ID)
	say("state", "%s", gateState(&g.GateInfo))
	if !g.Open {
		say("why", "%s", whyShut(&g.GateInfo))
	}
	if g.Pause != nil {
		say("paused", "%s ago", since(g.Pause.Since))
	}
	if l := g.Limit; l != nil {
		say("limit", "%d; %d of the places are taken%s", l.Max, g.Held, setBy(l.Set > 0, l.By, l.Reason))
	}
	if r := g.Rate; r != nil {
		say("rate", "%s; %d may start now%s", rateOf(&g.GateInfo), r.Tokens, setBy(r.Set, r.By, r.Reason))
	}
	if b := g.Breaker; b != nil {
		say("breaker", "%s; %d failures and %d successes counted", breakerOf(&g.GateInfo), b.FailureCount,
			b.SuccessCount)
		if b.Forced && (g.Open || g.Pause != nil) { // otherwise the line "why" names the operator who forced the state
			say("forced", "%s", done(b.State, b.By, b.Reason))
		}
		if !b.OpenedAt.IsZero() {
			say("opened", "%s ago", since(b.OpenedAt))
		}
		if !b.LastFailedAt.IsZero() {
			say("failed", "%s ago", since(b.LastFailedAt))
		}
		if !b.NextRetryAt.IsZero() {
			say("retry", "at %s", b.NextRetryAt.Local().Format(time.RFC3339))
		}
	}
	if r := g.Resource; r != nil {
		printResource(g, say)
	}
	if g.Waiting > 100 {
		say("waiting", "more than 100")
	} else {
		say("waiting", "%d", g.Waiting)
	}
	for _, id := range g.Holders {
		say("holder", "%s", id)
	}
	for _, id := range g.Line {
		say("waits", "%s", id)
	}
	if !g.UpdatedAt.IsZero() {
		say("changed", "%s ago by %s", since(g.UpdatedAt), dash(g.UpdatedBy))
	}
	return nil
}

// setBy says which operator set a part of a gate, and why. It returns "" if no operator has set the
// part.
func setBy(operator bool, by, reason string) string {
	if !operator {
		return ""
	}
	return done("; set", cmp.Or(by, "an operator"), reason)
}

package main

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

// gateOf returns the gate that an argument names. The argument is a whole id, such as
// queue:default, or only the name of a gate of the kind usual. The names of targets often contain a
// colon, so for a command on targets the argument is an id only if it begins with target and a
// colon.
func gateOf(arg, usual string) belay.GateID {
	kind, _, ok := strings.Cut(arg, ":")
	if ok && (kind == usual || usual != belay.GateTarget && slices.Contains(gateKinds, kind)) {
		return belay.GateID(arg)
	}
	return belay.Gate(usual, arg)
}

// changeGate carries out a change of a gate and prints the gate.
func (a *app) changeGate(c *cobra.Command, change belay.GateChange) error {
	ctx := named(c)
	change.Actor, change.Op = actor(), belay.OpID(embedded.NewID())
	return a.writing(ctx, func(b belay.Backend) error {
		g, err := b.ChangeGate(ctx, change)
		if err != nil {
			return err
		}
		return a.printGate(&g)
	})
}

// gateCommand returns a command that changes one gate. The function fill sets the fields of the
// change from the arguments after the gate.
func (a *app) gateCommand(use, brief, long, kind string, action belay.GateAction,
	fill func(c *belay.GateChange, args []string) error, more ...string) *cobra.Command {
	var reason string
	arg := "a gate"
	if kind == belay.GateTarget {
		arg = "a target"
	}
	c := &cobra.Command{
		Use: use, Short: brief, Long: long, Args: exactly(append([]string{arg}, more...)...),
		ValidArgsFunction: a.completeGates(kind, func(g *belay.GateInfo) bool { return changeable(g, action) }),
		RunE: func(c *cobra.Command, args []string) error {
			change := belay.GateChange{Gate: gateOf(args[0], kind), Action: action, Reason: reason}
			if fill != nil {
				if err := fill(&change, args[1:]); err != nil {
					return err
				}
			}
			return a.changeGate(c, change)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "the reason, which the audit keeps")
	_ = c.RegisterFlagCompletionFunc("reason", cobra.NoFileCompletions)
	return c
}

// changeable reports whether the shell offers a gate for an action: whether the action can have an
// effect on the gate.
func changeable(g *belay.GateInfo, action belay.GateAction) bool {
	switch lane := g.Kind == belay.GateQueue || g.Kind == belay.GateWorkflow; action {
	case belay.GateSetLimit:
		return lane || g.Kind == belay.GateLimit
	case belay.GateUnsetLimit:
		return g.Limit != nil && g.Limit.Set > 0
	case belay.GateSetRate:
		return lane || g.Kind == belay.GateRate
	case belay.GateUnsetRate:
		return g.Rate != nil && g.Rate.Set
	case belay.GateSetResource:
		return g.Kind == belay.GateResource
	case belay.GateUnsetResource:
		return g.Resource != nil && g.Resource.Set
	case belay.GateAutomatic:
		return g.Breaker != nil && g.Breaker.Forced
	default:
		return g.Kind == belay.GateTarget
	}
}

func (a *app) limitsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "limits", Short: "Limit how many executions or runs are under way at once", Args: none,
		Long: `Show and set limits. A limit that executions name (belay submit --concurrency) counts
executions from their first run to their end. A limit of a queue or a workflow counts
runs.

  belay limits set crawler 5            the executions that name the limit crawler
  belay limits set queue:default 20     all runs of a queue
  belay limits set workflow:report 1    all runs of a workflow
  belay limits rm crawler               use the limit that the executions name again`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.gatesLsCommand("", "limit"),
		a.gateCommand("set GATE MAX", "Set the limit of a name, a queue or a workflow",
			"Set a limit. It replaces the limit that executions name. If more than MAX executions (for a queue\n"+
				"or a workflow: runs) are under way, all of them go on, and no other starts until fewer than MAX\n"+
				"are under way. GATE is the name of a limit, queue:NAME or workflow:NAME.",
			belay.GateLimit, belay.GateSetLimit, setMax, "a number"),
		a.gateCommand("rm GATE", "Remove the limit that an operator has set",
			"Remove the limit that an operator has set. The limit that executions name, if there is one, counts\n"+
				"again; if no execution uses it, the next submission sets it anew.\n"+
				"GATE is the name of a limit, queue:NAME or workflow:NAME.", belay.GateLimit,
			belay.GateUnsetLimit, nil))
	return c
}

// setMax sets the limit of a change from the command's argument.
func setMax(c *belay.GateChange, args []string) (err error) {
	if c.Max, err = strconv.Atoi(args[0]); err != nil {
		return usage("the limit %s is not a number", quoted(args[0]))
	}
	return nil
}

func (a *app) ratesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "rates", Short: "Set how many runs may start within a time", Args: none,
		Long: `Show and set rates: how many runs may start within a time.

  belay rates set mail 10/s               the runs of executions that name the rate mail
  belay rates set queue:default 100/1m    all runs of a queue
  belay rates rm mail                     use the rate that the executions name again`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.gatesLsCommand("", "rate"),
		a.gateCommand("set GATE MAX/TIME", "Set the rate of a name, a queue or a workflow",
			"Set a rate. It replaces the rate that executions name. GATE is the name of a rate, queue:NAME or\n"+
				"workflow:NAME. MAX/TIME is like 10/s, 100/1m or 5/1h30m.", belay.GateRate, belay.GateSetRate,
			func(c *belay.GateChange, args []string) (err error) {
				c.Max, c.Per, err = pace(args[0])
				return err
			}, "a rate like 10/s"),
		a.gateCommand("rm GATE", "Remove the rate that an operator has set",
			"Remove the rate that an operator has set. The rate that executions name, if there is one, counts\n"+
				"again; if no execution uses it, the next submission sets it anew.\n"+
				"GATE is the name of a rate, queue:NAME or workflow:NAME.", belay.GateRate,
			belay.GateUnsetRate, nil))
	return c
}

// pace reads a rate like 10/s or 100/1m.
func pace(text string) (limit int, per belay.Duration, err error) {
	before, after, ok := strings.Cut(text, "/")
	limit, err = strconv.Atoi(before)
	if after != "" && (after[0] < '0' || after[0] > '9') && after[0] != '.' && after[0] != '-' {
		after = "1" + after
	}
	d, derr := time.ParseDuration(after)
	if !ok || err != nil || derr != nil {
		return 0, 0, usage("the rate %s is not of the form MAX/TIME, as in 10/s or 100/1m", quoted(text))
	}
	return limit, belay.Duration(d), nil
}

func (a *app) breakersCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "breakers", Short: "Show and force the circuit breakers of targets", Args: none,
		Long: `Show and force the circuit breakers of targets. A target is what runs call, as in
payments:charge; executions name it (belay submit --target). After some failures its
circuit breaker opens: executions that name the target wait, and no attempt is counted.
After a while the breaker lets one of them after the other try, and closes if two succeed.

  belay breakers ls
  belay breakers open payments:charge --reason 'the provider is down'
  belay breakers auto payments:charge     let the breaker work by itself again`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	get := a.gatesGetCommand()
	c.AddCommand(a.gatesLsCommand(belay.GateTarget, "breaker"), get,
		a.gateCommand("open TARGET", "Let nothing call a target",
			"Force the circuit breaker of a target open: executions that name the target wait until belay breakers\n"+
				"auto or belay breakers close. Runs that have started go on.", belay.GateTarget,
			belay.GateForceOpen, nil),
		a.gateCommand("close TARGET", "Let calls of a target through, whatever fails",
			"Force the circuit breaker of a target closed: it stays closed, whatever fails, until belay breakers\n"+
				"auto.", belay.GateTarget, belay.GateForceClosed, nil),
		a.gateCommand("auto TARGET", "Let the circuit breaker of a target work by itself",
			"Let the circuit breaker of a target work by itself again. It begins closed, with no failure counted.",
			belay.GateTarget, belay.GateAutomatic, nil))
	run := get.RunE
	get.ValidArgsFunction = a.completeGates(belay.GateTarget, nil)
	get.Use, get.Short, get.Args = "get TARGET", "Show a circuit breaker and what waits for it", exactly("a target")
	get.Long = "Show the circuit breaker of a target, and the executions that wait for it."
	get.RunE = func(c *cobra.Command, args []string) error {
		return run(c, []string{string(gateOf(args[0], belay.GateTarget))})
	}
	return c
}

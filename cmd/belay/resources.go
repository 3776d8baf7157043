package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) resourcesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "resources", Short: "Show and set resources that runs use in one mode at a time", Args: none,
		Long: `Show and set resources. A resource, such as a GPU, has one mode at a time, such as the
model that it holds. Executions name a resource and a mode (belay submit --requires
gpu=llama): runs of the same mode share the resource, and runs of other modes wait. A
workflow of yours can change the mode; its input is {"resource", "from", "to"}.

  belay resources set gpu --swap-workflow load-model --swap-queue gpu-1
  belay resources set gpu --min-residency 30s --max-wait 5m --swap-workflow load-model
  belay resources ls
  belay resources get gpu      its mode, its runs, and the modes that wait
  belay resources rm gpu       remove the terms; the modes still exclude each other`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.resourcesLsCommand(), a.resourcesGetCommand(), a.resourcesSetCommand(),
		a.gateCommand("rm RESOURCE", "Remove the terms of a resource",
			"Remove the terms that an operator has set for a resource. Its modes still exclude each other; the mode\n"+
				"changes at once, and other modes wait for a minute at most while the present one is in use.",
			belay.GateResource, belay.GateUnsetResource, nil))
	return c
}

func (a *app) resourcesLsCommand() *cobra.Command {
	c := a.gatesLsCommand(belay.GateResource, "resource")
	c.Long = "List the resources that an operator has set or that executions have named, with their modes."
	return c
}

func (a *app) resourcesGetCommand() *cobra.Command {
	get := a.gatesGetCommand()
	run := get.RunE
	named := func(g *belay.GateInfo) bool { return g.Resource != nil }
	get.ValidArgsFunction = a.completeGates(belay.GateResource, named)
	get.Use, get.Short, get.Args = "get RESOURCE", "Show a resource and what waits for it", exactly("a resource")
	get.Long = "Show a resource: its mode, its terms, the runs that use it, and the executions that wait for its modes."
	get.RunE = func(c *cobra.Command, args []string) error {
		return run(c, []string{string(gateOf(args[0], belay.GateResource))})
	}
	return get
}

func (a *app) resourcesSetCommand() *cobra.Command {
	var residency, wait, timeout time.Duration
	var swap belay.ResourceSwapper
	c := a.gateCommand("set RESOURCE", "Set the terms of a resource", `Set the terms of a resource. They replace all earlier terms. If the last change of the
mode has failed, the next change begins at once.

  belay resources set gpu --swap-workflow load-model --max-wait 5m`, belay.GateResource, belay.GateSetResource,
		func(c *belay.GateChange, _ []string) error {
			c.Resource = &belay.ResourceTerms{MinResidency: belay.Duration(residency), MaxWait: belay.Duration(wait)}
			swap.Timeout = belay.Duration(timeout)
			switch {
			case swap.Workflow != "":
				c.Resource.Swap = &swap
			case swap != (belay.ResourceSwapper{}):
				return usage("--swap-queue, --swap-version and --swap-timeout need --swap-workflow")
			}
			return nil
		})
	f := c.Flags()
	f.DurationVar(&residency, "min-residency", 0, "keep a mode for this `time` at least (default 10s with a "+
		"--swap-workflow, otherwise none)")
	f.DurationVar(&wait, "max-wait", 0, "after this `time`, executions of another mode are served next (default 1m)")
	f.StringVar(&swap.Workflow, "swap-workflow", "", "the `workflow` that changes the mode; without it, the mode "+
		"changes at once")
	f.StringVar(&swap.Version, "swap-version", "", "the `version` of that workflow")
	f.StringVar(&swap.Queue, "swap-queue", "", "the `queue` of that workflow (default \"default\")")
	f.DurationVar(&timeout, "swap-timeout", 0, "end a change that takes longer than this `time` (default 10m)")
	for _, flag := range []string{"min-residency", "max-wait", "swap-version", "swap-timeout"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	_ = c.RegisterFlagCompletionFunc("swap-workflow", a.completeNames(belay.GateWorkflow, false))
	_ = c.RegisterFlagCompletionFunc("swap-queue", a.completeNames(belay.GateQueue, false))
	return c
}

// resourceOf describes the state of a resource in a table, "-" for another gate.
func resourceOf(g *belay.GateInfo) string {
	r := g.Resource
	switch {
	case r == nil:
		return "-"
	case r.Swapping != nil:
		return fmt.Sprintf("%s to %s", r.State, r.Swapping.To)
	case r.Mode != "":
		return fmt.Sprintf("%s in %s", r.State, r.Mode)
	}
	return string(r.State)
}

// printResource prints the state and the terms of a resource.
func printResource(g *belay.GateDetail, say func(name, format string, args ...any)) {
	r := g.Resource
	say("resource", "%s; %d use it", resourceOf(&g.GateInfo), g.Held)
	if !r.Since.IsZero() {
		say("mode", "%s for %s", r.Mode, since(r.Since))
	}
	if r.Wanted != "" {
		say("next", "%s", r.Wanted)
	}
	if s := r.Swapping; s != nil {
		say("swap", "%s from %s to %s for %s", s.Execution, dash(s.From), s.To, since(s.Since))
	}
	if r.Failures > 0 {
		say("failed", "%d times: %s", r.Failures, r.Error)
	}
	if !r.RetryAt.IsZero() {
		say("retry", "at %s", r.RetryAt.Local().Format(time.RFC3339))
	}
	say("terms", "a mode stays for %s at least; other modes wait for %s at most%s", screen.Short(r.MinResidency.D()),
		screen.Short(r.MaxWait.D()), setBy(r.Set, r.By, r.Reason))
	if s := r.Swap; s != nil {
		say("swaps", "by the workflow %s in the queue %s, within %s", s.Workflow, s.Queue, screen.Short(s.Timeout.D()))
	}
	for _, w := range r.Waiting {
		say("wants", "%s for %s: %d executions%s", w.Mode, since(w.Since), w.Executions, failuresOf(w))
	}
}

// failuresOf says how often the changes to a mode have failed, and when the next one begins.
func failuresOf(w belay.ModeWaiting) string {
	if w.Failures == 0 {
		return ""
	}
	text := fmt.Sprintf("; %d changes to it failed", w.Failures)
	if !w.RetryAt.IsZero() {
		text += ", the next begins at " + w.RetryAt.Local().Format(time.RFC3339) + " or later"
	}
	return text
}

// nextMode is the mode to which a resource changes or will change, or the one that has waited longest.
func nextMode(r *belay.GateResourceInfo) string {
	switch {
	case r.Swapping != nil:
		return r.Swapping.To
	case r.Wanted != "":
		return r.Wanted
	}
	for _, w := range r.Waiting {
		if w.Mode != r.Mode {
			return w.Mode
		}
	}
	return ""
}

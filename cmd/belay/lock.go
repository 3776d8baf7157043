package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
)

func (a *app) lockCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "lock", Short: "Own an execution from outside, or take it from its owner", Args: none,
		Long: "What concerns the lock on an execution. `belay get ID` shows who has it and for how long.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.stealCommand(), a.lockExecCommand())
	return c
}

func (a *app) stealCommand() *cobra.Command {
	c := a.actionCommand("steal", "Take an execution from its owner",
		"Take an execution from its owner, a worker or one from outside, at once. Whatever the owner\n"+
			"still writes is refused; the next owner goes on from the last checkpoint. The reason stands in\n"+
			"the history, with who did it.",
		func(c *belay.Control) { c.Action = belay.ActionSteal })
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if reason, err := c.Flags().GetString("reason"); err != nil || strings.TrimSpace(reason) == "" {
			return usage("say why, with --reason: it stands in the history")
		}
		return run(c, args)
	}
	return c
}

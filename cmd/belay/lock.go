package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
)

func (a *app) lockCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "lock", Short: "Own an execution without a worker, or take it from its owner", Args: none,
		Long: "Commands for the ownership of an execution. An owner from outside is a program that is no worker and\n" +
			"locks an execution. `belay get ID` shows the owner of an execution and the end of the owner's lease.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.stealCommand(), a.lockExecCommand())
	return c
}

func (a *app) stealCommand() *cobra.Command {
	c := a.actionCommand("steal", "Take an execution from its owner",
		"Take an execution at once from its owner, which may be a worker or a program that has locked it. The\n"+
			"store refuses all further writes of this owner; the next owner continues from the last checkpoint.\n"+
			"The history records the reason and your name.",
		func(c *belay.Control) { c.Action = belay.ActionSteal })
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if reason, err := c.Flags().GetString("reason"); err != nil || strings.TrimSpace(reason) == "" {
			return usage("give the reason with --reason: the history records it")
		}
		return run(c, args)
	}
	return c
}

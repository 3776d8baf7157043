package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
)

func (a *app) lockCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "lock", Short: "Own an execution without a worker, or take it from its owner", Args: none,
		Long: "Commands for the lock with which a program that is not a worker, an owner from outside, owns an\n" +
			"execution. `belay get ID` shows the owner of an execution and the end of the owner's lease.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.stealCommand(), a.lockExecCommand())
	return c
}

func (a *app) stealCommand() *cobra.Command {
	c := a.actionCommand("steal", "Take an execution from its owner",
		"Take an execution at once from its owner, a worker or an owner from outside. The store refuses\n"+
			"all further writes of this owner; the next owner goes on from the last checkpoint. The history\n"+
			"records the reason and who took it.",
		func(c *belay.Control) { c.Action = belay.ActionSteal })
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if reason, err := c.Flags().GetString("reason"); err != nil || strings.TrimSpace(reason) == "" {
			return usage("say why, with --reason: the history records the reason")
		}
		return run(c, args)
	}
	return c
}

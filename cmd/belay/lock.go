package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
)

func (a *app) lockCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "lock", Short: "Own an execution from outside, or take it from its owner", Args: none,
		Long: "Commands for the lock on an execution. `belay get ID` shows its owner and the end of its lease.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.stealCommand(), a.lockExecCommand())
	return c
}

func (a *app) stealCommand() *cobra.Command {
	c := a.actionCommand("steal", "Take an execution from its owner",
		"Take an execution at once from its owner, be it a worker or an owner from outside. The store refuses\n"+
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

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) rmCommand() *cobra.Command {
	reason := ""
	c := &cobra.Command{
		Use: "rm ID...", Short: "Delete ended executions for good",
		Long: "Delete executions that have ended, with their children, histories, logs and artifacts. The audit keeps\n" +
			"who deleted them, and --reason. belay rm refuses an execution that has not ended (cancel it first), a\n" +
			"child (delete its root), and an execution with an open dead letter (resolve it first with belay dead).\n" +
			"It deletes the executions one after the other, and stops at the first that it cannot delete.",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("%s takes the ids of executions", c.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := named(c)
			ids := make([]belay.ExecutionID, len(args))
			for i, arg := range args {
				id, err := a.executionID(ctx, arg)
				if err != nil {
					return err
				}
				ids[i] = id
			}
			return a.writing(ctx, func(b belay.Backend) error {
				for _, id := range ids {
					e, err := b.Control(ctx, belay.Control{
						Execution: id, Action: belay.ActionDelete, Actor: actor(), Reason: reason,
						Op: belay.OpID(embedded.NewID()),
					})
					if err != nil {
						return err
					}
					if a.output == "json" {
						if err := screen.PrintJSON(a.out, e); err != nil {
							return err
						}
						continue
					}
					fmt.Fprintf(a.out, "%s is deleted\n", id)
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "the reason, which the audit records")
	return c
}

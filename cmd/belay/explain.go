package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID", Short: "Say why an execution is where it is", Args: exactly("the id of an execution"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			id, err := a.executionID(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.reading(c.Context(), func(r reader) error {
				x, err := r.Explain(c.Context(), id)
				if err != nil {
					return err
				}
				if a.output == "json" {
					return printJSON(a.out, x)
				}
				fmt.Fprintf(a.out, "%s: %s\n", x.Execution, x.Summary)
				for _, f := range x.Facts {
					fmt.Fprintf(a.out, "  - %s\n", printable(f))
				}
				return nil
			})
		},
	}
}

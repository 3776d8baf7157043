package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/datadir"
	"github.com/belaydev/belay/internal/screen"
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
				if a.server == "" && !x.State.Terminal() {
					x.Facts = append(x.Facts, a.engineFacts(c.Context())...)
				}
				if a.output == "json" {
					return screen.PrintJSON(a.out, x)
				}
				fmt.Fprintf(a.out, "%s: %s\n", x.Execution, x.Summary)
				for _, f := range x.Facts {
					fmt.Fprintf(a.out, "  - %s\n", screen.Line(f))
				}
				return nil
			})
		},
	}
}

// engineFacts are what of the engine of the data directory keeps an execution where it is.
func (a *app) engineFacts(ctx context.Context) []string {
	if embedded.Holder(a.data) == "" {
		return []string{"no engine runs on this data directory: nothing moves until one does; `belay run --resume` or `belay serve` starts one"}
	}
	notes, err := datadir.Ready(ctx, a.data, datadir.Options{InJob: process.InJob, Patience: time.Second})
	if err == nil {
		return notes
	}
	why := err.Error()
	var e *belay.Error
	if errors.As(err, &e) {
		why = e.Message
	}
	return slices.Insert(notes, 0, why)
}

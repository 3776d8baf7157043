package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent"
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
				if idle := a.noEngine(); idle != "" && !x.State.Terminal() {
					x.Facts = append([]string{"when the last one ended: " + x.Summary}, x.Facts...)
					x.Summary = idle + ". Nothing moves until one does: `belay serve` starts one, and so does any " +
						"belay run on this directory."
				} else if a.server == "" && !x.State.Terminal() {
					x.Facts = append(x.Facts, a.engineFacts(c.Context())...)
				}
				x.Facts = append(x.Facts, stranded(c.Context(), r, id)...)
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

// stranded says how to go on with an execution that only its own belay run takes, if that
// has ended.
func stranded(ctx context.Context, r reader, id belay.ExecutionID) []string {
	e, err := r.Execution(ctx, id)
	if err != nil || e.State.Terminal() || !strings.HasPrefix(e.Queue, agent.RunQueue) || awaited(ctx, r, &e) {
		return nil
	}
	return []string{
		"only the belay run that began it takes it, and that has ended: type its line again, with --resume or its " +
			"--key, to go on with it, or end it with `belay cancel " + id.String() + "`",
	}
}

// engineFacts are what of the engine of the data directory keeps an execution where it is.
func (a *app) engineFacts(ctx context.Context) []string {
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

// noEngine says that no engine runs on the data directory, so that what its store says of
// running work is what was true when one did; empty if one runs, or a server is asked.
func (a *app) noEngine() string {
	if a.server != "" || a.store != "" || embedded.Holder(a.data) != "" {
		return ""
	}
	text := "no engine runs on this data directory"
	if last := embedded.Changed(a.data); !last.IsZero() {
		text += "; the last change was made " + since(last) + " ago, at " + last.Local().Format(time.DateTime)
	}
	return text
}

// untilThen notes below a list that no engine runs, if one of its executions has not ended.
func (a *app) untilThen(list ...belay.Execution) {
	if !slices.ContainsFunc(list, func(e belay.Execution) bool { return !e.State.Terminal() }) {
		return
	}
	if idle := a.noEngine(); idle != "" {
		fmt.Fprintf(a.err, "belay: %s: the states are of then, and nothing moves until an engine runs; belay "+
			"explain ID says more\n", idle)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) watchCommand() *cobra.Command {
	var after int64
	c := &cobra.Command{
		Use: "watch ID", Short: "Follow an execution until it ends", Args: exactly("the id of an execution"),
		Long: "Print the events of an execution as they happen, until the execution ends. The list begins with the\n" +
			"first event, or with the event after the seq that --after names. With -o json each event is one line\n" +
			"of JSON. To continue an earlier list, give the seq of its last event to --after.",
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			id, err := a.executionID(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.reading(c.Context(), func(r reader) error {
				return a.watch(c, r, id, after)
			})
		},
	}
	c.Flags().Int64Var(&after, "after", 0, "print only events after this `seq`")
	return a.readFlag(c)
}

func (a *app) watch(c *cobra.Command, r reader, id belay.ExecutionID, after int64) error {
	e, err := r.Execution(c.Context(), id)
	if err != nil || e.State.Terminal() && e.Seq <= after {
		return err
	}
	var away outage
	for {
		events, err := r.Events(c.Context(), belay.EventQuery{
			Execution: id, After: after, Wait: time.Minute, Data: e.Workflow == belay.BulkWorkflow,
		})
		if c.Context().Err() != nil {
			return exitCode(130)
		}
		if err != nil {
			if a.retryLater(c.Context(), &away, err) {
				continue
			}
			return err
		}
		away = outage{}
		for i := range events {
			ev := &events[i]
			after = ev.Seq
			if a.output == "json" {
				if err := json.NewEncoder(screen.JSON(a.out)).Encode(ev); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(a.out, "%5d  %s  %-10s %s\n", ev.Seq, clock(ev.At), ev.Kind, screen.Line(describe(ev)))
		}
		if len(events) > 0 && events[len(events)-1].Final {
			return nil
		}
		if len(events) == 0 {
			if e, err := r.Execution(c.Context(), id); err == nil && e.State.Terminal() && e.Seq <= after {
				return nil
			}
		}
	}
}

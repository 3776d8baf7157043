package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/definition/tasks"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) watchCommand() *cobra.Command {
	var after int64
	var events bool
	var many watchFlags
	c := &cobra.Command{
		Use: "watch [ID]", Short: "Follow an execution until it ends, or the states of many",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("%s takes the id of one execution, not %d arguments", c.CommandPath(), len(args))
			}
			return nil
		},
		Long: "Print the events of an execution as they happen, until the execution ends. The list begins with the\n" +
			"first event, or with the event after the seq that --after names. A line without a number is a step or\n" +
			"wait that is under way, or one that saved nothing, such as a failed try. With -o json each event is one line\n" +
			"of JSON. To continue an earlier list, give the seq of its last event to --after.\n\n" +
			"Of a document belay prints the progress of the tasks instead: a line when a task starts, waits or ends.\n" +
			"With --events, --after or -o json it prints the events. Of an agent it also prints the tools that the agent\n" +
			"uses, its reports and its questions.\n\n" +
			"Without an ID, print the states of all executions that match the flags, and then every change of state,\n" +
			"until you press Ctrl-C. An execution is printed once more when it stops to match. If changes may be\n" +
			"missing, belay says so and prints the present states. If no process runs the engine of the data\n" +
			"directory, and with --store, belay reads the store again and again and prints the differences. With\n" +
			"-o json each change, and each part of a snapshot, is one line of JSON.",
		Example: "  belay watch ex_01m7w13wbkep9rfsn7shzr3mtm\n" +
			"  belay watch --all                              every execution that has not ended\n" +
			"  belay watch --state failed --workflow charge   what fails, as it fails\n" +
			"  belay watch --label team=web -o json",
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			filtered := slices.ContainsFunc(watchFilters, c.Flags().Changed)
			switch {
			case len(args) > 0 && filtered:
				return usage("give the id of one execution, or flags that select many, not both")
			case len(args) == 0 && c.Flags().Changed("after"):
				return usage("--after continues the events of one execution; give its id")
			case len(args) == 0 && events:
				return usage("--events prints the events of one execution; give its id")
			case len(args) == 0 && !filtered:
				return usage("give the id of an execution, or --all for all executions that have not ended")
			case len(args) == 0:
				q, err := many.query(c.Context(), a)
				if err != nil {
					return err
				}
				return a.watchMany(c, q)
			}
			id, err := a.executionID(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.reading(c.Context(), func(r reader) error {
				e, err := r.Execution(c.Context(), id)
				if err != nil {
					return err
				}
				if tasks.IsDocument(&e) && !events && a.output != "json" && !c.Flags().Changed("after") {
					return a.watchTasks(c.Context(), r, id)
				}
				return a.watch(c, r, id, after)
			})
		},
	}
	c.Flags().Int64Var(&after, "after", 0, "print only events after this `seq`")
	c.Flags().BoolVar(&events, "events", false, "of a document, print the events instead of its tasks")
	many.add(c)
	return a.readFlag(c)
}

func (a *app) watch(c *cobra.Command, r reader, id belay.ExecutionID, after int64) error {
	e, err := r.Execution(c.Context(), id)
	if err != nil || e.State.Terminal() && e.Seq <= after {
		return err
	}
	var away outage
	var current stepLines
	actions := actionsOf(r, id, func(at time.Time, kind, text string) error {
		return a.watchLine("", at, kind, text)
	})
	for {
		events, err := r.Events(c.Context(), belay.EventQuery{
			Execution: id, After: after, Wait: a.watchWait(&e), Data: e.Workflow == belay.BulkWorkflow,
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
		if e.Workflow == agent.Prompted && a.output != "json" {
			if err := actions.copy(c.Context()); err != nil {
				return err
			}
		}
		for i := range events {
			ev := &events[i]
			after = ev.Seq
			if a.output == "json" {
				if err := json.NewEncoder(screen.JSON(a.out)).Encode(ev); err != nil {
					return err
				}
				continue
			}
			if err := a.watchEvent(ev); err != nil {
				return err
			}
		}
		if len(events) > 0 && events[len(events)-1].Final {
			return nil
		}
		if len(events) > 0 && a.output == "json" {
			continue
		}
		if now, err := r.Execution(c.Context(), id); err == nil {
			e = now
			if e.State.Terminal() && e.Seq <= after {
				return nil
			}
			if err := current.print(a, &e); err != nil {
				return err
			}
		}
	}
}

// watchWait is how long watch waits for an event before it looks at the current steps of a running execution, which
// are no events.
func (a *app) watchWait(e *belay.Execution) time.Duration {
	if a.output != "json" && e.State == belay.Running {
		return 2 * time.Second
	}
	return time.Minute
}

// watchEvent prints an event, after the steps and waits without an event of their own that came before it.
func (a *app) watchEvent(ev *belay.Event) error {
	for i := range ev.Steps {
		s := &ev.Steps[i]
		if err := a.watchLine("", s.BeganAt, stepKind(s), stepText(s, ev.At)); err != nil {
			return err
		}
	}
	return a.watchLine(fmt.Sprint(ev.Seq), ev.At, ev.Kind, describe(ev))
}

func (a *app) watchLine(seq string, at time.Time, kind, text string) error {
	return screen.Write(a.out, fmt.Sprintf("%5s  %s  %-10s %s\n", seq, clock(at),
		screen.Mark(a.out, screen.Line(kind)), screen.Line(text)))
}

// stepLines are the tries of current steps that watch has printed.
type stepLines map[belay.StepRecord]bool

// print prints the current steps that it has not printed before.
func (p *stepLines) print(a *app, e *belay.Execution) error {
	now := make(stepLines, len(e.Current))
	for i := range e.Current {
		s := e.Current[i]
		key := belay.StepRecord{Kind: s.Kind, Name: s.Name, Attempt: s.Attempt, Over: s.Over}
		if now[key] = true; (*p)[key] || a.output == "json" {
			continue
		}
		if err := a.watchLine("", s.BeganAt, stepKind(&s), stepText(&s, time.Time{})); err != nil {
			return err
		}
	}
	*p = now
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) cancelCommand() *cobra.Command {
	var grace time.Duration
	c := a.actionCommand("cancel", "Cancel an execution",
		"Cancel an execution and its children. An execution that is not running ends at once. If it is running,\n"+
			"its owner gets a grace period to end it; after that, Belay ends it by force.",
		func(c *belay.Control) { c.Action, c.Grace = belay.ActionCancel, belay.Duration(grace) })
	c.Flags().DurationVar(&grace, "grace", 0,
		"how long a running execution may take to end; 0 means the grace period of its policy (10s)")
	return c
}

func (a *app) pauseCommand() *cobra.Command {
	var f gateFlags
	c := a.actionCommand("pause", "Pause an execution, or a queue, a workflow or a target",
		"Pause an execution. If it is running, it stops at its next step. No worker runs it until belay resume.\n"+
			"Signals are still delivered to a paused execution, and its deadlines still end it.\n\n"+
			"With --queue, --workflow, --target, --limit or --rate belay pauses this gate: no execution of the queue\n"+
			"or the workflow, or that names the target, the limit or the rate, starts a run. Runs that have started\n"+
			"go on. The pause ends at --until, or with belay resume.\n\n"+
			"  belay pause --queue reports --until 2h --reason 'the database is moved'",
		func(c *belay.Control) { c.Action = belay.ActionPause })
	c.Flags().StringVar(&f.until, "until", "",
		"with --queue or another gate: the end of the pause, as a `time` like 2026-11-20T08:00:00Z or a "+
			"duration from now like 2h")
	return a.orGate(c, &f, belay.GatePause)
}

func (a *app) resumeCommand() *cobra.Command {
	c := a.actionCommand("resume", "End the pause of an execution, a queue, a workflow or a target",
		"Let an execution that belay pause has paused continue from its last checkpoint. An execution whose\n"+
			"belay run was interrupted is not paused: type the same belay run line again, with --resume. To\n"+
			"reopen a failed or cancelled execution, use belay retry.\n\n"+
			"With --queue, --workflow, --target, --limit or --rate the pause of this gate ends.",
		func(c *belay.Control) { c.Action = belay.ActionResume })
	return a.orGate(c, new(gateFlags), belay.GateResume)
}

func (a *app) forkCommand() *cobra.Command {
	var input, at string
	c := a.actionCommand("fork", "Begin a new execution with the results of another one",
		"Begin a new execution with the input of another execution and the results of its finished steps,\n"+
			"and print its id. The other execution does not change, in whatever state it is. The new one has\n"+
			"no signals and no idempotency key.\n\n"+
			"With --at the new execution has only the results that were saved before the named step or wait.\n"+
			"Steps of branches and with keys have names like branch/step[key]; belay get ID shows them.\n\n"+
			"  belay fork ID --at draft",
		func(c *belay.Control) {
			c.Action, c.At, c.Input = belay.ActionFork, at, json.RawMessage(input)
		})
	c.Flags().StringVar(&at, "at", "", "begin at this `step` or wait, without results that were saved later")
	c.Flags().StringVar(&input, "input", "", "the input of the new execution, as `JSON`; without it, the same input")
	_ = c.RegisterFlagCompletionFunc("at", a.completeSteps)
	return c
}

// completeSteps completes the names of the steps and waits that an execution has saved, the newest
// first.
func (a *app) completeSteps(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) != 1 {
		return nil, none
	}
	id, err := a.executionID(c.Context(), args[0])
	if err != nil {
		return nil, none
	}
	var steps []string
	err = a.reading(c.Context(), func(r reader) error {
		x, err := r.Execution(c.Context(), id)
		if err != nil {
			return err
		}
		events, err := r.Events(c.Context(), belay.EventQuery{Execution: id, After: max(0, x.Seq-1000)})
		for i := range events {
			ev := &events[len(events)-1-i]
			isStep := ev.Kind == belay.KindStep.String() || ev.Kind == belay.KindWait.String()
			if name := ev.Name + "\t" + ev.Kind; isStep && !ev.Pruned && !slices.Contains(steps, name) {
				steps = append(steps, name)
			}
		}
		return err
	})
	if err != nil {
		return nil, none
	}
	return steps, none | cobra.ShellCompDirectiveKeepOrder
}

// actionCommand makes a command that applies one action to one execution.
func (a *app) actionCommand(name, brief, long string, fill func(*belay.Control)) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: name + " ID", Short: brief, Long: long, Args: exactly("the id of an execution"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := named(c)
			id, err := a.executionID(ctx, args[0])
			if err != nil {
				return err
			}
			control := belay.Control{Execution: id, Actor: actor(), Reason: reason, Op: belay.OpID(embedded.NewID())}
			fill(&control)
			return a.writing(ctx, func(b belay.Backend) error {
				e, err := b.Control(ctx, control)
				if err != nil {
					return err
				}
				return a.printOutcome(ctx, b, e)
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "the reason, which the history records")
	return c
}

// printOutcome waits for the effect of an action and prints the state of the execution.
func (a *app) printOutcome(ctx context.Context, b belay.Backend, e belay.Execution) error {
	e = outcome(ctx, b, e)
	if a.output == "json" {
		return screen.PrintJSON(a.out, e)
	}
	fmt.Fprintf(a.out, "%s is %s\n", e.ID, stateWord(&e))
	if e.State == belay.Pending && strings.HasPrefix(e.Queue, agent.RunQueue) && !awaited(ctx, b, &e) {
		fmt.Fprintln(a.err, "belay: type the belay run line of this execution again to continue it")
	}
	return nil
}

// awaited reports whether a connected worker takes work from the execution's queue. For an
// execution of belay run, only a belay run command that continues this execution is such a worker.
func awaited(ctx context.Context, b interface {
	Workers(ctx context.Context) ([]belay.Worker, error)
}, e *belay.Execution) bool {
	workers, err := b.Workers(ctx)
	return err == nil && slices.ContainsFunc(workers, func(w belay.Worker) bool {
		return w.State == belay.WorkerOpen && living(&w) && slices.Contains(w.Queues, e.Queue)
	})
}

// living reports whether a worker may still work: its session has not ended, and this host cannot
// prove that its process has died.
func living(w *belay.Worker) bool {
	self, _ := host.Self()
	return !w.State.Ended() && host.Process(w.Process).State(self) != host.Dead
}

// outcome waits up to three seconds for the effect of an action on a running execution, and returns
// the execution. If the owner of the execution died together with the last engine, the new engine
// that this command has started notices the death within this time, and then completes the action.
func outcome(ctx context.Context, b belay.Backend, e belay.Execution) belay.Execution {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for e.State == belay.Running {
		events, err := b.Events(ctx, belay.EventQuery{Execution: e.ID, After: e.Seq, Wait: 3 * time.Second})
		if len(events) == 0 || err != nil {
			return e
		}
		x, err := b.Execution(ctx, e.ID)
		if err != nil {
			return e
		}
		e = x
	}
	return e
}

// actor returns the name of this process's user, for the history and the audit trail.
func actor() string {
	name := "uid " + fmt.Sprint(os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	return name
}

// traceOf returns the trace in the environment of this process: that of a pipeline, or of the command of a job.
func traceOf() belay.Trace {
	return belay.Trace{Parent: os.Getenv("TRACEPARENT"), State: os.Getenv("TRACESTATE")}.Valid()
}

func (a *app) signalCommand() *cobra.Command {
	var payload string
	c := &cobra.Command{
		Use: "signal ID NAME", Short: "Deliver a signal to an execution", Args: exactly("the id of an execution",
			"the signal's name"),
		Long: "Deliver a signal to an execution. If the execution does not wait for the signal yet, the store\n" +
			"keeps the signal until it does.",
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := named(c)
			id, err := a.executionID(ctx, args[0])
			if err != nil {
				return err
			}
			s := belay.SignalRequest{
				Execution: id, Name: args[1], Payload: json.RawMessage(payload), Actor: actor(),
				Op: belay.OpID(embedded.NewID()),
			}
			return a.writing(ctx, func(b belay.Backend) error {
				if err := b.Signal(ctx, s); err != nil {
					return err
				}
				if a.output == "json" {
					return screen.PrintJSON(a.out, s)
				}
				fmt.Fprintf(a.out, "signal %s delivered to %s\n", quoted(s.Name), id)
				return nil
			})
		},
	}
	c.Flags().StringVar(&payload, "payload", "", "the signal's payload, as `JSON`, up to 64 KiB")
	return c
}

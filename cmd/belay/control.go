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
		"Cancel an execution: at once if it does not run, else its owner gets a grace to end it,\nafter which it "+
			"is ended by force. Its children are cancelled with it.",
		func(c *belay.Control) { c.Action, c.Grace = belay.ActionCancel, belay.Duration(grace) })
	c.Flags().DurationVar(&grace, "grace", 0, "how long a running one may take to end; 0 means its policy's (10s)")
	return c
}

func (a *app) pauseCommand() *cobra.Command {
	return a.actionCommand("pause", "Pause an execution at its next step",
		"Pause an execution: a running one stops at its next step. Signals and deadlines still count.",
		func(c *belay.Control) { c.Action = belay.ActionPause })
}

func (a *app) resumeCommand() *cobra.Command {
	return a.actionCommand("resume", "Let a paused execution go on", "Let a paused execution go on from where it was.",
		func(c *belay.Control) { c.Action = belay.ActionResume })
}

func (a *app) retryCommand() *cobra.Command {
	var input string
	c := a.actionCommand("retry", "Run a failed or cancelled execution again",
		"Run a failed or cancelled execution again under the same id: finished steps count.\nWith --input it "+
			"starts over with another input.",
		func(c *belay.Control) {
			c.Action = belay.ActionRetry
			if input != "" {
				c.Action, c.Input = belay.ActionRequeue, json.RawMessage(input)
			}
		})
	c.Flags().StringVar(&input, "input", "", "another input, as `JSON`; no finished step counts then")
	return c
}

// actionCommand is a command that carries out one action on one execution.
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
				e = outcome(ctx, b, e)
				if a.output == "json" {
					return screen.PrintJSON(a.out, e)
				}
				fmt.Fprintf(a.out, "%s is %s\n", e.ID, stateWord(&e))
				if e.State == belay.Pending && strings.HasPrefix(e.Queue, agent.RunQueue) && !awaited(ctx, b, &e) {
					fmt.Fprintln(a.err, "belay: type its belay run line again to go on with it")
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the audit trail")
	return c
}

// awaited reports whether a worker waits for the execution's queue: the belay run
// that it was submitted by, mostly.
func awaited(ctx context.Context, b interface {
	Workers(ctx context.Context) ([]belay.Worker, error)
}, e *belay.Execution) bool {
	workers, err := b.Workers(ctx)
	return err == nil && slices.ContainsFunc(workers, func(w belay.Worker) bool {
		return w.State == belay.WorkerOpen && living(&w) && slices.Contains(w.Queues, e.Queue)
	})
}

// living reports whether a worker may be at work: its session has not ended, and
// its process is not one of this host that is gone.
func living(w *belay.Worker) bool {
	self, _ := host.Self()
	return !w.State.Ended() && host.Process(w.Process).State(self) != host.Dead
}

// outcome waits a moment for what an action on a running execution comes to. Its
// owner died with the engine that was here before this one, which is just finding
// that out: the action ends it then.
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

// actor names who acts, for the audit trail.
func actor() string {
	name := "uid " + fmt.Sprint(os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	return name
}

func (a *app) signalCommand() *cobra.Command {
	var payload string
	c := &cobra.Command{
		Use: "signal ID NAME", Short: "Deliver a signal to an execution", Args: exactly("the id of an execution",
			"the signal's name"),
		Long:              "Deliver a signal to an execution. It is kept if nobody waits for it yet.",
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := named(c)
			id, err := a.executionID(ctx, args[0])
			if err != nil {
				return err
			}
			s := belay.SignalRequest{
				Execution: id, Name: args[1], Payload: json.RawMessage(payload), Op: belay.OpID(embedded.NewID()),
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
	c.Flags().StringVar(&payload, "payload", "", "what it carries, as `JSON`, up to 64 KiB")
	return c
}

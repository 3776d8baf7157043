package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) workersCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "workers", Short: "List, drain or cordon workers", Args: none,
		Long: "List the workers, and the owners from outside (programs that are no workers and have locked an\n" +
			"execution); or drain a worker, so that it claims nothing more, finishes its runs and ends; or\n" +
			"cordon a worker, so that it claims nothing until it is uncordoned.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.workersLsCommand(), a.workersDrainCommand(), a.workersCordonCommand(false),
		a.workersCordonCommand(true))
	return c
}

func (a *app) workersLsCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "ls", Short: "List workers, connected ones first", Args: none,
		Long: "List workers, connected workers first. -o wide also shows the internal queues of belay run.",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.reading(c.Context(), func(r reader) error {
				workers, err := r.Workers(c.Context())
				if err != nil {
					return err
				}
				if !all {
					workers = slices.DeleteFunc(workers, func(w belay.Worker) bool { return w.State.Ended() })
				}
				return a.listWorkers(workers)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "list workers that have ended too")
	return a.readFlag(c)
}

func (a *app) listWorkers(workers []belay.Worker) error {
	if a.output == "json" {
		if workers == nil {
			workers = []belay.Worker{}
		}
		return screen.PrintJSON(a.out, workers)
	}
	if len(workers) == 0 {
		fmt.Fprintln(a.out, "no workers")
		return nil
	}
	t := screen.NewTable(a.out, "ID", "NAME", "STATE", "RUNNING", "QUEUES", "HEARTBEAT", "ABOUT")
	for i := range workers {
		w := &workers[i]
		about, beat := strings.TrimSpace(w.Process.Host+" "+w.Version), since(w.HeartbeatAt)+" ago"
		if w.HealthError != "" {
			about = "unhealthy for " + since(w.UnhealthySince) + ": " + w.HealthError
		}
		switch {
		case w.State.Ended():
			about, beat = w.EndReason, "-"
		case w.External:
			about = "from outside; " + countdown(w)
		case w.Cordoned != nil:
			about = strings.TrimSuffix(cordonOf(w.Cordoned)+"; "+about, "; ")
		}
		t.Row(w.ID.String(), w.Name, w.State.String(), fmt.Sprintf("%d/%d", w.Running, w.Capacity),
			a.queuesOf(w), beat, about)
	}
	return t.Flush()
}

// cordonOf says since when a worker is cordoned, by whom and why.
func cordonOf(c *belay.Cordoned) string {
	what := "cordoned"
	if !c.Since.IsZero() {
		what += " " + since(c.Since) + " ago"
	}
	return done(what, c.By, c.Reason)
}

// queuesOf lists the queues of a worker. Text output leaves out the queues of a belay run, which
// take one execution each.
func (a *app) queuesOf(w *belay.Worker) string {
	queues := slices.Clone(w.Queues)
	if !a.wide() {
		queues = slices.DeleteFunc(queues, func(q string) bool { return strings.HasPrefix(q, agent.RunQueue) })
	}
	if w.External || len(queues) == 0 {
		return "-"
	}
	return screen.Brief(strings.Join(queues, ","), 40)
}

// countdown says when a worker's lease ends unless a heartbeat renews it. It computes the time with
// this machine's clock, so the text is only for people.
func countdown(w *belay.Worker) string {
	if d := time.Until(w.ExpiresAt); d > 0 {
		return "its lease ends in " + screen.Short(d)
	}
	return "its lease has ended"
}

func (a *app) workersDrainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "drain ID", Short: "Let a worker finish its runs and end", Args: exactly("the id of a worker"),
		Long: "Drain a worker: it claims nothing more, and its runs may finish within the worker's --grace. Runs\n" +
			"that do not finish are released, and other workers take them at once. ID is the id of a worker,\n" +
			"the last characters of the id, or the worker's name.",
		ValidArgsFunction: a.completeWorkers,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := named(c)
			id, err := a.workerID(ctx, args[0])
			if err != nil {
				return err
			}
			return a.writing(ctx, func(b belay.Backend) error {
				if err := b.Drain(ctx, id); err != nil {
					return err
				}
				if a.output == "json" {
					return screen.PrintJSON(a.out, map[string]any{"id": id, "state": belay.WorkerDraining})
				}
				fmt.Fprintf(a.out, "%s is draining\n", id)
				return nil
			})
		},
	}
}

// workersCordonCommand returns the command that cordons a worker, or with off uncordons it.
func (a *app) workersCordonCommand(off bool) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "cordon NAME", Short: "Stop a worker from claiming for now", Args: exactly("the name or id of a worker"),
		Long: "Cordon a worker: it claims nothing until belay workers uncordon, and keeps its runs. A cordon outlives\n" +
			"restarts of the server. It ends with the worker's session: a worker that is started again is not\n" +
			"cordoned. Executions with on_no_worker fail count a cordoned worker as connected. NAME is the worker's\n" +
			"name, its id, or the last characters of the id. The list of workers and belay explain show who\n" +
			"cordoned the worker, since when, and the reason; a second cordon changes the reason.\n\n" +
			"  belay workers cordon builder-1 --reason 'its disk is failing'",
		ValidArgsFunction: a.completeWorkers,
	}
	state := belay.WorkerCordoned
	if !off {
		c.Flags().StringVar(&reason, "reason", "", "the reason, which belay workers ls and belay explain show")
		_ = c.RegisterFlagCompletionFunc("reason", cobra.NoFileCompletions)
	} else {
		c.Use, c.Short, state = "uncordon NAME", "Let a cordoned worker claim again", belay.WorkerOpen
		c.Long = "Let a cordoned worker claim executions again, at once. NAME is the worker's name, its id, or the last\n" +
			"characters of the id."
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx := named(c)
		id, err := a.workerID(ctx, args[0])
		if err != nil {
			return err
		}
		return a.writing(ctx, func(b belay.Backend) error {
			if err := b.Cordon(ctx, belay.Cordon{Worker: id, Off: off, Actor: actor(), Reason: reason}); err != nil {
				return err
			}
			if a.output == "json" {
				return screen.PrintJSON(a.out, map[string]any{"id": id, "state": state})
			}
			fmt.Fprintf(a.out, "%s is %s\n", id, state)
			return nil
		})
	}
	return c
}

// workerID returns the id of the worker that an argument names. The argument is a whole id or, for
// a worker that has not ended, its name or the end of its id. workerID refuses an argument that
// matches several workers.
func (a *app) workerID(ctx context.Context, arg string) (belay.WorkerID, error) {
	if strings.HasPrefix(arg, "wk_") {
		return belay.ParseWorkerID(arg)
	}
	var found []belay.WorkerID
	err := a.reading(ctx, func(r reader) error {
		workers, err := r.Workers(ctx)
		for i := range workers {
			w := &workers[i]
			if !w.State.Ended() && (w.Name == arg || len(arg) >= 4 && strings.HasSuffix(w.ID.String(), arg)) {
				found = append(found, w.ID)
			}
		}
		return err
	})
	switch {
	case err != nil:
		return belay.WorkerID{}, err
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return belay.WorkerID{}, usage("%q matches %d workers; give the complete id of one, as `belay workers ls` shows it",
			arg, len(found))
	}
	return belay.WorkerID{}, &belay.Error{
		Code: belay.CodeNotFound, Message: "no connected worker has the id, the end of an id, or the name " +
			quoted(arg) + "; `belay workers ls` lists them",
	}
}

// completeWorkers offers to the shell the workers that have not ended.
func (a *app) completeWorkers(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var ids []string
	if len(args) == 0 {
		_ = a.reading(c.Context(), func(r reader) error {
			workers, err := r.Workers(c.Context())
			for i := range workers {
				if !workers[i].State.Ended() {
					ids = append(ids, workers[i].ID.String()+"\t"+workers[i].Name)
				}
			}
			return err
		})
	}
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) runsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "runs", Short: "Show the runs of all executions", Args: none,
		Long: `Show the runs (attempts) of all executions:

  belay runs ls                                   the runs that started last
  belay runs ls --worker ID --since 1h            what a worker ran in the last hour
  belay runs ls --outcome lost                    the runs whose worker was lost
  belay runs ls --outcome running                 the runs that have not ended`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.runsLsCommand())
	return c
}

// attemptFlags are the flags that select runs.
type attemptFlags struct {
	belay.RunFilter
	worker, outcome, since, until string
	limit                         int
}

// outcomeWords are the values of --outcome.
func outcomeWords() []string {
	words := []string{"running"}
	for o := belay.OutcomeSucceeded; o <= belay.OutcomeCancelled; o++ {
		words = append(words, o.String())
	}
	return words
}

// filter checks the flags.
func (f *attemptFlags) filter(now time.Time) (_ belay.RunFilter, err error) {
	if f.worker != "" {
		if f.Worker, err = belay.ParseWorkerID(f.worker); err != nil {
			return f.RunFilter, usage("--worker is %s; give the id of a worker, as `belay workers` shows it",
				quoted(f.worker))
		}
	}
	if f.outcome != "" {
		if !slices.Contains(outcomeWords(), f.outcome) {
			return f.RunFilter, usage("--outcome is %s; it can be %s", quoted(f.outcome),
				strings.Join(outcomeWords(), ", "))
		}
		if f.Running = f.outcome == "running"; !f.Running {
			if err := f.Outcome.UnmarshalText([]byte(f.outcome)); err != nil {
				return f.RunFilter, err
			}
		}
	}
	if f.limit < 1 {
		return f.RunFilter, usage("--limit is %d; it must be 1 at least", f.limit)
	}
	if f.Since, err = timeFlag("since", f.since, now); err == nil {
		f.Until, err = timeFlag("until", f.until, now)
	}
	return f.RunFilter, err
}

func (a *app) runsLsCommand() *cobra.Command {
	var flags attemptFlags
	c := &cobra.Command{
		Use: "ls", Short: "List runs, the run that started last first", Args: none,
		Long: "List the runs of all executions, the run that started last first. belay get ID shows the runs of one\n" +
			"execution.",
		RunE: func(c *cobra.Command, _ []string) error {
			f, err := flags.filter(time.Now())
			if err != nil {
				return err
			}
			return a.reading(c.Context(), func(r reader) error {
				var all []belay.RunRecord
				for f.Limit = min(flags.limit+1, 1000); ; {
					page, err := r.ListRuns(c.Context(), f)
					if err != nil {
						return err
					}
					all = append(all, page.Runs...)
					if f.Cursor = page.Next; f.Cursor == "" || len(all) > flags.limit {
						break
					}
				}
				more := len(all) > flags.limit
				if err := a.printRuns(all[:min(flags.limit, len(all))]); err != nil || !more {
					return err
				}
				fmt.Fprintf(a.err, "belay: there are more than %d; list more of them with --limit\n", flags.limit)
				return nil
			})
		},
	}
	s := c.Flags()
	s.StringVar(&flags.worker, "worker", "", "list only runs of the worker with this `id`")
	s.StringVar(&flags.Workflow, "workflow", "", "list only runs of this `workflow`")
	s.StringVar(&flags.outcome, "outcome", "", "list only runs that ended in this way, or running: the runs that have "+
		"not ended")
	s.StringVar(&flags.since, "since", "", "list only runs that started since this `time`, as 2026-11-20T08:00:00Z or a "+
		"duration ago like 2h")
	s.StringVar(&flags.until, "until", "", "list only runs that started before this `time`, as 2026-11-20T08:00:00Z or "+
		"a duration ago like 2h")
	s.IntVarP(&flags.limit, "limit", "n", 100, "the largest number of runs to list")
	_ = c.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions(outcomeWords(),
		cobra.ShellCompDirectiveNoFileComp))
	return a.readFlag(c)
}

func (a *app) printRuns(all []belay.RunRecord) error {
	if a.output == "json" {
		if all == nil {
			all = []belay.RunRecord{}
		}
		return screen.PrintJSON(a.out, all)
	}
	if len(all) == 0 {
		fmt.Fprintln(a.out, "no runs")
		return nil
	}
	t := screen.NewTable(a.out, "EXECUTION", "WORKFLOW", "ATTEMPT", "OUTCOME", "AGE", "TOOK", "WORKER", "ERROR")
	for i := range all {
		r := &all[i]
		outcome, took, message := "running", since(r.StartedAt), ""
		if !r.EndedAt.IsZero() {
			outcome, took = r.Outcome.String(), screen.Short(r.EndedAt.Sub(r.StartedAt))
		}
		if r.Error != nil {
			message = screen.Brief(r.Error.Message, 60)
		}
		t.Row(r.Execution.String(), r.Workflow, fmt.Sprint(r.Attempt), outcome, since(r.StartedAt), took,
			r.Worker.String(), dash(message))
	}
	return t.Flush()
}

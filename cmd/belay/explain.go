package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
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
	return a.readFlag(&cobra.Command{
		Use: "explain ID", Short: "Say why an execution is in its state", Args: exactly("the id of an execution"),
		Long: "Say why an execution is in its state. The command prints the owner of the execution, or the\n" +
			"reason why no worker runs it; the time at which the engine checks the execution again; and any\n" +
			"problem of the engine that delays the execution.",
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
					x.Facts = append([]string{"when the last engine ended: " + x.Summary}, x.Facts...)
					x.Summary = idle + ". No execution continues until an engine runs: `belay serve` starts one, and so " +
						"does any belay run on this directory."
				} else if a.server == "" && a.store == "" && !x.State.Terminal() {
					x.Facts = append(x.Facts, a.engineFacts(c.Context())...)
				}
				x.Facts = append(x.Facts, stranded(c.Context(), r, id)...)
				if a.output == "json" {
					return screen.PrintJSON(a.out, x)
				}
				a.printExplanation(&x)
				return nil
			})
		},
	})
}

// printExplanation prints an explanation as a person reads it.
func (a *app) printExplanation(x *belay.Explanation) {
	fmt.Fprintf(a.out, "%s: %s\n", x.Execution, screen.Line(x.Summary))
	for _, f := range x.Facts {
		if !a.wide() {
			f = runQueue.ReplaceAllString(f, "")
		}
		fmt.Fprintf(a.out, "  - %s\n", screen.Line(f))
	}
}

// runQueue matches the part of an explanation that names the internal queue of a belay run command,
// and the advice to start a worker if it follows. No such worker would help, because only that
// command takes executions from the queue.
var runQueue = regexp.MustCompile(` from queue "` + regexp.QuoteMeta(agent.RunQueue) + `[^"]*"(; start such a worker)?`)

// stranded says how to continue an execution of a belay run command whose process has ended: no
// other worker takes the execution.
func stranded(ctx context.Context, r reader, id belay.ExecutionID) []string {
	e, err := r.Execution(ctx, id)
	if err != nil || e.State.Terminal() || !strings.HasPrefix(e.Queue, agent.RunQueue) || awaited(ctx, r, &e) {
		return nil
	}
	return []string{
		"only belay run runs this execution, and the belay run that began it has ended: to continue, type the same " +
			"line again, with --resume or its --key; to end the execution: `belay cancel " + id.String() + "`",
	}
}

// engineFacts lists the problems of the data directory's engine that keep an execution from
// continuing.
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

// noEngine returns a text that says that no engine runs on the data directory, and when the store
// last changed. It returns "" if an engine runs, if the command asks a server, or if it reads a
// database: a database does not show whether servers run on it, because idle servers write nothing.
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

// noteNoEngine prints a note below a list if no engine runs and an execution in the list has not
// ended: the state in the list is then from the time at which the last engine stopped.
func (a *app) noteNoEngine(list ...belay.Execution) {
	if !slices.ContainsFunc(list, func(e belay.Execution) bool { return !e.State.Terminal() }) {
		return
	}
	if idle := a.noEngine(); idle != "" {
		fmt.Fprintf(a.err, "belay: %s: the list shows the states of that time, and no execution continues until an "+
			"engine runs; belay explain ID says more\n", idle)
	}
}

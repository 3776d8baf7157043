package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) getCommand() *cobra.Command {
	var diff bool
	c := a.readFlag(&cobra.Command{
		Use: "get ID", Short: "Show one execution with its tasks and its history",
		Args: exactly("the id of an execution"),
		Long: "Show one execution with its history: by whom it was submitted and last modified, its runs, steps,\n" +
			"children and cost; for a document, also its tasks (see belay tasks). The line now names the steps and\n" +
			"waits that its run is busy with. A line of the history without a number is a step or wait that saved\n" +
			"nothing, such as a failed try. -o wide also shows the internal\n" +
			"queue and labels of a belay run, and the generation: 1, plus one for each time that the ended execution\n" +
			"was reopened. -o json also has the input, the trigger payload and all metrics. With --diff belay prints\n" +
			"only the changes that an ended job made to its repository, as a diff.",
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			id, err := a.executionID(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.reading(c.Context(), func(r reader) error {
				d, err := r.Detail(c.Context(), id)
				if err != nil {
					return err
				}
				e := d.Execution
				if diff {
					return a.printJobDiff(c.Context(), r, &e)
				}
				defer a.noteNoEngine(e)
				all, err := a.tasksOf(c.Context(), r, &e)
				if err != nil {
					return err
				}
				if a.output == "json" && all != nil {
					return screen.PrintJSON(a.out, withTasks{d, all.Tasks})
				} else if a.output == "json" {
					return screen.PrintJSON(a.out, d)
				}
				events, err := allEvents(c.Context(), r, belay.EventQuery{Execution: id})
				if err != nil {
					return err
				}
				if err := a.askedBy(c.Context(), r, &e); err != nil {
					return err
				}
				return a.show(&d, all, events, owner(c.Context(), r, &e), bulkProgress(c.Context(), r, &e, events))
			})
		},
	})
	c.Flags().BoolVar(&diff, "diff", false, "print the changes of an ended job as a diff")
	return c
}

// allEvents reads the events that a query selects, page by page.
func allEvents(ctx context.Context, r reader, q belay.EventQuery) ([]belay.Event, error) {
	var all []belay.Event
	for {
		events, err := r.Events(ctx, q)
		if err != nil || len(events) == 0 {
			return all, err
		}
		all = append(all, events...)
		q.After = events[len(events)-1].Seq
	}
}

// owner describes the worker that owns an execution, and the end of its lease. It returns "" if the
// execution has no owner.
func owner(ctx context.Context, r reader, e *belay.Execution) string {
	if e.Worker.IsZero() {
		return ""
	}
	workers, err := r.Workers(ctx)
	i := slices.IndexFunc(workers, func(w belay.Worker) bool { return w.ID == e.Worker })
	if err != nil || i < 0 {
		return e.Worker.String()
	}
	w := &workers[i]
	from := w.ID.String()
	if w.External {
		from = "from outside"
	}
	return fmt.Sprintf("%s, %s; %s", w.Name, from, countdown(w))
}

func (a *app) show(d *belay.ExecutionDetail, all *belay.TaskPage, events []belay.Event, owner, progress string) error {
	e := &d.Execution
	t := screen.NewTable(a.out)
	t.Row("id", e.ID.String())
	t.Row("workflow", strings.TrimSpace(e.Workflow+" "+e.Version))
	document := e.Document()
	if document != "" {
		t.Row("document", document)
	}
	t.Row("state", stateWord(e))
	if e.Reason != nil {
		t.Row("because", about(e))
	}
	if a.wide() || !strings.HasPrefix(e.Queue, agent.RunQueue) {
		t.Row("queue", e.Queue)
	}
	if e.Key != "" {
		t.Row("key", e.Key)
	}
	for _, k := range slices.Sorted(maps.Keys(e.Labels)) {
		shown := k == labelLine || document != "" && (k == belay.LabelDocument || k == belay.LabelDocumentVersion)
		if a.wide() || !shown {
			t.Row("label "+k, e.Labels[k])
		}
	}
	t.Row("attempt", fmt.Sprintf("%d, token %d", e.Attempt, e.Token))
	if a.wide() {
		t.Row("generation", fmt.Sprint(e.Generation))
	}
	if owner != "" {
		t.Row("owner", owner)
	}
	if len(e.Current) > 0 {
		t.Row("now", currentText(e))
	}
	if progress != "" {
		t.Row("progress", progress)
	}
	if !e.Parent.IsZero() {
		t.Row("parent", e.Parent.String()+" as "+e.ParentKey)
	}
	t.Row("submitted", whenBy(e.CreatedAt, e.CreatedBy))
	if !d.ModifiedAt.IsZero() {
		t.Row("modified", whenBy(d.ModifiedAt, d.ModifiedBy))
	}
	t.Row("took", took(e))
	showMetrics(t, d)
	if e.Error != nil {
		t.Row("error", e.Error.Class.String()+": "+e.Error.Message)
	}
	if pushed := agent.PushedOf(e); pushed != nil {
		t.Row("pushed", strings.TrimSpace(fmt.Sprintf("%s at %.12s %s", pushed.Branch, pushed.Commit, pushed.URL)))
		if pushed.OpenError != "" {
			t.Row("not opened", screen.Brief(pushed.OpenError, 200))
		}
	}
	if len(e.Output) > 0 {
		t.Row("output", screen.Brief(string(screen.Escaped(e.Output)), 200))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	if e.Error != nil && e.Error.Stack != "" {
		fmt.Fprintln(a.out, cleanLines(e.Error.Stack))
	}
	if all != nil {
		if err := a.printTasks(a.out, *all, e.ID); err != nil {
			return err
		}
		fmt.Fprintln(a.out)
	}
	tl := screen.NewTable(a.out, "SEQ", "TIME", "EVENT", "")
	for i := range events {
		ev := &events[i]
		for k := range ev.Steps {
			s := &ev.Steps[k]
			tl.Row("", clock(s.BeganAt), stepKind(s), stepText(s, ev.At))
		}
		tl.Row(fmt.Sprint(ev.Seq), clock(ev.At), ev.Kind, describe(ev))
	}
	return tl.Flush()
}

// describe renders the details of an event in one line: name, attempt, actor, text and error.
func describe(ev *belay.Event) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if ev.Name != "" {
		add("%s", ev.Name)
	}
	switch ev.Kind {
	case "started", "scheduled":
		add("attempt %d with token %d by %s", ev.Attempt, ev.Token, ev.Worker)
	case "step":
		if ev.Attempt > 1 {
			add("attempt %d", ev.Attempt)
		}
	}
	if ev.DurationMS > 0 {
		add("took %s", tookText(ev.DurationMS))
	}
	if ev.Actor != "" {
		add("by %s", ev.Actor)
	}
	if ev.Text != "" {
		add("%s", ev.Text)
	}
	if text := progressText(ev); text != "" {
		add("%s", text)
	}
	switch {
	case ev.Error == nil:
	case ev.Error.Class.String() == ev.Kind:
		add("%s", screen.Brief(ev.Error.Message, 160))
	default:
		add("%s: %s", ev.Error.Class, screen.Brief(ev.Error.Message, 160))
	}
	return strings.Join(parts, " · ")
}

func cleanLines(s string) string {
	return strings.ReplaceAll(screen.Text(s), "\t", "    ")
}

func (a *app) logsCommand() *cobra.Command {
	var name string
	var raw, follow bool
	c := &cobra.Command{
		Use: "logs ID", Short: "Print the output that an execution wrote, or one of its artifacts",
		Args: exactly("the id of an execution"),
		Long: `Print the output that an execution wrote, or the log or artifact that --name names.

The program that wrote the output is not trusted: escape sequences that would colour
the terminal, move its cursor or turn the direction of text are left out. With --raw
all bytes are printed unchanged. Artifacts and other logs are printed unchanged too,
unless standard output is a terminal.

With --follow belay prints what the execution writes until it ends, or until you press
Ctrl-C. Belay looks for more output every second.`,
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			id, err := a.executionID(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.reading(c.Context(), func(r reader) error {
				if raw || name != agent.OutputLog && !screen.IsTerminal(a.plain().out) {
					return a.copyLog(c.Context(), a.plain().out, r, id, name, follow)
				}
				w := screen.NewWriter(a.plain().out)
				return errors.Join(a.copyLog(c.Context(), w, r, id, name, follow), w.Flush())
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "print further output until the execution ends")
	c.Flags().BoolVar(&raw, "raw", false, "print all bytes unchanged, escape sequences too")
	c.Flags().StringVar(&name, "name", "output", "the log or artifact: `output`, or a name from the execution's result")
	return a.readFlag(c)
}

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/definition/tasks"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) tasksCommand() *cobra.Command {
	var state string
	c := &cobra.Command{
		Use: "tasks ID [TASK]", Short: "Show the tasks of an execution of a document",
		Long: "Show the tasks of an execution of a document, in the order of the document: state, attempt, duration,\n" +
			"error, and what a waiting task waits for. With the name of a task, show the items of its foreach, or\n" +
			"this one task. -o wide adds the ids of the executions that do the work; -o json has outputs too.",
		Example: "  belay tasks @last\n" +
			"  belay tasks @last --state failed\n" +
			"  belay tasks @last build --state failed      the items of build that have failed",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usage("%s takes the id of an execution, and the name of a task if you want its items",
					c.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: a.completeTask,
		RunE: func(c *cobra.Command, args []string) error {
			id, err := a.executionID(c.Context(), args[0])
			if err != nil {
				return err
			}
			q := belay.TaskQuery{Execution: id, State: belay.TaskState(state), Outputs: a.output == "json"}
			if len(args) == 2 {
				q.Task = args[1]
			}
			return a.reading(c.Context(), func(r reader) error {
				all, err := a.allTasks(c.Context(), r, q)
				if err != nil {
					return err
				}
				if a.output == "json" {
					return screen.PrintJSON(a.out, all)
				}
				return a.printTasks(a.out, all, id)
			})
		},
	}
	c.Flags().StringVar(&state, "state", "", "only tasks in this `state`: pending, running, waiting, succeeded, failed, "+
		"skipped, blocked or cancelled")
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(taskStateNames(),
		cobra.ShellCompDirectiveNoFileComp))
	return a.readFlag(c)
}

func taskStateNames() []string {
	var names []string
	for _, s := range belay.TaskStates {
		names = append(names, string(s))
	}
	return names
}

// completeTask offers ids of executions, and then the tasks of the execution.
func (a *app) completeTask(c *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeIDs(c, args, part)
	}
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 1 || a.readStore(c) != nil {
		return nil, none
	}
	return a.taskNames(c.Context(), args[0]), none | cobra.ShellCompDirectiveKeepOrder
}

// taskNames returns the tasks of an execution with their states, for completion; nil if there are none.
func (a *app) taskNames(ctx context.Context, arg string) []string {
	id, err := a.executionID(ctx, arg)
	if err != nil {
		return nil
	}
	var names []string
	_ = a.reading(ctx, func(r reader) error {
		all, err := a.allTasks(ctx, r, belay.TaskQuery{Execution: id})
		if err != nil {
			return err
		}
		for i := range all.Tasks {
			names = append(names, all.Tasks[i].ID+"\t"+string(all.Tasks[i].State))
		}
		return nil
	})
	return names
}

// readTasks reads a page of tasks. A server computes it; otherwise this process does.
func (a *app) readTasks(ctx context.Context, r reader, q belay.TaskQuery) (belay.TaskPage, error) {
	if c, ok := r.(*client.Client); ok && a.server != "" {
		return c.Tasks(ctx, q)
	}
	return a.viewer.List(ctx, r, q)
}

// allTasks reads all pages of tasks.
func (a *app) allTasks(ctx context.Context, r reader, q belay.TaskQuery) (belay.TaskPage, error) {
	q.Limit = tasks.MaxLimit
	var all belay.TaskPage
	for {
		page, err := a.readTasks(ctx, r, q)
		if err != nil {
			return all, err
		}
		page.Tasks = append(all.Tasks, page.Tasks...)
		all = page
		if all.Next == "" {
			return all, nil
		}
		q.Cursor = all.Next
	}
}

// printTasks prints tasks as a table.
func (a *app) printTasks(w io.Writer, all belay.TaskPage, id belay.ExecutionID) error {
	head := []string{"TASK", "STATE", "ATTEMPT", "TOOK", ""}
	if a.wide() {
		head = slices.Insert(head, 4, "EXECUTION")
	}
	t := screen.NewTable(w, head...)
	for i := range all.Tasks {
		x := &all.Tasks[i]
		attempt, child := "-", "-"
		if x.Attempt > 0 {
			attempt = fmt.Sprint(x.Attempt)
		}
		row := []string{x.ID, string(x.State), attempt, tookTask(x), screen.Brief(aboutTask(x, id), 160)}
		if a.wide() {
			if !x.Execution.IsZero() {
				child = x.Execution.String()
			}
			row = slices.Insert(row, 4, child)
		}
		t.Row(row...)
	}
	return t.Flush()
}

// tookTask returns how long a task ran, or has run so far.
func tookTask(x *belay.Task) string {
	switch {
	case x.StartedAt.IsZero():
		return "-"
	case x.EndedAt.IsZero():
		return screen.Short(time.Since(x.StartedAt))
	}
	return screen.Short(x.EndedAt.Sub(x.StartedAt))
}

// aboutTask returns the fact about a task that a table shows.
func aboutTask(x *belay.Task, id belay.ExecutionID) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if n := x.Items; n != nil {
		add("%d of %s done", n.Succeeded, screen.Plural(n.Total, "item"))
		if n.Failed > 0 {
			add("%d failed", n.Failed)
		}
		if n.Open > 0 {
			add("%d under way", n.Open)
		}
	}
	if x.ByHand != nil {
		text := "skipped by hand"
		if x.ByHand.By != "" {
			text += " by " + x.ByHand.By
		}
		if x.ByHand.Note != "" {
			text += ": " + x.ByHand.Note
		}
		add("%s", text)
	}
	if q := x.Question; q != nil {
		if q.Message != "" {
			add("%s", q.Message)
		}
		payload := ""
		if q.Approval {
			payload = ` --payload '{"approved": true}'`
		}
		add("answer with: belay signal %s %s%s", id, q.Signal, payload)
	}
	switch {
	case x.State == belay.TaskFailed || x.State == belay.TaskCancelled:
		if x.Error != "" {
			add("%s", x.Error)
		}
	case x.WaitsFor != "":
		add("%s", x.WaitsFor)
	case x.State == belay.TaskPending && x.Compensates:
		add("undoes %s after a failure", x.Needs[0])
	case x.State == belay.TaskPending && len(x.Needs) > 0:
		add("after %s", strings.Join(x.Needs, ", "))
	}
	return strings.Join(parts, "; ")
}

// withTasks is an execution with its tasks, if it runs a document.
type withTasks struct {
	belay.ExecutionDetail
	Tasks []belay.Task `json:"tasks,omitempty"`
}

// tasksOf reads the tasks of an execution; nil if it does not run a document, or a document that cannot be read.
func (a *app) tasksOf(ctx context.Context, r reader, e *belay.Execution) (*belay.TaskPage, error) {
	if !tasks.IsDocument(e) {
		return nil, nil
	}
	all, err := a.allTasks(ctx, r, belay.TaskQuery{Execution: e.ID, Outputs: a.output == "json"})
	if belay.CodeOf(err) == belay.CodeInvalid {
		return nil, nil // the error of the execution itself says why it cannot be read
	}
	return &all, err
}

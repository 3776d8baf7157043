package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/definition/tasks"
)

// retryFlags are the flags of belay retry.
type retryFlags struct {
	input, reason string
	from, skip    []string
}

func (a *app) retryCommand() *cobra.Command {
	var f retryFlags
	c := &cobra.Command{
		Use: "retry ID", Short: "Run a failed or cancelled execution again", Args: exactly("the id of an execution"),
		Long: "Run a failed or cancelled execution again under the same id. Steps that have finished do not run\n" +
			"again. With --input the execution starts over with another input, and all steps run again; the\n" +
			"history calls this a requeue.\n\n" +
			"With --from the results of the named step or wait, and all results that were saved after it, are\n" +
			"discarded, and this work is done again. A discarded wait waits again: send its signal once\n" +
			"more. Steps of branches and with keys have names like branch/step[key]; belay get ID shows them.\n\n" +
			"For a document, --from names a task: this task and all tasks that depend on it run again, and other\n" +
			"tasks that have succeeded do not. --skip names a task that does not run; it counts as succeeded, with\n" +
			"the output after the =, which is JSON. Both flags may be repeated. --input is the input of the document.",
		Example: "  belay retry ID --from approved --reason 'the answer had the wrong type'\n" +
			"  belay retry ID --from build\n" +
			"  belay retry ID --skip upload='{\"url\": \"https://example.org/42\"}' --reason 'uploaded by hand'\n" +
			"  belay retry ID --skip 'build[7]=null'       one item of a foreach",
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := named(c)
			id, err := a.executionID(ctx, args[0])
			if err != nil {
				return err
			}
			return a.writing(ctx, func(b belay.Backend) error { return a.retry(ctx, b, id, &f) })
		},
	}
	c.Flags().StringVar(&f.input, "input", "", "start over with another input, as `JSON`; all steps run again")
	c.Flags().StringArrayVar(&f.from, "from", nil,
		"run this `step` or wait again, and all work that was saved after it; or this task, and all that depend on it")
	c.Flags().StringArrayVar(&f.skip, "skip", nil, "do not run this task of a document: `TASK` or TASK=OUTPUT")
	c.Flags().StringVar(&f.reason, "reason", "", "the reason, which the history records")
	_ = c.RegisterFlagCompletionFunc("from", a.completeFrom)
	_ = c.RegisterFlagCompletionFunc("skip", func(c *cobra.Command, args []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		if len(args) != 1 {
			return nil, none
		}
		return a.taskNames(c.Context(), args[0]), none | cobra.ShellCompDirectiveKeepOrder
	})
	return c
}

// completeFrom completes the tasks of a document, or the steps of another execution.
func (a *app) completeFrom(c *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 1 {
		if names := a.taskNames(c.Context(), args[0]); names != nil {
			return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		}
	}
	return a.completeSteps(c, args, part)
}

func (a *app) retry(ctx context.Context, b belay.Backend, id belay.ExecutionID, f *retryFlags) error {
	e, err := b.Execution(ctx, id)
	if err != nil {
		return err
	}
	document := tasks.IsDocument(&e)
	switch {
	case f.input != "" && len(f.from)+len(f.skip) > 0:
		return usage("with --input all work is done again, so give it without --from and --skip")
	case len(f.skip) > 0 && !document:
		return usage("--skip is for documents, and %s runs the workflow %s", id, quoted(e.Workflow))
	case len(f.from) > 1 && !document:
		return usage("--from may be repeated only for documents, and %s runs the workflow %s", id, quoted(e.Workflow))
	}
	if document && len(f.from)+len(f.skip) > 0 {
		e, err = a.repair(ctx, b, id, f)
	} else {
		e, err = a.reopen(ctx, b, id, f, document)
	}
	if err != nil {
		return err
	}
	return a.printOutcome(ctx, b, e)
}

// reopen retries an execution, or requeues it with another input.
func (a *app) reopen(ctx context.Context, b belay.Backend, id belay.ExecutionID, f *retryFlags,
	document bool) (belay.Execution, error) {
	c := belay.Control{
		Execution: id, Action: belay.ActionRetry, Actor: actor(), Reason: f.reason, Op: belay.OpID(embedded.NewID()),
	}
	if len(f.from) > 0 {
		c.From = f.from[0]
	}
	if f.input != "" {
		c.Action, c.Input = belay.ActionRequeue, json.RawMessage(f.input)
		if document && !json.Valid(c.Input) {
			return belay.Execution{}, usage("--input is not valid JSON")
		}
		if document && !isWholeInput(c.Input) {
			var err error
			if c.Input, err = a.viewer.NewInput(ctx, b, id, c.Input); err != nil {
				return belay.Execution{}, err
			}
		}
	}
	return b.Control(ctx, c)
}

// isWholeInput reports whether an input has a document, so that it replaces the document too.
func isWholeInput(input json.RawMessage) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(input, &m) == nil && m["document"] != nil && m["hash"] != nil
}

// repair runs a document again from some tasks on, or without some tasks. A server stores the repair; otherwise this
// process does.
func (a *app) repair(ctx context.Context, b belay.Backend, id belay.ExecutionID, f *retryFlags) (belay.Execution,
	error) {
	r := belay.Repair{
		Execution: id, From: f.from, Actor: actor(), Reason: f.reason, Op: belay.OpID(embedded.NewID()),
	}
	for _, text := range f.skip {
		name, output, given := strings.Cut(text, "=")
		skip := belay.TaskSkip{Task: name}
		if given {
			skip.Output = json.RawMessage(output)
			if !json.Valid(skip.Output) {
				return belay.Execution{}, usage("the output of %s is not valid JSON: %s", quoted(name), quoted(output))
			}
		}
		r.Skip = append(r.Skip, skip)
	}
	if c, ok := b.(*client.Client); ok && a.server != "" {
		return c.Repair(ctx, r)
	}
	return a.viewer.Repair(ctx, b, r)
}

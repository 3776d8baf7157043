package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
)

// editFlags are the flags of a command that creates or changes a schedule, a webhook or a target.
type editFlags struct {
	version int
	isNew   bool
	reason  string
}

// register adds the flags; thing is schedule, webhook or target.
func (f *editFlags) register(c *cobra.Command, thing string) {
	c.Flags().IntVar(&f.version, "if-version", 0, "change the "+thing+" only if it has this `version`")
	c.Flags().BoolVar(&f.isNew, "new", false, "create the "+thing+" only if there is none of this name")
	c.Flags().StringVar(&f.reason, "reason", "", "the reason, which the audit records")
}

// printEdited prints what a put has done.
func (a *app) printEdited(name string, created, changed bool, version int) {
	word := "is unchanged"
	switch {
	case created:
		word = "is created"
	case changed:
		word = "is changed"
	}
	fmt.Fprintf(a.out, "%s %s (version %d)\n", name, word, version)
}

// editCommand returns a command with which an operator acts on one schedule, webhook or target; thing is "the name of a
// schedule", for example. act carries out the action and prints its result.
func (a *app) editCommand(
	c *cobra.Command, thing string, complete cobra.CompletionFunc,
	act func(ctx context.Context, b belay.Backend, name, reason string) error,
) *cobra.Command {
	reason := ""
	c.Args, c.ValidArgsFunction = exactly(thing), complete
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx := named(c)
		return a.writing(ctx, func(b belay.Backend) error { return act(ctx, b, args[0], reason) })
	}
	c.Flags().StringVar(&reason, "reason", "", "the reason, which the audit records")
	return c
}

// listCommand returns the command that lists things, such as schedules.
func (a *app) listCommand(
	things, long string, list func(ctx context.Context, r reader, limit int) error,
) *cobra.Command {
	limit := 0
	c := &cobra.Command{
		Use: "ls", Short: "List the " + things, Args: none, Long: long,
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 {
				return usage("--limit is %d; it must be 1 at least", limit)
			}
			return a.reading(c.Context(), func(r reader) error { return list(c.Context(), r, limit) })
		},
	}
	c.Flags().IntVarP(&limit, "limit", "n", 1000, "the largest number of "+things+" to list")
	return a.readFlag(c)
}

// upTo reads pages until it has limit items, and prints a note if there are more. next is the cursor of the next page.
func upTo[T any](
	a *app, limit int, page func(cursor string, most int) (items []T, next string, err error),
) ([]T, error) {
	all := []T{}
	for cursor := ""; ; {
		items, next, err := page(cursor, min(limit, 1000))
		if err != nil {
			return nil, err
		}
		all, cursor = append(all, items...), next
		if len(all) > limit || len(all) == limit && cursor != "" {
			fmt.Fprintf(a.err, "belay: there are more than %d; list more of them with --limit\n", limit)
			return all[:limit], nil
		}
		if cursor == "" {
			return all, nil
		}
	}
}

// completeNamed offers names to the shell for the first argument.
func (a *app) completeNamed(list func(ctx context.Context, r reader) (names []string, err error)) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		_ = a.reading(c.Context(), func(r reader) (err error) {
			names, err = list(c.Context(), r)
			return err
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// wired converts schedules, webhooks or targets to the JSON of the HTTP API.
func wired[T, W any](all []T, of func(*T) W) []W {
	out := make([]W, len(all))
	for i := range all {
		out[i] = of(&all[i])
	}
	return out
}

// namedFirst requires a name as the first argument and before --; thing is schedule or webhook.
func namedFirst(thing, example string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 || c.ArgsLenAtDash() == 0 {
			return usage("name the %s, as in: %s %s", thing, c.CommandPath(), example)
		}
		return nil
	}
}

// countsOf formats the counts of outcomes, in this order, and leaves out zeros.
func countsOf[K ~string](counts map[K]int64, order ...K) string {
	texts := make([]string, 0, len(order))
	for _, k := range order {
		if n := counts[k]; n > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", n, k))
		}
	}
	return strings.Join(texts, ", ")
}

func idOrDash(id belay.ExecutionID) string {
	if id.IsZero() {
		return "-"
	}
	return id.String()
}

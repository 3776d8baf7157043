package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/agentapi"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) lsCommand() *cobra.Command {
	var f belay.Filter
	var states, labels []string
	var parent, document string
	c := &cobra.Command{
		Use: "ls", Short: "List executions, newest first", Args: none,
		Long: "List executions, newest first. Child executions are listed only with --children or --parent.",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := parseFilter(&f, states, labels); err != nil {
				return err
			}
			if err := byDocument(&f, document); err != nil {
				return err
			}
			if parent != "" {
				id, err := a.executionID(c.Context(), parent)
				if err != nil {
					return err
				}
				f.Parent = id
			}
			return a.reading(c.Context(), func(r reader) error {
				page, err := search(c.Context(), r, f)
				if err != nil {
					return err
				}
				defer a.noteNoEngine(page.Executions...)
				return a.list(page)
			})
		},
	}
	c.Flags().StringSliceVar(&states, "state", nil, "list only executions in these `states`; active means all "+
		"executions that have not ended")
	c.Flags().StringSliceVar(&labels, "label", nil, "list only executions with these labels, as `name=value`")
	c.Flags().StringVar(&f.Workflow, "workflow", "", "list only executions of this workflow")
	c.Flags().StringVar(&document, "document", "",
		"list only executions of this stored document, `NAME` or NAME@VERSION")
	c.Flags().StringVar(&f.Queue, "queue", "", "list only executions of this queue")
	c.Flags().StringVar(&f.Error, "error", "", "list only executions whose error contains this `text`")
	c.Flags().BoolVar(&f.Children, "children", false, "list child executions too")
	c.Flags().StringVar(&parent, "parent", "", "list only the children of this execution")
	c.Flags().StringVar(&f.Cursor, "after", "", "begin after this `id`, the last id of an earlier list")
	c.Flags().IntVarP(&f.Limit, "limit", "n", 50, "the largest number of executions to list")
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(append(stateNames(), "active"),
		cobra.ShellCompDirectiveNoFileComp))
	return a.readFlag(c)
}

// byDocument adds the labels of a stored document to a filter.
func byDocument(f *belay.Filter, document string) error {
	if document == "" {
		return nil
	}
	ref, err := documentRef(document)
	if err != nil {
		return err
	}
	if f.Labels == nil {
		f.Labels = make(map[string]string)
	}
	f.Labels[belay.LabelDocument] = ref.Name
	if ref.Version > 0 {
		f.Labels[belay.LabelDocumentVersion] = strconv.Itoa(ref.Version)
	}
	return nil
}

// searchFor is how long ls continues to search when few executions match the filter.
const searchFor = 3 * time.Second

// search lists as many executions as the filter requests. Each call of Executions reads a limited
// number of executions; search repeats the call, from the place where the last call ended, until
// searchFor has passed.
func search(ctx context.Context, r reader, f belay.Filter) (belay.Page, error) {
	var all belay.Page
	for end := time.Now().Add(searchFor); ; {
		page, err := r.Executions(ctx, f)
		if err != nil {
			return all, err
		}
		all = belay.Page{
			Executions: append(all.Executions, page.Executions...), Next: page.Next, SearchedUntil: page.SearchedUntil,
		}
		if page.SearchedUntil.IsZero() || !time.Now().Before(end) {
			return all, nil
		}
		f.Cursor, f.Limit = page.Next, f.Limit-len(page.Executions)
	}
}

func parseFilter(f *belay.Filter, states, labels []string) error {
	if f.Limit < 1 || f.Limit > 1000 {
		return usage("--limit is %d; it can be 1 to 1000", f.Limit)
	}
	for _, s := range states {
		if s == "active" {
			f.States = append(f.States, belay.ActiveStates()...)
			continue
		}
		var state belay.State
		if err := state.UnmarshalText([]byte(s)); err != nil || s == "" {
			return usage("--state %s is no state; the states are %s, and active, which means all that have not ended",
				quoted(s), strings.Join(stateNames(), ", "))
		}
		f.States = append(f.States, state)
	}
	var err error
	f.Labels, err = pairs("label", labels)
	return err
}

func stateNames() []string {
	var names []string
	for s := belay.Pending; s <= belay.Cancelled; s++ {
		names = append(names, s.String())
	}
	return names
}

func (a *app) list(page belay.Page) error {
	if a.output == "json" {
		if !page.SearchedUntil.IsZero() {
			a.more(a.err, page)
		}
		return screen.PrintJSON(a.out, page.Executions)
	}
	if len(page.Executions) == 0 {
		if page.Next == "" {
			fmt.Fprintln(a.out, "no executions")
		}
		a.more(a.out, page)
		return nil
	}
	t := screen.NewTable(a.out, "ID", "WORKFLOW", "STATE", "ATTEMPT", "AGE", "TOOK", "ABOUT")
	for i := range page.Executions {
		e := &page.Executions[i]
		t.Row(e.ID.String(), e.Workflow, stateWord(e), fmt.Sprint(e.Attempt), since(e.CreatedAt), took(e), about(e))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	a.more(a.out, page)
	return nil
}

// more prints the command that lists the next page, if there is one.
func (a *app) more(w io.Writer, page belay.Page) {
	switch {
	case page.Next == "":
	case page.SearchedUntil.IsZero():
		fmt.Fprintf(w, "there are more: belay ls --after %s\n", page.Next)
	default:
		fmt.Fprintf(w, "searched executions back to %s; to search older ones: belay ls --after %s\n",
			page.SearchedUntil.Local().Format(time.DateTime), page.Next)
	}
}

// stateWord returns the state of an execution, or "cancelling" or "pausing".
func stateWord(e *belay.Execution) string {
	switch {
	case !e.CancelBy.IsZero():
		return "cancelling"
	case e.PauseRequested:
		return "pausing"
	}
	return e.State.String()
}

func took(e *belay.Execution) string {
	switch {
	case e.StartedAt.IsZero():
		return "-"
	case e.FinishedAt.IsZero():
		return since(e.StartedAt)
	}
	return screen.Short(e.FinishedAt.Sub(e.StartedAt))
}

// about returns the most useful fact about an execution for a list, in one line: its error, the
// reason why it waits, or the command that it runs.
func about(e *belay.Execution) string {
	text := ""
	switch {
	case e.Error != nil:
		text = e.Error.Message
	case e.Reason != nil:
		text = e.Reason.Code
		if e.Reason.Text != "" {
			text += ": " + e.Reason.Text
		}
		if d := time.Until(e.Reason.Until); d > 0 {
			text += " (in " + screen.Short(d) + ")"
		}
	case e.Document() != "":
		text = e.Document()
	default:
		for _, k := range slices.Sorted(maps.Keys(e.Labels)) {
			if k == agent.LabelCommand || k == agentapi.LabelPrompt && e.Workflow == agentapi.Workflow {
				text = e.Labels[k]
			}
		}
	}
	if line, _, ok := strings.Cut(text, "\n"); ok {
		text = line + " …"
	}
	if r := []rune(text); len(r) > 80 {
		text = string(r[:79]) + "…"
	}
	return text
}

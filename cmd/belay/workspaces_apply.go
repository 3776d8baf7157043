package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/screen"
)

// applied is the JSON output of belay workspaces apply.
type applied struct {
	Execution string `json:"execution,omitempty"`
	workspace.Applied
	Commits int `json:"commits"`
	// Lost describes the work that Belay could not keep. DryRun says that nothing was changed.
	Lost   string `json:"lost,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (s *spaces) applyCommand() *cobra.Command {
	a := workspace.Application{Dir: "."}
	c := &cobra.Command{
		Use: "apply ID", Short: "Apply the work of an execution to a clone of yours",
		Args: exactly("the id of an execution or workspace"),
		Long: "Make a new branch in a clone of yours with the commits of an execution, switch to it, and leave the\n" +
			"execution's uncommitted changes in the files. The clone must have the commit from which the execution\n" +
			"started, and no uncommitted changes. Hooks do not run. The files come from an agent: look at them before\n" +
			"you run or build them.",
		ValidArgsFunction: s.completeWork,
		RunE: func(c *cobra.Command, args []string) error {
			w, err := s.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			return s.apply(c.Context(), w, a)
		},
	}
	c.Flags().StringVar(&a.Dir, "repo", a.Dir, "the `directory` of your clone")
	_ = c.MarkFlagDirname("repo")
	c.Flags().StringVar(&a.Branch, "branch", "", "the `name` of the new branch; belay/ and the id unless given")
	c.Flags().BoolVar(&a.Dry, "dry-run", false, "list the changes, and change nothing")
	c.Flags().BoolVar(&a.Dirty, "dirty", false, "apply the work although the clone has uncommitted changes")
	return c
}

func (s *spaces) apply(ctx context.Context, w *work, a workspace.Application) error {
	if w.Commit == "" {
		return &belay.Error{Code: belay.CodeNotFound, Message: "the commit at which the work began is not known"}
	}
	if a.Commit = w.Commit; a.Branch == "" {
		a.Branch = "belay/" + w.Execution
	}
	m, err := s.open()
	if err == nil && m == nil {
		m, err = openSpaces(filepath.Join(s.data, "workspaces"))
	}
	if err != nil {
		return err
	}
	got, err := m.Apply(ctx, a, w.salvage)
	if err != nil {
		return err
	}
	if got.Files == nil {
		got.Files = []string{}
	}
	if s.output == "json" {
		return screen.PrintJSON(s.out, applied{w.Execution, got, w.Commits, w.Lost, a.Dry})
	}
	t := screen.NewTable(s.out)
	if a.Dry {
		t.Row("dry run", "nothing was changed")
	}
	t.Row("clone", got.Dir)
	t.Row("branch", fmt.Sprintf("%s at %s, with %s", got.Branch, got.Commit, screen.Plural(w.Commits, "commit")))
	if w.Lost != "" {
		t.Row("lost", w.Lost)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, f := range got.Files {
		if _, err := fmt.Fprintln(s.out, cleanLines(strings.ReplaceAll(f, "\n", " "))); err != nil {
			return err
		}
	}
	if got.More > 0 {
		_, err = fmt.Fprintf(s.out, "and %s\n", screen.Plural(got.More, "more file"))
	}
	return err
}

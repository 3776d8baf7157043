package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay/internal/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var repo string
	c := &cobra.Command{
		Use: "demo", Short: "Watch a worker die in the middle, and the run go on", Args: none,
		Long: `Run five steps on a clone of a repository with two worker processes, kill the one
that works in step 3 with kill -9, and see the other take over without repeating
steps 1 and 2. Then write once more with the dead worker's token, and see that
refused.

It takes about ten seconds and touches nothing: the repository is cloned, and all
that is stored is removed at the end, unless --data says where to keep it.

The demo judges itself, from the store's history and from a list that the steps
keep outside of it: the exit code is 0 if every promise held, and 70 if not.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.demo(c, repo) },
	}
	c.Flags().StringVar(&repo, "repo", "",
		"the repository, a path or `URL`; the one around the working directory by default, else a small one that "+
			"is made")
	_ = c.MarkFlagDirname("repo")
	c.AddCommand(&cobra.Command{
		Use: "worker NAME QUEUE", Hidden: true, Args: exactly("a name", "a queue"),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := filepath.Abs(a.data)
			if err != nil {
				return err
			}
			return demo.Work(c.Context(), args[0], args[1], dir, version, a.in, a.plain().out, openSpaces)
		},
	})
	return c
}

func (a *app) demo(c *cobra.Command, repo string) error {
	ctx := c.Context()
	source, err := (&runFlags{repo: repo}).source(ctx)
	if err != nil {
		return err
	}
	if repo == "" && source != "" && !committed(ctx, source) {
		source = ""
	}
	o := demo.Options{Out: a.out, Terminal: a.plain().out, JSON: a.output == "json", Repo: source, Version: version,
		Bury: bury, Worker: demoWorker}
	if c.Flags().Changed("data") {
		if o.Data, err = filepath.Abs(a.data); err != nil {
			return err
		}
	}
	if err := demo.Run(ctx, o); !errors.Is(err, context.Canceled) {
		return err
	}
	return exitCode(130)
}

// demoWorker starts this very binary.
func demoWorker(ctx context.Context, name, queue, dir string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, self, "demo", "worker", name, queue, "--data", dir), nil
}

// committed reports whether there is something in a repository to be cloned.
func committed(ctx context.Context, dir string) bool {
	c := exec.CommandContext(ctx, "git", "rev-parse", "--verify", "--quiet", "HEAD")
	c.Dir = dir
	return c.Run() == nil
}

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
		Use: "demo", Short: "See a worker crash and another worker continue its work", Args: none,
		Long: `Run five steps on a clone of a repository with two worker processes, kill the worker
in step 3 with kill -9, and see the other worker take over without repeating steps 1
and 2. Then send a write with the dead worker's token, and see that the store refuses it.

The demo takes about ten seconds. It does not change the repository, which is cloned,
and removes all data at the end unless --data names a directory for it.

The demo checks its own result, from the history in the store and from a list that
the steps write outside the store: the exit code is 0 if Belay kept every promise,
and 70 if not.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.demo(c, repo) },
	}
	c.Flags().StringVar(&repo, "repo", "",
		"the repository, a path or `URL`; the one around the working directory by default, or else a small new one")
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

// demoWorker returns the command that starts a worker process of the demo. The process runs this
// same binary.
func demoWorker(ctx context.Context, name, queue, dir string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, self, "demo", "worker", name, queue, "--data", dir), nil
}

// committed reports whether a repository has a commit that can be cloned.
func committed(ctx context.Context, dir string) bool {
	c := exec.CommandContext(ctx, "git", "rev-parse", "--verify", "--quiet", "HEAD")
	c.Dir = dir
	return c.Run() == nil
}

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
		Use: "demo", Short: "Show how a worker crashes and another worker continues its work", Args: none,
		Long: `Show how Belay handles a crash. Two worker processes run five steps on a clone of a
repository. The demo kills the worker that runs step 3 with kill -9; the other worker
takes over, without repeating steps 1 and 2. Then the demo sends a write with the token
of the killed worker, and the store refuses the write.

The demo takes about ten seconds. It changes only a clone of the repository, and removes
all of its data at the end, unless --data names a directory for the data.

The demo checks its own result, from the history in the store and from a list that
the steps write outside the store: the exit code is 0 if Belay kept its guarantees, and
70 otherwise.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.demo(c, repo) },
	}
	c.Flags().StringVar(&repo, "repo", "",
		"the repository, a path or `URL`; by default the repository of the working directory, or else a small new one")
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

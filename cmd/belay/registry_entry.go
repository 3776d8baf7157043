package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/registry"
)

// registerFlags are the flags of a registration.
type registerFlags struct {
	registry.Registration
	wait time.Duration
}

func (f *registerFlags) add(a *app, c *cobra.Command, ttl time.Duration) {
	c.Flags().StringVar(&f.Name, "name", "", "the name of the workflow, unique on this machine (required)")
	c.Flags().StringVar(&f.Recipe, "recipe", "", "the mode of the resource that the workflow needs (required)")
	c.Flags().DurationVar(&f.TTL, "ttl", ttl, "how long the entry lives without a renewal")
	c.Flags().BoolVar(&f.Preemptible, "preemptible", false,
		"the workflow looks for its signal file and yields when a swap asks it to")
	c.Flags().DurationVar(&f.wait, "wait", 0, "how long to wait while a swap to another recipe is in progress")
	a.completeRegistry(c, "recipe", recipeOf)
}

func (f *registerFlags) check() error {
	switch {
	case f.Name == "" || f.Recipe == "":
		return usage("give --name and --recipe")
	case f.TTL < time.Second:
		return usage("--ttl is %s; it must be 1s at least", f.TTL)
	}
	return nil
}

func (a *app) registryRegisterCommand() *cobra.Command {
	var f registerFlags
	var pid int
	c := &cobra.Command{
		Use: "register", Short: "Register a process as a workflow", Args: none,
		Long: `Register a process as a workflow. The entry is removed when the process has ended, when
the workflow is released, or when it is not renewed for the TTL. belay registry exec does
all of that for a command.

  belay registry register --name nightly --recipe llama --pid $$
  belay registry renew --name nightly       # before the TTL is over
  belay registry release --name nightly

The command exits with 75 while a swap to another recipe is in progress, or if another
process has the name; the message says who it is and since when. With --preemptible, the
command prints the path of the signal file. While this file exists, a swap asks the
workflow to yield: finish the present piece of work, then call belay registry yield.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if pid == 0 {
				return usage("give the process that owns the workflow, such as --pid $$ in a shell script; " +
					"`belay registry exec` registers a command")
			}
			owner, err := registry.Identify(pid)
			if err != nil {
				return notThere(pid, err)
			}
			f.Owner = owner
			r, err := registry.Open(a.data)
			if err != nil {
				return err
			}
			w, err := registerWithin(c.Context(), r, &f)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return screen.PrintJSON(a.out, w)
			}
			if w.Preemptible {
				fmt.Fprintln(a.out, w.PreemptSignalPath)
			}
			return nil
		},
	}
	f.add(a, c, registry.DefaultTTL)
	c.Flags().IntVar(&pid, "pid", 0, "the `number` of the process that owns the workflow, such as $$ (required)")
	c.Flags().StringVar(&f.SignalPath, "signal-path", "",
		"the signal `file`, in the directory signals of the data directory; by default the registry chooses one")
	return c
}

// entryFlags select an entry of the registry that belongs to the caller.
type entryFlags struct {
	name string
	pid  int
}

// entryCommand returns a command that acts on one entry of the registry.
func (a *app) entryCommand(c *cobra.Command, act func(c *cobra.Command, r *registry.Registry,
	w registry.Workflow) error) *cobra.Command {
	var f entryFlags
	c.Args = none
	c.Long += `

The name is that of --name or of the variable BELAY_REGISTRY_NAME, which belay registry
exec sets. The owner of the entry must be an ancestor of this command, such as the shell
script that calls it, or the process of --pid. The command exits with 75 (lease_lost) if
the entry was removed or belongs to another process.`
	c.RunE = func(c *cobra.Command, _ []string) error {
		if f.name == "" {
			return usage("give --name, or set BELAY_REGISTRY_NAME")
		}
		r, err := registry.Open(a.data)
		if err != nil {
			return err
		}
		w, err := f.entry(c, r)
		if err != nil {
			return err
		}
		err = act(c, r, w)
		if f.pid == 0 && errors.Is(err, &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseReassigned}) {
			// belay registry exec may have made its supervisor the owner after f.entry has looked for it
			if w, err = f.entry(c, r); err == nil {
				err = act(c, r, w)
			}
		}
		return err
	}
	c.Flags().StringVar(&f.name, "name", os.Getenv("BELAY_REGISTRY_NAME"), "the name of the workflow")
	c.Flags().IntVar(&f.pid, "pid", 0, "the `number` of the process that owns the workflow; by default an ancestor")
	a.completeRegistry(c, "name", nameOf)
	return c
}

// entry returns the name and the owner of the entry. If no ancestor of this process owns the entry,
// the owner is the parent, so that the registry refuses it with the name of the real owner.
func (f *entryFlags) entry(c *cobra.Command, r *registry.Registry) (registry.Workflow, error) {
	w := registry.Workflow{Name: f.name}
	var err error
	if f.pid != 0 {
		if w.Owner, err = registry.Identify(f.pid); err != nil {
			err = notThere(f.pid, err)
		}
		return w, err
	}
	s, err := r.List(c.Context())
	if err != nil {
		return w, err
	}
	for _, p := range ancestors() {
		if w.Owner.PID == 0 {
			w.Owner = p
		}
		if slices.ContainsFunc(s.Workflows, func(e registry.Entry) bool {
			return e.Name == f.name && e.Owner.PID == p.PID && e.Owner.StartNS == p.StartNS
		}) {
			w.Owner = p
			break
		}
	}
	return w, nil
}

// ancestors returns the parent of this process, its parent, and so on.
func ancestors() (all []registry.Process) {
	for pid := os.Getppid(); pid > 0; {
		p, err := registry.Identify(pid)
		if err != nil {
			break
		}
		all = append(all, p)
		parent, err := host.Lookup(pid)
		if err != nil {
			break
		}
		pid = parent.Parent
	}
	return all
}

func notThere(pid int, err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return &belay.Error{Code: belay.CodeNotFound, Message: fmt.Sprintf("--pid %d: there is no such process", pid)}
	}
	return err
}

func (a *app) registryRenewCommand() *cobra.Command {
	return a.entryCommand(&cobra.Command{
		Use: "renew", Short: "Begin the TTL of a workflow anew",
		Long: "Begin the TTL of a workflow anew. If this fails with lease_lost, the workflow must stop to use the\nresource.",
	}, func(c *cobra.Command, r *registry.Registry, w registry.Workflow) error {
		w, err := r.Renew(c.Context(), w)
		if err == nil && a.output == "json" {
			return screen.PrintJSON(a.out, w)
		}
		return err
	})
}

func (a *app) registryReleaseCommand() *cobra.Command {
	return a.entryCommand(&cobra.Command{
		Use: "release", Short: "Remove a workflow that does not use the resource any more",
		Long: "Remove a workflow that does not use the resource any more, and its signal file.",
	}, func(c *cobra.Command, r *registry.Registry, w registry.Workflow) error {
		return r.Release(c.Context(), w)
	})
}

func (a *app) registryYieldCommand() *cobra.Command {
	return a.entryCommand(&cobra.Command{
		Use: "yield", Short: "Leave the resource to a swap that asked for it",
		Long: "Leave the resource to a swap that asked for it: remove the signal file and the entry, in one step. To\n" +
			"use the resource again, register again.",
	}, func(c *cobra.Command, r *registry.Registry, w registry.Workflow) error {
		return r.Release(c.Context(), w)
	})
}

func (a *app) registryPreemptedCommand() *cobra.Command {
	return a.entryCommand(&cobra.Command{
		Use: "preempted", Short: "Exit with 0 if a swap asks the workflow to yield, and with 1 if not",
		Long: `Exit with 0 if a swap asks the workflow to yield, and with 1 if not. A workflow that is
asked to yield finishes its present piece of work and calls belay registry yield:

  while work-remains; do
    if belay registry preempted; then belay registry yield; exit 0; fi
    do-a-piece-of-work
  done`,
	}, func(c *cobra.Command, r *registry.Registry, w registry.Workflow) error {
		asked, err := r.Preempted(c.Context(), w)
		if err != nil {
			return err
		}
		if a.output == "json" {
			err = screen.PrintJSON(a.out, map[string]bool{"preempted": asked})
		}
		if err == nil && !asked {
			return exitCode(1)
		}
		return err
	})
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/registry"
)

const registryLong = `Coordinate programs on this machine that share a resource in different modes, such as
a GPU that can have one model loaded at a time. No server is needed: the registry is
files in the data directory (--data or BELAY_DATA).

A program that uses the resource registers as a workflow with a recipe, the mode of the
resource that it needs. belay swap changes the mode: it keeps workflows of other recipes
from registering, waits until none is left, and runs a command that changes the mode.

  belay registry exec --name nightly --recipe llama -- ./agent.sh
  belay swap --to mistral -- ./load-model.sh mistral
  belay registry ls

docs/registry.md has the details, and the format of the files for programs that take
part without this command.`

func (a *app) registryCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "registry", Short: "Share a resource of this machine, such as a GPU, between programs", Args: none,
		Long: registryLong,
		PersistentPreRunE: func(c *cobra.Command, args []string) error {
			return a.local(c, args)
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		a.registryExecCommand(), a.registryRegisterCommand(), a.registryRenewCommand(), a.registryReleaseCommand(),
		a.registryLsCommand(), a.registryPreemptedCommand(), a.registryYieldCommand(), a.registryWatchCommand(),
		a.registryRepairCommand(),
	)
	return c
}

// local refuses the flags that name a server or a database, since the registry is on this machine.
func (a *app) local(c *cobra.Command, args []string) error {
	for _, name := range []string{"server", "store"} {
		if f := c.Flags().Lookup(name); f != nil && f.Changed {
			return usage("--%s has no effect here: the registry is on this machine; name its directory with --data",
				name)
		}
	}
	return c.Root().PersistentPreRunE(c, args)
}

func (a *app) registryLsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the workflows and the swap in progress", Args: none,
		Long: "List the workflows and the swap in progress. Before that, belay registry ls removes workflows whose\n" +
			"process has ended or whose TTL is over, and the marker of a swap whose process has ended.",
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := registry.List(c.Context(), a.data)
			if err != nil {
				return err
			}
			return a.printRegistry(s)
		},
	}
}

// registryState is the JSON form of the registry's state.
type registryState struct {
	Workflows   []registry.Entry     `json:"workflows"`
	Swap        *registry.Marker     `json:"swap_in_progress"`
	Quarantined *registry.Quarantine `json:"quarantined,omitempty"`
	Unsaved     string               `json:"unsaved,omitempty"`
}

func stateOf(s registry.State) registryState {
	out := registryState{Workflows: s.Workflows, Swap: s.Swap, Quarantined: s.Quarantined}
	if out.Workflows == nil {
		out.Workflows = []registry.Entry{}
	}
	if s.Unsaved != nil {
		out.Unsaved = s.Unsaved.Error()
	}
	return out
}

func (a *app) printRegistry(s registry.State) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, stateOf(s))
	}
	if s.Unsaved != nil {
		fmt.Fprintln(a.err, "belay: this state could not be saved:", s.Unsaved)
	}
	if q := s.Quarantined; q != nil {
		fmt.Fprintf(a.err, "belay: the state file was damaged at %s (%s) and is kept as %s. No swap begins until you "+
			"have checked that no old workflow runs, and have called: belay registry repair\n",
			q.At.Local().Format(time.DateTime), q.Reason, q.File)
	}
	if m := s.Swap; m != nil {
		fmt.Fprintf(a.out, "swap to %s by %s since %s: %s\n", m.TargetRecipe, m.Holder, since(m.StartedAt), phase(m))
	}
	if len(s.Workflows) == 0 {
		fmt.Fprintln(a.out, "no workflows")
		return nil
	}
	t := screen.NewTable(a.out, "NAME", "RECIPE", "OWNER", "AGE", "EXPIRES IN", "PREEMPTIBLE")
	for i := range s.Workflows {
		w := &s.Workflows[i]
		preemptible := "no"
		switch {
		case w.PreemptRequested:
			preemptible = "asked to yield"
		case w.Preemptible:
			preemptible = "yes"
		}
		t.Row(w.Name, w.Recipe, w.Owner.String(), since(w.StartedAt), screen.Short(w.ExpiresIn), preemptible)
	}
	return t.Flush()
}

func phase(m *registry.Marker) string {
	if m.GrantedAt.IsZero() {
		return "waiting for workflows of other recipes"
	}
	return "granted"
}

func (a *app) registryWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use: "watch", Short: "Show the workflows and the swap in progress after each change", Args: none,
		Long: "Show the workflows and the swap in progress, at first and then after each change, until you interrupt\n" +
			"the command. With -o json, each state is one line.",
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := registry.Open(a.data)
			if err != nil {
				return err
			}
			return r.Watch(c.Context(), func(s registry.State) error {
				if a.output != "json" {
					fmt.Fprintln(a.out, clock(time.Now()))
					return a.printRegistry(s)
				}
				line, err := json.Marshal(stateOf(s))
				if err == nil {
					_, err = screen.JSON(a.out).Write(append(line, '\n'))
				}
				return err
			})
		},
	}
}

func (a *app) registryRepairCommand() *cobra.Command {
	return &cobra.Command{
		Use: "repair", Short: "Allow swaps again after the state file was damaged", Args: none,
		Long: `Allow swaps again after the state file was damaged.

If another program has damaged workflows.json, the registry keeps the damaged file under
another name and begins anew, without workflows. Programs that were registered in the
damaged file may still use the resource, so no swap begins until you have checked that
none of them runs, and have called this command.`,
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := registry.Open(a.data)
			if err != nil {
				return err
			}
			q, err := r.Repair(c.Context())
			if err != nil {
				return err
			}
			if a.output == "json" {
				return screen.PrintJSON(a.out, map[string]any{"quarantined": q})
			}
			if q == nil {
				fmt.Fprintln(a.out, "nothing to repair")
				return nil
			}
			fmt.Fprintf(a.out, "swaps may begin again; the damaged file is kept as %s\n",
				filepath.Join(r.Dir(), q.File))
			return nil
		},
	}
}

// completeRegistry completes the value of a flag with a property of the registered workflows.
func (a *app) completeRegistry(c *cobra.Command, name string, of func(*registry.Entry) string) {
	_ = c.RegisterFlagCompletionFunc(name, func(c *cobra.Command, _ []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), time.Second)
		defer cancel()
		s, err := registry.List(ctx, a.data)
		var all []string
		for i := range s.Workflows {
			if err == nil {
				all = append(all, of(&s.Workflows[i]))
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	})
}

func nameOf(e *registry.Entry) string   { return e.Name }
func recipeOf(e *registry.Entry) string { return e.Recipe }

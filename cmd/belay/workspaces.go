package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/screen"
)

const workspacesLong = `List the workspaces of this machine, and get the work out of them.

A workspace is the clone in which a job works. It exists as long as its run. The
changes of the run are stored with the execution, as a git bundle of its commits and
a patch of its other changes; of an interrupted run its HOME is stored too. When a
worker dies, the unfinished work in its workspaces is kept on the machine for a week.

  belay workspaces ls              list workspaces, kept work and base clones
  belay workspaces salvage ID      write the work of an execution to files
  belay workspaces restore ID DIR  check out the work of an execution
  belay workspaces apply ID        apply the work of an execution to a clone of yours
  belay workspaces gc              remove leftovers; --dry-run only lists them`

// spaces has the flags that the workspace commands share.
type spaces struct {
	*app
	dir string
}

func (a *app) workspacesCommand() *cobra.Command {
	s := &spaces{app: a}
	c := &cobra.Command{
		Use: "workspaces", Short: "List the workspaces of this machine, and extract the work in them",
		Long: workspacesLong,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("there is no command %q of workspaces; there are ls, salvage, restore, apply and gc",
					args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.PersistentFlags().StringVar(&s.dir, "dir", envOr("WORKSPACE_DIR", ""),
		"the `directory` of the workspaces; the subdirectory workspaces of the data directory unless given")
	_ = c.MarkPersistentFlagDirname("dir")
	c.AddCommand(s.lsCommand(), s.salvageCommand(), s.restoreCommand(), s.applyCommand(), s.gcCommand())
	return c
}

// open returns the manager of the workspaces' directory, or nil if there is no such directory,
// since no job ever ran.
func (s *spaces) open() (*workspace.Manager, error) {
	dir := s.dir
	if dir == "" {
		dir = filepath.Join(s.data, "workspaces")
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return openSpaces(dir)
}

// seenSpace is an entry in the output of belay workspaces ls: a workspace, or the work that was
// kept from a workspace.
type seenSpace struct {
	workspace.Info
	Execution string `json:"execution,omitempty"`
	// State is the state of the execution, empty if the execution cannot be read.
	State string `json:"state,omitempty"`
	// Where is "in use", "left by a dead process" or "kept".
	Where string `json:"where"`
}

// seen is the JSON output of belay workspaces ls.
type seen struct {
	Workspaces []seenSpace          `json:"workspaces"`
	Bases      []workspace.BaseInfo `json:"bases"`
	Garbage    []workspace.Garbage  `json:"garbage"`
}

func (s *spaces) lsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List workspaces, kept work and base clones", Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := s.look(c.Context())
			if err != nil {
				return err
			}
			if s.output == "json" {
				return screen.PrintJSON(s.out, all)
			}
			return s.show(&all)
		},
	}
}

func (s *spaces) look(ctx context.Context) (seen, error) {
	all := seen{Workspaces: []seenSpace{}, Bases: []workspace.BaseInfo{}, Garbage: []workspace.Garbage{}}
	m, err := s.open()
	if err != nil || m == nil {
		return all, err
	}
	list, err := m.List(ctx)
	if err != nil {
		return all, err
	}
	kept, err := m.Kept()
	if err != nil {
		return all, err
	}
	for _, i := range list {
		where := "in use"
		if !i.InUse {
			where = "left by a dead process"
		}
		all.Workspaces = append(all.Workspaces, seenSpace{Info: i, Where: where})
	}
	for _, k := range kept {
		i := workspace.Info{ID: k.ID, Repo: k.Repo, Commit: k.Commit, Made: k.Made}
		i.Files, i.Bytes = int64(k.Files), k.Bytes
		all.Workspaces = append(all.Workspaces, seenSpace{Info: i, Where: "kept"})
	}
	s.ofExecutions(ctx, all.Workspaces)
	bases, err := m.Bases()
	if err != nil {
		return all, err
	}
	garbage, err := m.Garbage(func(string) bool { return true })
	all.Bases, all.Garbage = append(all.Bases, bases...), append(all.Garbage, garbage...)
	return all, err
}

// ofExecutions sets the execution and its state in each entry of the list. The name of a workspace
// contains the id of the execution. The states stay empty if neither a store nor a server can be
// read.
func (s *spaces) ofExecutions(ctx context.Context, list []seenSpace) {
	for i := range list {
		if id, ok := executionOf(list[i].ID); ok {
			list[i].Execution = id.String()
		}
	}
	if len(list) == 0 {
		return
	}
	_ = s.reading(ctx, func(r reader) error {
		for i := range list {
			if id, ok := executionOf(list[i].ID); ok {
				if e, err := r.Execution(ctx, id); err == nil {
					list[i].State = e.State.String()
				}
			}
		}
		return nil
	})
}

// executionOf returns the id of the execution in the name of a workspace, and false if the name
// contains no id.
func executionOf(name string) (belay.ExecutionID, bool) {
	var run belay.RunID
	err := run.UnmarshalText([]byte(name))
	return run.Execution, err == nil && !run.IsZero()
}

func (s *spaces) show(all *seen) error {
	if len(all.Workspaces)+len(all.Bases)+len(all.Garbage) == 0 {
		_, err := fmt.Fprintln(s.out, "no workspaces here")
		return err
	}
	t := screen.NewTable(s.out, "EXECUTION", "STATE", "WORKSPACE", "SIZE", "FILES", "AGE", "REPOSITORY")
	for i := range all.Workspaces {
		w := &all.Workspaces[i]
		name := w.Execution
		if name == "" {
			name = w.ID
		}
		t.Row(name, dash(w.State), w.Where, sizeText(w.Bytes), fmt.Sprint(w.Files), since(w.Made), dash(w.Repo))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(all.Bases) > 0 {
		fmt.Fprintln(s.out)
		t = screen.NewTable(s.out, "BASE CLONE", "BRANCH", "SIZE", "FETCHED", "USED")
		for _, b := range all.Bases {
			t.Row(dash(b.Repo), dash(b.Branch), sizeText(b.Bytes), since(b.Fetched)+" ago", since(b.Used)+" ago")
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(all.Garbage) > 0 {
		fmt.Fprintf(s.out, "\n%s, to be removed by the next worker that starts here, or by: belay workspaces gc\n",
			screen.Plural(len(all.Garbage), "leftover"))
		return s.garbage(all.Garbage)
	}
	return nil
}

func (s *spaces) garbage(all []workspace.Garbage) error {
	t := screen.NewTable(s.out, "KIND", "WHY", "PATH")
	stay := 0
	for _, g := range all {
		if g.Stays {
			stay++
			g.Why += ", but it is in use"
		}
		t.Row(g.Kind, g.Why, g.Path)
	}
	if err := t.Flush(); err != nil || stay == 0 {
		return err
	}
	_, err := fmt.Fprintf(s.out, "\n%s: another process is saving it, or another run has its system user.\n"+
		"Run belay workspaces gc again when that process has ended.\n", screen.Plural(stay, "leftover")+" not removed")
	return err
}

func (s *spaces) gcCommand() *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use: "gc", Short: "Remove what is left of ended jobs, and say why", Args: none,
		Long: "Remove four kinds of leftovers: workspaces of dead processes, after saving the work in them;\n" +
			"workspaces and clones that were never finished; base clones that were not used for 30 days; and\n" +
			"saved work that is older than a week. Files that may belong to a living process are not removed.",
		RunE: func(c *cobra.Command, _ []string) error {
			m, err := s.open()
			if err != nil {
				return err
			}
			all := []workspace.Garbage{}
			alive := func(string) bool { return true }
			if m != nil {
				found, err := m.Garbage(alive)
				if err != nil {
					return err
				}
				all = append(all, found...)
				if !dry {
					if err := m.Sweep(c.Context(), alive); err != nil {
						return err
					}
					if err := markLeft(m, all); err != nil {
						return err
					}
				}
			}
			switch {
			case s.output == "json":
				return screen.PrintJSON(s.out, all)
			case len(all) == 0:
				_, err := fmt.Fprintln(s.out, "no leftovers")
				return err
			}
			return s.garbage(all)
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "list what would be removed, and remove nothing")
	return c
}

// markLeft marks the leftovers that a sweep has left.
func markLeft(m *workspace.Manager, all []workspace.Garbage) error {
	left, err := m.Garbage(func(string) bool { return true })
	for i := range all {
		all[i].Stays = slices.ContainsFunc(left, func(g workspace.Garbage) bool { return g.Path == all[i].Path })
	}
	return err
}

func dash(s string) string {
	if strings.TrimSpace(s) == "" {
		return "-"
	}
	return s
}

// sizeText formats a number of bytes as text.
func sizeText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", (n+1023)>>10)
}

// completeWork offers to the shell the ids of executions, and the names of workspaces whose work
// was kept.
func (s *spaces) completeWork(c *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
	case 1:
		return nil, cobra.ShellCompDirectiveFilterDirs
	default:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ids, how := s.completeIDs(c, args, toComplete)
	if m, err := s.open(); err == nil && m != nil {
		kept, _ := m.Kept()
		for _, k := range kept {
			ids = append(ids, k.ID+"\tkept "+since(k.At)+" ago")
		}
	}
	return ids, how
}

package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/screen"
)

// completeGates offers to the shell the gates for which fits returns true, or all gates if fits is
// nil. If usual is the kind target, it offers only targets. It offers a gate of the kind usual by
// its name alone, and any other gate by its id; usual is empty if the command takes only ids.
func (a *app) completeGates(usual string, fits func(*belay.GateInfo) bool) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		f := belay.GateFilter{Limit: 1000}
		if usual == belay.GateTarget {
			f.Kind = usual
		}
		return a.offered(c, f, fits, func(g *belay.GateInfo) string {
			if g.Kind == usual && !strings.HasPrefix(g.Name, "-") && gateOf(g.Name, usual) == g.ID {
				return g.Name
			}
			return string(g.ID)
		})
	}
}

// completeNames offers to the shell the names of the gates of a kind, for a flag of that kind. With
// paused, it offers only the names of paused gates. Otherwise it also offers queues and workflows
// that have no gate yet: those of connected workers and of the newest executions.
func (a *app) completeNames(kind string, paused bool) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		fits := func(g *belay.GateInfo) bool { return !paused || g.Pause != nil }
		names, how := a.offered(c, belay.GateFilter{Kind: kind, Limit: 1000}, fits, func(g *belay.GateInfo) string {
			return g.Name
		})
		if paused || kind != belay.GateQueue && kind != belay.GateWorkflow {
			return names, how
		}
		known := make(map[string]bool)
		for _, n := range names {
			name, _, _ := strings.Cut(n, "\t")
			known[name] = true
		}
		for _, name := range a.atWork(c, kind) {
			if !known[name] && !strings.ContainsFunc(name, screen.Hostile) {
				names = append(names, name)
			}
		}
		return names, how
	}
}

// offered lists gates for the shell. It leaves out names that belay escapes when it prints them,
// because the shell would insert the escaped name, which is not the name of the gate.
func (a *app) offered(c *cobra.Command, f belay.GateFilter, fits func(*belay.GateInfo) bool,
	word func(*belay.GateInfo) string) (words []string, how cobra.ShellCompDirective) {
	how = cobra.ShellCompDirectiveNoFileComp
	if a.readStore(c) != nil {
		return nil, how
	}
	_ = a.reading(c.Context(), func(r reader) error {
		page, err := r.Gates(c.Context(), f)
		for i := range page.Gates {
			g := &page.Gates[i]
			if (fits == nil || fits(g)) && !strings.ContainsFunc(g.Name, screen.Hostile) {
				words = append(words, word(g)+"\t"+gateState(g))
			}
		}
		return err
	})
	return words, how
}

// atWork lists the queues or workflows of the workers and of the newest executions.
func (a *app) atWork(c *cobra.Command, kind string) []string {
	all := make(map[string]bool)
	add := func(queue, workflow string) {
		if name := map[string]string{belay.GateQueue: queue, belay.GateWorkflow: workflow}[kind]; name != "" &&
			!strings.HasPrefix(queue, agent.RunQueue) {
			all[name] = true
		}
	}
	_ = a.reading(c.Context(), func(r reader) error {
		workers, err := r.Workers(c.Context())
		for i := range workers {
			if workers[i].State.Ended() {
				continue
			}
			for _, q := range workers[i].Queues {
				add(q, "")
			}
			for _, w := range workers[i].Workflows {
				add("", w.Workflow)
			}
		}
		if err != nil {
			return err
		}
		page, err := r.Executions(c.Context(), belay.Filter{Limit: 50})
		for i := range page.Executions {
			add(page.Executions[i].Queue, page.Executions[i].Workflow)
		}
		return err
	})
	return slices.Sorted(maps.Keys(all))
}

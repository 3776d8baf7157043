package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/datadir"
	"github.com/belaydev/belay/internal/screen"
)

// watchFlags are the flags of belay watch for many executions.
type watchFlags struct {
	q              belay.StatusQuery
	all            bool
	states, labels []string
	parent         string
}

// watchFilters are the names of the flags that select executions.
var watchFilters = []string{"all", "state", "label", "workflow", "queue", "children", "parent"}

func (f *watchFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.all, "all", false, "follow all executions that have not ended")
	c.Flags().StringSliceVar(&f.states, "state", nil, "follow executions in these `states`; active, the default, "+
		"means all executions that have not ended")
	c.Flags().StringSliceVar(&f.labels, "label", nil, "follow only executions with these labels, as `name=value`")
	c.Flags().StringVar(&f.q.Workflow, "workflow", "", "follow only executions of this workflow")
	c.Flags().StringVar(&f.q.Queue, "queue", "", "follow only executions of this queue")
	c.Flags().BoolVar(&f.q.Children, "children", false, "follow child executions too")
	c.Flags().StringVar(&f.parent, "parent", "", "follow only the children of this execution")
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(append(stateNames(), "active"),
		cobra.ShellCompDirectiveNoFileComp))
}

// query checks the flags.
func (f *watchFlags) query(ctx context.Context, a *app) (belay.StatusQuery, error) {
	filter := belay.Filter{Limit: 1}
	if err := parseFilter(&filter, f.states, f.labels); err != nil {
		return f.q, err
	}
	f.q.States, f.q.Labels = filter.States, filter.Labels
	if f.parent == "" {
		return f.q, nil
	}
	var err error
	f.q.Parent, err = a.executionID(ctx, f.parent)
	return f.q, err
}

// watchMany prints the states of executions until it is interrupted.
func (a *app) watchMany(c *cobra.Command, q belay.StatusQuery) error {
	ctx := c.Context()
	return a.following(ctx, func(r reader) error {
		p := &statesPrinter{app: a}
		var away outage
		for {
			err := r.Follow(ctx, q, func(n belay.StatusNews) error {
				away = outage{}
				if n.Position != "" {
					q.After = n.Position
				}
				return p.print(n)
			})
			switch {
			case ctx.Err() != nil:
				return exitCode(130)
			case p.err != nil:
				return p.err
			case !a.retryLater(ctx, &away, err):
				return err
			}
		}
	})
}

// following calls f with the process that runs the engine of the data directory, if there is one, because
// only an engine can report every change. Otherwise it does the same as reading.
func (a *app) following(ctx context.Context, f func(reader) error) error {
	if a.store == "" && a.server == "" {
		if b, err := datadir.Dial(ctx, a.data, datadir.Options{InJob: process.InJob}); err == nil {
			return closing(b, f(b))
		}
	}
	return a.reading(ctx, f)
}

// statesPrinter prints news about states.
type statesPrinter struct {
	app   *app
	known map[belay.ExecutionID]belay.State // what was printed
	seen  map[belay.ExecutionID]bool        // the executions of a snapshot whose last part has not come
	err   error                             // the error of the output
}

func (p *statesPrinter) print(n belay.StatusNews) error {
	if p.app.output == "json" {
		p.json(n)
		return p.err
	}
	if n.Snapshot != nil {
		p.snapshot(n.Snapshot)
	}
	for i := range n.Changes {
		ch := &n.Changes[i]
		from := "new"
		if ch.Previous != 0 {
			from = screen.Mark(p.app.out, ch.Previous.String())
		}
		p.line(clock(ch.At), &ch.Status, from+" → "+screen.Mark(p.app.out, ch.State.String()))
		if p.known[ch.Execution] = ch.State; !ch.Matches {
			delete(p.known, ch.Execution)
		}
	}
	return p.err
}

// snapshot prints the executions of a snapshot that differ from what was printed before.
func (p *statesPrinter) snapshot(s *belay.StatusSnapshot) {
	if p.known == nil {
		p.known = make(map[belay.ExecutionID]belay.State)
	}
	if s.First {
		p.seen = make(map[belay.ExecutionID]bool)
		switch s.Cause {
		case belay.SnapshotBegin, belay.SnapshotPolled:
		case belay.SnapshotBehind:
			fmt.Fprintln(p.app.err, "belay: some changes are missing here, because they came faster than they were "+
				"printed; the present states follow")
		case belay.SnapshotLost:
			fmt.Fprintln(p.app.err, "belay: some changes may be missing here, because the server may have missed "+
				"them or was started again; the present states follow")
		}
	}
	for i := range s.Executions {
		x := &s.Executions[i]
		p.seen[x.Execution] = true
		if p.known[x.Execution] != x.State {
			p.line("       now", x, screen.Mark(p.app.out, x.State.String()))
			p.known[x.Execution] = x.State
		}
	}
	if !s.Last {
		return
	}
	for id := range p.known {
		if !p.seen[id] {
			if !s.Truncated {
				p.write("%s  %s  does not match any more\n", "       now", id)
			}
			delete(p.known, id)
		}
	}
	if s.Truncated {
		fmt.Fprintf(p.app.err, "belay: more than %d executions match; older ones are printed when their state "+
			"changes\n", belay.MaxSnapshot)
	}
}

// line prints the state of one execution, whose words may be marked; see screen.Mark.
func (p *statesPrinter) line(at string, s *belay.Status, state string) {
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		labels = append(labels, name+"="+s.Labels[name])
	}
	rest := s.Workflow + " " + strings.Join(labels, " ")
	p.write("%s  %s  %-22s %s\n", at, s.Execution, state, screen.Brief(screen.Line(strings.TrimSpace(rest)), 120))
}

func (p *statesPrinter) write(format string, args ...any) {
	if err := screen.Write(p.app.out, fmt.Sprintf(format, args...)); err != nil && p.err == nil {
		p.err = err
	}
}

// json prints news as lines of JSON: each part of a snapshot is a line, and each change.
func (p *statesPrinter) json(n belay.StatusNews) {
	out := json.NewEncoder(screen.JSON(p.app.out))
	one := func(v any) {
		if err := out.Encode(v); err != nil && p.err == nil {
			p.err = err
		}
	}
	if n.Snapshot != nil {
		one(struct {
			Event string `json:"event"`
			*belay.StatusSnapshot
		}{"snapshot", n.Snapshot})
	}
	for i := range n.Changes {
		one(struct {
			Event string `json:"event"`
			*belay.StatusChange
		}{"change", &n.Changes[i]})
	}
}

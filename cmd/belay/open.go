package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

func (a *app) url() string { return "sqlite:" + a.data }

// reading opens the data directory for reading, beside whoever has it.
func (a *app) reading(ctx context.Context, f func(*embedded.Reader) error) error {
	r, err := embedded.OpenReader(ctx, a.url())
	if err != nil {
		return err
	}
	defer r.Close()
	return f(r)
}

// writing opens the data directory with an engine. It is not made for that: an
// operator acts on what is there.
func (a *app) writing(ctx context.Context, f func(*embedded.Backend) error) error {
	if err := a.reading(ctx, func(*embedded.Reader) error { return nil }); err != nil {
		return err
	}
	b, err := a.engine(ctx, fmt.Sprint("belay ", ctx.Value(commandName{})))
	if err != nil {
		return err
	}
	err = f(b)
	if cerr := b.Close(); err == nil {
		err = cerr
	}
	return err
}

// engine opens the data directory with an engine.
func (a *app) engine(ctx context.Context, purpose string) (*embedded.Backend, error) {
	return embedded.Open(ctx, a.url(), embedded.Purpose(purpose), embedded.Bury(bury))
}

// commandName is the key under which a context carries the command's name.
type commandName struct{}

// named notes the command's name in the context.
func named(c *cobra.Command) context.Context {
	return context.WithValue(c.Context(), commandName{}, c.Name())
}

// executionID reads an argument that names an execution: its whole id, or the
// end of it if that fits only one of the newest thousand.
func (a *app) executionID(ctx context.Context, arg string) (belay.ExecutionID, error) {
	if strings.HasPrefix(arg, "ex_") {
		return belay.ParseExecutionID(arg)
	}
	var found []belay.ExecutionID
	err := a.reading(ctx, func(r *embedded.Reader) error {
		page, err := r.Executions(ctx, belay.Filter{Children: true, Limit: 1000})
		for _, e := range page.Executions {
			if len(arg) >= 4 && strings.HasSuffix(e.ID.String(), arg) || e.Key == arg {
				found = append(found, e.ID)
			}
		}
		return err
	})
	switch {
	case err != nil:
		return belay.ExecutionID{}, err
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return belay.ExecutionID{}, usage("%q fits %d executions; give the whole id of one, as `belay ls` shows it", arg, len(found))
	}
	return belay.ExecutionID{}, &belay.Error{
		Code: belay.CodeNotFound, Message: "no execution has the id, the end of an id, or the key " + quoted(arg) + "; `belay ls` lists them",
	}
}

// completeIDs offers the newest executions to the shell.
func (a *app) completeIDs(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	_ = a.reading(c.Context(), func(r *embedded.Reader) error {
		page, err := r.Executions(c.Context(), belay.Filter{Limit: 50})
		for _, e := range page.Executions {
			ids = append(ids, e.ID.String()+"\t"+e.State.String()+" "+e.Workflow)
		}
		return err
	})
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

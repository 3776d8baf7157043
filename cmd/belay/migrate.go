package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/socket"
)

const migrateLong = `Bring the schema of a store up to date, or, with --dry-run, print the SQL that would.

An engine does so by itself when it opens a store; this is for those who want to
see it first, or to do it apart from a start. Whoever migrates at the same time
takes turns. A data directory must not be in use; PostgreSQL may be, by servers of
this version and of the one before.`

// storeFlag lets a command that works on a store where it is name that store.
func storeFlag(c *cobra.Command) {
	c.Flags().String("store", "", "the `store`, postgres://USER@HOST/DATABASE or sqlite:DIR, instead of the data "+
		"directory; its password is in PGPASSWORD")
}

// storeOf is the store that a command line means. A server is none: its store is
// where it runs.
func (a *app) storeOf(c *cobra.Command) (string, error) {
	if err := a.useStore(c); err != nil {
		return "", err
	}
	switch {
	case a.store != "":
		return a.store, nil
	case a.server != "":
		return "", &belay.Error{Code: belay.CodeConflict, Message: fmt.Sprintf(
			"%s works on the store itself, not through the server %s; run it where that keeps its data, and name "+
				"it with --data or --store",
			c.CommandPath(), quoted(a.server))}
	}
	return a.url(), socket.Check(a.data)
}

func (a *app) migrateCommand() *cobra.Command {
	var dry bool
	c := &cobra.Command{Use: "migrate", Short: "Bring the schema of a store up to date", Long: migrateLong, Args: none}
	storeFlag(c)
	c.Flags().BoolVar(&dry, "dry-run", false, "print what would be done, and change nothing")
	c.RunE = func(c *cobra.Command, _ []string) error {
		url, err := a.storeOf(c)
		if err != nil {
			return err
		}
		steps, err := embedded.Migrate(c.Context(), url, dry)
		if err != nil {
			return err
		}
		if a.output == "json" {
			return screen.PrintJSON(a.out, steps)
		}
		a.showSteps(steps, dry)
		return nil
	}
	return c
}

func (a *app) showSteps(steps []embedded.Migration, dry bool) {
	if len(steps) == 0 {
		fmt.Fprintln(a.err, "the schema is up to date")
		return
	}
	var names []string
	for _, m := range steps {
		names = append(names, m.Name)
		if dry {
			fmt.Fprintf(a.out, "-- %s\n%s\n", m.Name, strings.TrimSpace(m.SQL))
		}
	}
	what := "migrated"
	if dry {
		what = "would migrate"
	}
	fmt.Fprintf(a.err, "%s: %s\n", what, strings.Join(names, ", "))
}

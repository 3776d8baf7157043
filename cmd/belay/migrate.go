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

const migrateLong = `Bring the schema of a store up to date, or, with --dry-run, print the SQL of the
migrations.

An engine migrates the schema by itself when it opens a store. Use this command to see
the SQL first, or to migrate before the engine starts. If several programs migrate at
the same time, they take turns. A data directory must not be in use; a PostgreSQL
database may be in use by servers of this version and of the previous version.`

// storeOf returns the URL of the store that the command line names. It refuses --server: the
// command must run where the server keeps its data.
func (a *app) storeOf(c *cobra.Command) (string, error) {
	if err := a.useStore(c); err != nil {
		return "", err
	}
	switch {
	case a.store != "":
		return a.store, nil
	case a.server != "":
		return "", &belay.Error{Code: belay.CodeConflict, Message: fmt.Sprintf(
			"%s opens the store itself and cannot use the server %s; run the command on the machine that has the "+
				"server's data, and name the store with --data or --store",
			c.CommandPath(), quoted(a.server))}
	}
	return a.url(), socket.Check(a.data)
}

func (a *app) migrateCommand() *cobra.Command {
	var dry bool
	c := &cobra.Command{Use: "migrate", Short: "Bring the schema of a store up to date", Long: migrateLong, Args: none}
	storeFlag(c)
	c.Flags().BoolVar(&dry, "dry-run", false, "print the SQL of the migrations, and change nothing")
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

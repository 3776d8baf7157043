package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay/internal/config"
)

// storeFlag adds --store to a command that opens a store itself, without a server.
func storeFlag(c *cobra.Command) {
	c.Flags().String("store", "", "the `store`, postgres://USER@HOST/DATABASE or sqlite:DIR, instead of the data "+
		"directory; PGPASSWORD holds the password of the database")
	completeStore(c)
}

// readFlag adds --store to a command that can read a store itself, without a server and without an
// engine, and returns the command.
func (a *app) readFlag(c *cobra.Command) *cobra.Command {
	c.Flags().String("store", "", "read the `store` directly, without a server: postgres://USER@HOST/DATABASE or "+
		"sqlite:DIR. PGPASSWORD holds the password of the database. Without this flag the command uses BELAY_STORE, if set")
	completeStore(c)
	c.PreRunE = func(c *cobra.Command, _ []string) error { return a.readStore(c) }
	return c
}

// completeStore offers the beginnings of a store's URL to the shell.
func completeStore(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("store", cobra.FixedCompletions([]string{"postgres://", "sqlite:"},
		cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// readStore calls useStore for a command that only reads. It does nothing for a command that has no
// flag --store. It refuses a command line with --store and also --server or --data.
func (a *app) readStore(c *cobra.Command) error {
	if c.Flags().Lookup("store") == nil {
		return nil
	}
	if c.Flags().Changed("store") {
		for _, other := range []string{"server", "data"} {
			if c.Flags().Changed(other) {
				return usage("--store and --%s name two places to read; give one of them", other)
			}
		}
	}
	return a.useStore(c)
}

// useStore makes a command use the store that --store or BELAY_STORE names, if one of them is set
// and neither --data nor a server has precedence.
func (a *app) useStore(c *cobra.Command) error {
	from := config.Sources{Flags: make(map[string]string)}
	text, typed := c.Flag("store").Value.String(), c.Flag("store").Changed
	switch {
	case typed:
		from.Flags["store"] = text
	case c.Flag("data").Changed || a.server != "":
		return nil
	default:
		from.Environ = []string{"BELAY_STORE=" + os.Getenv("BELAY_STORE")}
	}
	cfg, err := config.Load(from)
	if err != nil {
		return err
	}
	switch {
	case cfg.Shared():
		a.server, a.store = "", cfg.StoreURL()
	case cfg.Store != "":
		a.server, a.data = "", cfg.DataDir()
	}
	return nil
}

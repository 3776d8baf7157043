package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
)

const restoreLong = `Make a data directory from a backup. (To check out the work in a workspace, use belay
workspaces restore.) The backup is checked and copied, and does not change. With
--verify the backup is only checked, and nothing is written.

The restored store does not contain what happened after the backup, but workers and the
systems that they wrote to are still in the later state. So a new epoch begins: every
new fencing token is larger than all tokens that were ever given out, including those
given out after the backup. All sessions in the backup end: an engine takes back the
executions that these sessions owned, and each execution continues from its last
checkpoint in the backup.

The directory must be empty and not in use. With --force an existing database is moved
into a directory whose name begins with before-restore-, and kept there.

A store that was restored by other means needs only the new epoch. Examples are a
PostgreSQL database after pg_restore or a point-in-time recovery, and a data directory
from a snapshot of its disk. Run belay restore --epoch before any server or worker uses
such a store.`

func (a *app) restoreCommand() *cobra.Command {
	var o embedded.CopyOptions
	var verify, epoch bool
	c := &cobra.Command{
		Use: "restore FILE | --epoch", Short: "Make a data directory from a backup", Long: restoreLong,
		Example: `  belay restore --verify /backups/belay-20261120T084400Z.db
  belay restore --data /var/lib/belay /backups/belay-20261120T084400Z.db
  belay restore --epoch --store postgres://belay@db/belay`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case epoch && len(args) > 0:
				return usage("--epoch is for a store that has been restored already: name the store with " +
					"--store, and give no file")
			case epoch && verify:
				return usage("give --epoch or --verify, not both")
			case epoch:
				return nil
			}
			return exactly("the file of a backup")(c, args)
		},
	}
	storeFlag(c)
	c.Flags().BoolVar(&verify, "verify", false, "check the backup, describe its contents, and write nothing")
	c.Flags().BoolVar(&epoch, "epoch", false, "begin a new epoch in a store that was restored by other means")
	c.Flags().BoolVar(&o.Force, "force", false,
		"if the directory already has a database, move that database into a directory before-restore-… and keep it "+
			"there; with --epoch, begin the epoch even if servers are running: their workers lose all executions")
	c.RunE = func(c *cobra.Command, args []string) error {
		if verify {
			return a.verify(c, args[0])
		}
		url, err := a.storeOf(c)
		if err != nil {
			return err
		}
		if epoch {
			return a.beginEpoch(c, url, o.Force)
		}
		o.Progress = copying(a.err)
		done, err := embedded.Restore(c.Context(), args[0], url, o)
		if err != nil {
			return err
		}
		return a.showRestored(done, url)
	}
	return c
}

func (a *app) verify(c *cobra.Command, file string) error {
	s, err := embedded.Verify(c.Context(), file)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return screen.PrintJSON(a.out, s)
	}
	fmt.Fprintf(a.out, "sound: %s; schema %d, tokens from %d on\n", contents(s), s.Schema, s.Epoch+1)
	return nil
}

func (a *app) showRestored(r embedded.Restored, url string) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, r)
	}
	fmt.Fprintf(a.out, "restored to %s: %s\n", screen.Line(url), contents(r.Snapshot))
	a.showEpoch(r.Epoch, r.Ended)
	if r.Aside != "" {
		fmt.Fprintf(a.out, "the earlier database is now in %s\n", screen.Line(r.Aside))
	}
	return nil
}

func (a *app) showEpoch(epoch belay.Token, ended int) {
	fmt.Fprintf(a.out, "a new epoch began: every new token is larger than %d, and so larger than all earlier tokens\n",
		epoch)
	if ended > 0 {
		fmt.Fprintf(a.out, "ended %s; the next engine that runs takes back the executions that they owned\n",
			screen.Plural(ended, "session"))
	}
}

func (a *app) beginEpoch(c *cobra.Command, url string, force bool) error {
	epoch, ended, err := embedded.BeginEpoch(c.Context(), url, force)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return screen.PrintJSON(a.out, map[string]int64{"epoch": int64(epoch), "ended": int64(ended)})
	}
	a.showEpoch(epoch, ended)
	return nil
}

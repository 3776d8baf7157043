package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
)

const backupLong = `Copy the data directory's database, in its present state, to a file, or to a new file
in a directory. Engines, workers and commands that use the data directory continue
during the copy.

The copy contains everything that was acknowledged before the command began. The copy
is checked for damage and synced to the disk before it gets its final name, which the
command prints; until then an earlier file of that name stays. Only the owner of the
copy may read it.

While the copy is made, the write-ahead log beside the database cannot shrink: leave as
much space on the disk as the engine writes in that time. To back up PostgreSQL, use
PostgreSQL's own tools; see docs/operations.md.`

func (a *app) backupCommand() *cobra.Command {
	var o embedded.CopyOptions
	c := &cobra.Command{
		Use: "backup FILE|DIR", Short: "Copy the database while it is in use", Long: backupLong,
		Args: exactly("a file or a directory"),
		Example: `  belay backup /backups
  belay backup --data /var/lib/belay /backups/belay.db --force`,
	}
	storeFlag(c)
	c.Flags().BoolVar(&o.Force, "force", false, "replace an existing file")
	c.RunE = func(c *cobra.Command, args []string) error {
		url, err := a.storeOf(c)
		if err != nil {
			return err
		}
		o.Progress = copying(a.err)
		s, err := embedded.Backup(c.Context(), url, args[0], o)
		if err != nil {
			return err
		}
		if a.output == "json" {
			return screen.PrintJSON(a.out, s)
		}
		fmt.Fprintf(a.err, "backed up %s\n", contents(s))
		fmt.Fprintln(a.out, s.File)
		return nil
	}
	return c
}

// contents describes a backup: its size, the number of executions and events, the last change.
func contents(s embedded.Snapshot) string {
	text := fmt.Sprintf("%s: %s with %s, %d of them owned", sized(s.Bytes), screen.Plural(int(s.Executions),
		"execution"), screen.Plural(int(s.Events), "event"), s.Owned)
	if !s.Mark.IsZero() {
		text += ", last written " + s.Mark.UTC().Format(time.DateTime) + " UTC"
	}
	return text
}

func sized(n int64) string {
	unit, of := "KiB", float64(n)/(1<<10)
	switch {
	case n >= 1<<30:
		unit, of = "GiB", float64(n)/(1<<30)
	case n >= 1<<20:
		unit, of = "MiB", float64(n)/(1<<20)
	}
	return fmt.Sprintf("%.1f %s", of, unit)
}

// copying returns a function that reports the progress of a long copy every two seconds.
func copying(to io.Writer) func(done, total int) {
	const every = 2 * time.Second
	next, reported := time.Now().Add(every), false
	return func(done, total int) {
		switch now := time.Now(); {
		case done == total && reported:
			fmt.Fprintln(to, "belay: copied; checking the copy")
		case done < total && now.After(next):
			next, reported = now.Add(every), true
			fmt.Fprintf(to, "belay: %d %% copied\n", int64(done)*100/int64(total))
		}
	}
}

package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
)

const backupLong = `Copy the data directory's database, as it is at this moment, to a file, or to a new
file in a directory. Whoever uses the directory goes on meanwhile.

All that was acknowledged before the command began is in the copy. It is looked
through for damage and on the disk before it gets its name, which is printed; until
then nothing is there, or what was there before. Only its owner may read it.

The log beside the database cannot begin anew while the copy is made: leave as much
room on the disk as is written meanwhile. PostgreSQL has tools of its own; see
docs/operations.md.`

func (a *app) backupCommand() *cobra.Command {
	var o embedded.CopyOptions
	c := &cobra.Command{
		Use: "backup FILE|DIR", Short: "Copy the database while it is in use", Long: backupLong,
		Args: exactly("a file or a directory"),
		Example: `  belay backup /backups
  belay backup --data /var/lib/belay /backups/belay.db --force`,
	}
	storeFlag(c)
	c.Flags().BoolVar(&o.Force, "force", false, "let it take the place of a file that is there")
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
		fmt.Fprintf(a.err, "backed up %s\n", holds(s))
		fmt.Fprintln(a.out, s.File)
		return nil
	}
	return c
}

// holds says what a backup holds.
func holds(s embedded.Snapshot) string {
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

// copying tells of a copy that takes long, every few seconds.
func copying(to io.Writer) func(done, total int) {
	const every = 2 * time.Second
	next, told := time.Now().Add(every), false
	return func(done, total int) {
		switch now := time.Now(); {
		case done == total && told:
			fmt.Fprintln(to, "belay: copied; checking the copy")
		case done < total && now.After(next):
			next, told = now.Add(every), true
			fmt.Fprintf(to, "belay: %d %% copied\n", int64(done)*100/int64(total))
		}
	}
}

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

// auditFlags are the flags that select entries of the audit.
type auditFlags struct {
	belay.AuditFilter
	since, until string
	limit        int
}

// filter checks the flags.
func (f *auditFlags) filter(now time.Time) (_ belay.AuditFilter, err error) {
	switch {
	case f.Kind != "" && !slices.Contains(belay.AuditKinds, f.Kind):
		return f.AuditFilter, usage("--kind is %s; it can be %s", quoted(f.Kind), strings.Join(belay.AuditKinds, ", "))
	case f.Name != "" && f.Kind == "":
		return f.AuditFilter, usage("--name needs --kind, because names are unique within a kind only")
	case f.limit < 1:
		return f.AuditFilter, usage("--limit is %d; it must be 1 at least", f.limit)
	}
	if f.Since, err = timeFlag("since", f.since, now); err == nil {
		f.Until, err = timeFlag("until", f.until, now)
	}
	return f.AuditFilter, err
}

func (a *app) auditCommand() *cobra.Command {
	var flags auditFlags
	c := &cobra.Command{
		Use: "audit", Short: "Show who did what, when, to which object, and why", Args: none,
		Long: `Show who did what, when, to which object, and why: changes of keys, gates, documents, schedules, webhooks and
notification targets, actions on executions and dead letters, and signals. The newest action comes first. On a server,
the command needs a key with the scope admin.`,
		Example: `  belay audit --actor anna --since 24h
  belay audit --kind gate --name queue:mail
  belay audit --kind execution --action delete`,
		RunE: func(c *cobra.Command, _ []string) error {
			f, err := flags.filter(time.Now())
			if err != nil {
				return err
			}
			return a.reading(c.Context(), func(r reader) error {
				var all []belay.AuditEntry
				for f.Limit = min(flags.limit+1, 1000); ; {
					page, err := r.Audit(c.Context(), f)
					if err != nil {
						return err
					}
					all = append(all, page.Entries...)
					if f.Cursor = page.Next; f.Cursor == "" || len(all) > flags.limit {
						break
					}
				}
				more := len(all) > flags.limit
				if err := a.printAudit(all[:min(flags.limit, len(all))]); err != nil || !more {
					return err
				}
				fmt.Fprintf(a.err, "belay: there are more than %d; list more of them with --limit\n", flags.limit)
				return nil
			})
		},
	}
	s := c.Flags()
	s.StringVar(&flags.Actor, "actor", "", "list only actions of this `person` or program: the name of its key")
	s.StringVar(&flags.Action, "action", "", "list only this `action`, such as pause")
	s.StringVar(&flags.Kind, "kind", "", "list only actions on objects of this `kind`: "+
		strings.Join(belay.AuditKinds, ", "))
	s.StringVar(&flags.Name, "name", "", "list only actions on the object with this `name` or id; --kind is needed too")
	s.StringVar(&flags.since, "since", "", "list only actions since this `time`, as 2026-11-20T08:00:00Z or a duration "+
		"ago like 2h")
	s.StringVar(&flags.until, "until", "", "list only actions before this `time`, as 2026-11-20T08:00:00Z or a "+
		"duration ago like 2h")
	s.IntVarP(&flags.limit, "limit", "n", 100, "the largest number of actions to list")
	_ = c.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(belay.AuditKinds,
		cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"actor", "action", "name", "since", "until", "limit"} {
		_ = c.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return a.readFlag(c)
}

func (a *app) printAudit(all []belay.AuditEntry) error {
	if a.output == "json" {
		if all == nil {
			all = []belay.AuditEntry{}
		}
		return screen.PrintJSON(a.out, all)
	}
	if len(all) == 0 {
		fmt.Fprintln(a.out, "no actions")
		return nil
	}
	t := screen.NewTable(a.out, "TIME", "ACTOR", "ACTION", "OBJECT", "REASON")
	for i := range all {
		e := &all[i]
		t.Row(e.At.Local().Format(time.DateTime), dash(e.Actor), e.Action,
			strings.ReplaceAll(e.Kind, "_", " ")+" "+e.Name, dash(screen.Brief(e.Reason, 80)))
	}
	return t.Flush()
}

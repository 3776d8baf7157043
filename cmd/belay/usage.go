package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

func (a *app) usageCommand() *cobra.Command {
	var f belay.UsageFilter
	var since, until string
	var labels []string
	c := &cobra.Command{
		Use: "usage", Short: "Sum up the tokens and the money that language models cost", Args: none,
		Long: `Sum up the tokens and the money that language models cost, by day, job, workflow or label. The days are those
of UTC, by the store's clock. A time within a day stands for the whole day. The total is exact, also if --limit
leaves out groups. Usage is kept when its execution is deleted.`,
		Example: `  belay usage --since 7d
  belay usage --by label:team --since 2026-11-01T00:00:00Z -o json`,
		RunE: func(c *cobra.Command, _ []string) error {
			now := time.Now()
			var err error
			if f.Since, err = usageTime("since", since, now); err != nil {
				return err
			}
			if f.Until, err = usageTime("until", until, now); err != nil {
				return err
			}
			if f.Labels, err = pairs("label", labels); err != nil {
				return err
			}
			if f.Limit < 1 || f.Limit > 1000 {
				return usage("--limit is %d; it must be 1 to 1000", f.Limit)
			}
			return a.reading(c.Context(), func(r reader) error {
				report, err := r.Usage(c.Context(), f)
				if err != nil {
					return err
				}
				return a.printUsage(&report)
			})
		},
	}
	s := c.Flags()
	s.StringVar(&f.By, "by", "day", "the `groups`: day, job, workflow, or label:KEY")
	s.StringVar(&since, "since", "", "only usage since this `time`, as 2026-11-20T08:00:00Z or a time ago like 7d "+
		"or 2h")
	s.StringVar(&until, "until", "", "only usage before this `time`, as 2026-11-20T08:00:00Z or a time ago like 7d "+
		"or 2h")
	s.StringVar(&f.Workflow, "workflow", "", "only usage of executions of this `workflow`")
	s.StringSliceVar(&labels, "label", nil, "only usage of executions with these labels, as `name=value`")
	s.IntVarP(&f.Limit, "limit", "n", 100, "the largest number of groups to list")
	_ = c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"day", "job", "workflow", "label:"},
		cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"since", "until", "workflow", "label", "limit"} {
		_ = c.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return a.readFlag(c)
}

// usageTime is timeFlag, which also reads a number of days, such as 7d.
func usageTime(name, text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 15); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	return timeFlag(name, text, now)
}

func (a *app) printUsage(r *belay.UsageReport) error {
	if a.output == "json" {
		return screen.PrintJSON(a.out, r)
	}
	if len(r.Groups) == 0 {
		fmt.Fprintln(a.out, "no usage")
		return nil
	}
	t := screen.NewTable(a.out, strings.ToUpper(strings.TrimPrefix(r.By, "label:")), "INPUT", "CACHED", "OUTPUT", "USD",
		"UNPRICED")
	row := func(key string, u belay.ModelUsage) {
		t.Row(key, strconv.FormatInt(u.InputTokens, 10), strconv.FormatInt(u.CacheReadTokens, 10),
			strconv.FormatInt(u.OutputTokens, 10), u.Money.String(), strconv.FormatInt(u.UnpricedTokens, 10))
	}
	for _, g := range r.Groups {
		row(dash(screen.Brief(g.Key, 80)), g.ModelUsage)
	}
	row("total", r.Total)
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Omitted > 0 {
		fmt.Fprintf(a.err, "belay: %d more groups are part of the total; list more of them with --limit\n", r.Omitted)
	}
	return nil
}

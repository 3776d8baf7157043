package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// usageScanned is the largest number of pairs of an execution and a day that one report reads.
const usageScanned = 100_000

// Usage sums up usage.
func (r *Reader) Usage(ctx context.Context, f belay.UsageFilter) (belay.UsageReport, error) {
	report := belay.UsageReport{By: cmp.Or(f.By, "day"), Groups: []belay.UsageGroup{}}
	if err := machine.CheckUsageFilter("report usage", f); err != nil {
		return report, err
	}
	// A name is a day, a slash and an id, so it comes after the day alone and before the next day.
	q := store.Query{Of: store.Objects, Kind: machine.UsageObject, Limit: 1000, Bytes: 4 << 20}
	until := ""
	if !f.Since.IsZero() {
		q.After = machine.UsageDay(f.Since)
	}
	if !f.Until.IsZero() {
		until = machine.UsageDay(f.Until.Add(24*time.Hour - 1))
	}
	sums := make(map[string]belay.ModelUsage)
	for examined := 0; ; {
		found, err := r.store.Query(ctx, q)
		if err != nil {
			return belay.UsageReport{}, err
		}
		for _, o := range found.Objects {
			if until != "" && o.Name >= until {
				found.Next = ""
				break
			}
			row, err := machine.UsageOf(o)
			if err != nil {
				return belay.UsageReport{}, err
			}
			if key, ok := row.Group(f); ok {
				sums[key] = sums[key].Add(row.ModelUsage)
				report.Total = report.Total.Add(row.ModelUsage)
			}
		}
		if examined += len(found.Objects); found.Next == "" {
			break
		}
		if examined >= usageScanned {
			return belay.UsageReport{}, &belay.Error{
				Code: belay.CodeInvalid, Op: "report usage", Message: fmt.Sprintf("the time has more than %d "+
					"executions and days: choose a shorter time with since and until", usageScanned),
			}
		}
		q.After = found.Next
	}
	for key, u := range sums {
		report.Groups = append(report.Groups, belay.UsageGroup{Key: key, ModelUsage: u})
	}
	slices.SortFunc(report.Groups, func(a, b belay.UsageGroup) int {
		if report.By == "day" {
			return cmp.Compare(a.Key, b.Key)
		}
		return cmp.Or(cmp.Compare(b.Tokens(), a.Tokens()), cmp.Compare(a.Key, b.Key))
	})
	limit := 100
	if f.Limit > 0 {
		limit = min(f.Limit, 1000)
	}
	if n := len(report.Groups); n > limit {
		if report.Omitted = n - limit; report.By == "day" {
			report.Groups = report.Groups[n-limit:] // the newest days
		} else {
			report.Groups = report.Groups[:limit]
		}
	}
	return report, nil
}

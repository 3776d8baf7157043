package sdktest

import (
	"context"
	"errors"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/workflow"
)

// used returns the report of usage by something.
func (e *env) used(f belay.UsageFilter) belay.UsageReport {
	e.Helper()
	r, err := e.b.Usage(e.ctx, f)
	if err != nil {
		e.Fatal(err)
	}
	return r
}

var usage = []testCase{
	{"usage counts once, by day, job and label, although replies are lost and a run is repeated", func(e *env) {
		one := belay.ModelUsage{InputTokens: 1000, OutputTokens: 10, CacheReadTokens: 600, Money: 2_500_001}
		runs := 0
		c := e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			runs++
			workflow.AddUsage(ctx, one)
			if err := workflow.Checkpoint(ctx, runs); err != nil {
				return 0, err
			}
			time.Sleep(24 * time.Hour)
			workflow.AddUsage(ctx, one)
			workflow.AddUsage(ctx, belay.ModelUsage{UnpricedTokens: 7})
			workflow.AddUsage(ctx, belay.ModelUsage{UnpricedTokens: -3})
			return 0, errors.Join(workflow.Checkpoint(ctx, runs), nil)
		}))
		c.wire.on("save", true, 1, func(context.Context, call) error { return errCut })
		began := time.Now()
		submitted, err := e.b.Submit(e.ctx, belay.Submission{Workflow: "w", Labels: map[string]string{"team": "web"}})
		e.must(err)
		id := submitted[0].ID
		e.sleep(24*time.Hour + time.Minute)
		want(e, id, 0)
		two := one.Add(one).Add(belay.ModelUsage{UnpricedTokens: 4})
		r := e.used(belay.UsageFilter{})
		if len(r.Groups) != 2 || r.Groups[0].ModelUsage != one || r.Groups[1].ModelUsage != two.Minus(one) ||
			r.Total != two {
			e.Errorf("by day: %+v", r)
		}
		for by, key := range map[string]string{
			"job": id.String(), "workflow": "w", "label:team": "web", "label:other": "",
		} {
			if r := e.used(belay.UsageFilter{By: by}); len(r.Groups) != 1 || r.Groups[0].Key != key || r.Total != two {
				e.Errorf("by %s: %+v", by, r)
			}
		}
		day := began.UTC().Truncate(24 * time.Hour)
		for name, x := range map[string]struct {
			f    belay.UsageFilter
			want belay.ModelUsage
		}{
			"the first day":     {belay.UsageFilter{Since: day, Until: day.Add(24 * time.Hour)}, one},
			"a part of it":      {belay.UsageFilter{Since: day.Add(time.Hour), Until: day.Add(2 * time.Hour)}, one},
			"the next day":      {belay.UsageFilter{Since: day.Add(24 * time.Hour)}, two.Minus(one)},
			"a label":           {belay.UsageFilter{Labels: map[string]string{"team": "web"}}, two},
			"another label":     {belay.UsageFilter{Labels: map[string]string{"team": "app"}}, belay.ModelUsage{}},
			"another workflow":  {belay.UsageFilter{Workflow: "v"}, belay.ModelUsage{}},
			"a limit of groups": {belay.UsageFilter{Limit: 1}, two},
		} {
			if r := e.used(x.f); r.Total != x.want {
				e.Errorf("%s: %+v", name, r)
			}
		}
		if got := e.get(id).CostTokens; got != belay.CostOf(two.Tokens()) {
			e.Errorf("the cost is %s", got)
		}
	}},
	{"a wrong filter of usage is refused", func(e *env) {
		for name, f := range map[string]belay.UsageFilter{
			"the groups": {By: "week"}, "a label without a name": {By: "label:"},
			"the times": {Since: time.Unix(2, 0), Until: time.Unix(1, 0)}, "the workflow": {Workflow: "a\x00"},
		} {
			if _, err := e.b.Usage(e.ctx, f); belay.CodeOf(err) != belay.CodeInvalid &&
				belay.CodeOf(err) != belay.CodeMalformed {
				e.Errorf("%s: %v", name, err)
			}
		}
	}},
	{"a usage that is too large is ignored", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			workflow.AddUsage(ctx, belay.ModelUsage{UnpricedTokens: belay.MaxUsage + 1})
			return 0, workflow.Checkpoint(ctx, "x")
		}))
		submitted, err := e.b.Submit(e.ctx, belay.Submission{Workflow: "w"})
		e.must(err)
		want(e, submitted[0].ID, 0)
		if r := e.used(belay.UsageFilter{}); r.Total != (belay.ModelUsage{}) {
			e.Errorf("%+v", r)
		}
	}},
}

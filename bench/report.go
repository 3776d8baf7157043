package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/belaydev/belay/bench/trial"
)

// report has all results of a run.
type report struct {
	Machine    []string                  `json:"machine"`
	PostgreSQL []string                  `json:"postgresql,omitempty"`
	Versions   map[string]string         `json:"versions"`
	Quick      bool                      `json:"quick,omitempty"`
	Samples    map[string][]trial.Sample `json:"samples"` // the samples of each trial by its name, one for each round
	Claims     []claim                   `json:"claims"`
}

// titles describe the measures, in the order in which they are printed.
var titles = []struct {
	measure trial.Measure
	title   string
}{
	{trial.Ceiling, "the database alone: commits of one row a second"},
	{trial.Drain, "no-op executions worked off a second, 1,000 in flight"},
	{trial.Flow, "no-op executions submitted, worked off and awaited a second"},
	{trial.Steps, "durable steps a second, ten an execution"},
	{trial.Submit, "single submits acknowledged a second, 64 callers"},
	{trial.Bulk, "rows submitted a second, a thousand at a time"},
	{trial.Latency, "from submit to start, by rate"},
	{trial.Takeover, "from kill -9 of a worker until its work runs on another"},
	{trial.Overload, "ten times the load: executions ended a second, of the best rate, and from arrival to start " +
		"of accepted executions"},
	{trial.Loaded, "worked off a second among 1,000,000 ended and 100,000 waiting"},
	{trial.Gates, "executions worked off a second that all name one limit, by limit"},
	{trial.Parked, "beside executions that wait at a full limit: submitted, worked off and awaited a second"},
	{trial.Lease, "a lone lease, one after the other"},
	{trial.Hold, "10,000 idle executions owned by 10 workers"},
	{trial.Idle, "an idle server"},
	{trial.Pages, "pages of the web UI among 1,000,000 ended executions and 100,000 pending ones"},
	{trial.Register, "registrations a second of 20 processes in the registry of one machine, and their times"},
	{trial.Jobs, "agents' jobs a second on one large repository: disk beyond the clone, the lock of set-ups, " +
		"git's failures, wrong jobs"},
}

// String formats the report for people: the figures, the settings, the verdicts.
func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, strings.Join(append(r.Machine, r.PostgreSQL...), "\n"))
	for _, k := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(&b, "%s %s  ", k, r.Versions[k])
	}
	fmt.Fprintln(&b)
	if r.Quick {
		fmt.Fprintln(&b, "QUICK: one short round shows that the trials work, not how fast the contenders are")
	}
	r.figures(&b)
	r.settings(&b)
	r.revisions(&b)
	r.verdicts(&b)
	return b.String()
}

func (r *report) figures(b *strings.Builder) {
	for _, t := range titles {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(r.Samples)), func(name string) bool {
			m, _, _ := strings.Cut(name, "/")
			m, _, _ = strings.Cut(m, "@")
			return m != string(t.measure)
		})
		if len(names) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n%s\n", t.title)
		w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		for _, name := range names {
			fmt.Fprintf(w, "  %s\t%s\n", name, r.figure(name))
		}
		_ = w.Flush() // a write to memory cannot fail
		for _, name := range names {
			r.parts(b, name)
		}
	}
}

// parts prints the times of the parts of a trial, and which of them exceed the limit.
func (r *report) parts(b *strings.Builder, name string) {
	for _, s := range r.Samples[name] {
		if len(s.Parts) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n  %s: p50, p95, max and processor time of a request alone, then p50, p95 and max beside "+
			"a load, in ms\n", name)
		w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, p := range s.Parts {
			verdict := "ok"
			if p.Alone.P95 > slowestPage {
				verdict = fmt.Sprintf("ABOVE %d ms", slowestPage)
			}
			if p.Failed > 0 {
				verdict += fmt.Sprintf(", %d FAILED", p.Failed)
			}
			fmt.Fprintf(w, "  %.1f\t%.1f\t%.1f\t%.1f\t\t%.1f\t%.1f\t%.1f\t%d kB\t%s\t  %s\n", p.Alone.P50, p.Alone.P95,
				p.Alone.Max, p.CPU, p.Beside.P50, p.Beside.P95, p.Beside.Max, (p.Bytes+1023)/1024, verdict, p.Name)
		}
		_ = w.Flush() // a write to memory cannot fail
	}
}

// figure returns the median of a trial's rounds as text, with the smallest and the largest value.
func (r *report) figure(name string) string {
	all := slices.DeleteFunc(slices.Clone(r.Samples[name]), func(s trial.Sample) bool { return s.Error != "" })
	if len(all) == 0 {
		return "– " + r.Samples[name][0].Error
	}
	slices.SortFunc(all, func(a, b trial.Sample) int {
		if a.Times != nil && b.Times != nil {
			return int(1e6 * (a.Times.P95 - b.Times.P95))
		}
		return cmp.Compare(a.Rate, b.Rate)
	})
	text := sample(all[len(all)/2]).line()
	if n := len(all); n > 1 && all[0].Rate > 0 {
		text += fmt.Sprintf("\t%s to %s", each(all[0].Rate), each(all[n-1].Rate))
	}
	if failed := len(r.Samples[name]) - len(all); failed > 0 {
		text += fmt.Sprintf("\t%d of %d rounds failed", failed, len(r.Samples[name]))
	}
	return text
}

// each formats a rate, with three decimals if it is below ten.
func each(rate float64) string {
	if rate < 10 {
		return fmt.Sprintf("%.3f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}

// line formats a sample as one line.
func (s sample) line() string {
	if s.Error != "" {
		return "– " + s.Error
	}
	var parts []string
	if s.Rate > 0 {
		parts = append(parts, each(s.Rate)+"/s")
	}
	if s.CPU > 0 {
		cost := fmt.Sprintf("%.0f", s.CPU)
		if s.Database > 0 {
			cost += fmt.Sprintf("+%.0f", s.Database)
		}
		parts = append(parts, cost+" µs each")
	}
	if t := s.Times; t != nil {
		parts = append(parts, fmt.Sprintf("p50 %.2f  p95 %.2f  p99 %.2f  max %.2f ms (%d)", t.P50, t.P95, t.P99, t.Max,
			t.N))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Values)) {
		parts = append(parts, fmt.Sprintf("%s %.4g", k, s.Values[k]))
	}
	return strings.Join(parts, "  ")
}

// settings prints the settings of each contender, and prints equal texts only once.
func (r *report) settings(b *strings.Builder) {
	seen := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(r.Samples)) {
		_, who, _ := strings.Cut(name, "/")
		for _, s := range r.Samples[name] {
			if s.Settings != "" {
				seen[who+": "+s.Settings] = true
			}
		}
	}
	fmt.Fprintln(b, "\nsettings")
	for _, s := range slices.Sorted(maps.Keys(seen)) {
		fmt.Fprintf(b, "  %s\n", s)
	}
}

// revisions compares this revision with the revision of -before, round by round.
func (r *report) revisions(b *strings.Builder) {
	var rows []string
	for _, name := range slices.Sorted(maps.Keys(r.Samples)) {
		mine, found := strings.CutSuffix(name, "/before")
		if !found {
			continue
		}
		rate := r.ratios(mine+"/"+string(trial.Default), name, "rate")
		cost := r.ratios(name, mine+"/"+string(trial.Default), "processor")
		rows = append(rows, fmt.Sprintf("  %s\t%s\t%s", mine, spread(rate), spread(cost)))
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprintln(b, "\nthis revision relative to the one before, more than 1 is better: min, median, max of the rounds")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  \trate\tby processor time\n%s\n", strings.Join(rows, "\n"))
	_ = w.Flush() // a write to memory cannot fail
}

// ratios returns the ratio of a value in two trials, for each round in which both have the value.
func (r *report) ratios(name, to, what string) (all []float64) {
	for i := range min(len(r.Samples[name]), len(r.Samples[to])) {
		a, ok := value(r.Samples[name][i], what)
		b, there := value(r.Samples[to][i], what)
		if ok && there {
			all = append(all, a/b)
		}
	}
	slices.Sort(all)
	return all
}

// spread formats sorted ratios: the smallest, the median and the largest.
func spread(all []float64) string {
	if len(all) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3f  %.3f  %.3f", all[0], all[len(all)/2], all[len(all)-1])
}

func (r *report) verdicts(b *strings.Builder) {
	fmt.Fprintln(b, "\naims")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, c := range r.Claims {
		if r.Samples[c.Mine] == nil {
			continue // the trial was not requested
		}
		unit, sign := c.Unit, "≥"
		if unit == "" {
			unit = "×"
		}
		if c.Bound {
			sign = "≤"
		}
		floor := "none"
		if c.Floor > 0 {
			floor = fmt.Sprintf("%s %g", sign, c.Floor)
		}
		measured := fmt.Sprintf("%.2f %s", c.Measured, unit)
		if c.Verdict == unknown {
			measured = "–"
		}
		aim := fmt.Sprintf("%s %g", sign, c.Aim)
		if c.Open {
			aim = "none"
		}
		if c.Processor > 0 {
			c.Why = fmt.Sprintf("by processor time %.2f ×", c.Processor)
		}
		fmt.Fprintf(w, "  %s\t%s\taim %s\tfloor %s\t%s\t%s\n", c.Name, measured, aim, floor, c.Verdict, c.Why)
	}
	_ = w.Flush() // a write to memory cannot fail
}

// failed returns an error if a value is below its floor (the worst accepted value). A quick run
// never fails.
func (r *report) failed() error {
	if r.Quick {
		return nil
	}
	var names []string
	for _, c := range r.Claims {
		if c.Verdict == below {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("below the floor: %s", strings.Join(names, "; "))
}

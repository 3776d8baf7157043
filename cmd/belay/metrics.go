package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

// whenBy describes the time of an action and its actor, who may have no name.
func whenBy(at time.Time, actor string) string {
	text := at.Local().Format(time.DateTime) + " (" + since(at) + " ago)"
	if actor != "" {
		text += " by " + actor
	}
	return text
}

// showMetrics adds rows about the runs, the steps, the cost and the children of an execution.
func showMetrics(t *screen.Table, d *belay.ExecutionDetail) {
	m := d.Metrics
	if m == nil { // the server is of an older version
		m = &belay.Metrics{CostTokens: d.CostTokens}
	}
	if m.Runs > 0 {
		running := time.Duration(m.RunningMS) * time.Millisecond
		if !m.RunningSince.IsZero() {
			running += max(0, time.Since(m.RunningSince))
		}
		t.Row("runs", fmt.Sprintf("%s, in all %s; the first began %s after the submission",
			counted(m.Runs, m.Outcomes, "running"), screen.Short(running),
			screen.Short(time.Duration(m.WaitMS)*time.Millisecond)))
	}
	if m.Checkpoints > 0 {
		t.Row("steps", fmt.Sprintf("%d, with %d checkpoints", m.Steps, m.Checkpoints))
	}
	if m.CostTokens > 0 {
		t.Row("cost", m.CostTokens.String()+" tokens")
	}
	if c := m.Children; c != nil {
		text := counted(c.Total, c.States, "")
		if c.Runs > 0 {
			text += fmt.Sprintf("; %d runs, in all %s", c.Runs,
				screen.Short(time.Duration(c.RunningMS)*time.Millisecond))
		}
		if c.CostTokens > 0 {
			text += "; cost " + c.CostTokens.String() + " tokens"
		}
		t.Row("children", text)
	}
	if m.Truncated {
		t.Row("counted", fmt.Sprintf("only the newest %d rows of each kind", belay.MaxMeasured))
	}
}

// counted describes a number of things by their kinds, such as "3: 1 lost, 2 suspended". Things without a kind
// are of the kind rest.
func counted(all int, kinds map[string]int, rest string) string {
	var parts []string
	left := all
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%d %s", kinds[k], k))
		left -= kinds[k]
	}
	if left > 0 && rest != "" {
		parts = append(parts, fmt.Sprintf("%d %s", left, rest))
	}
	return fmt.Sprintf("%d: %s", all, strings.Join(parts, ", "))
}

package main

import (
	"fmt"
	"strings"

	"github.com/belaydev/belay/internal/screen"
)

// printTop prints a view.
func (a *app) printTop(v *topView) error {
	var states []string
	for _, s := range v.States {
		states = append(states, screen.Mark(a.out, s.State.String())+" "+count(s.Count, s.More))
	}
	dead := "dead letters " + count(v.Dead.Count, v.Dead.More)
	if err := screen.Write(a.out, strings.Join(states, "  ")+"  "+dead+"\n"); err != nil {
		return err
	}
	for _, section := range []func(*topView) error{
		a.topFleet, a.topLanes, a.topGatesShut, a.topLongest, a.topDeadLetters,
	} {
		if err := section(v); err != nil {
			return err
		}
	}
	return nil
}

// count formats a number of things, with a + if there are more.
func count(n int, more bool) string {
	if more {
		return fmt.Sprintf("%d+", n)
	}
	return fmt.Sprint(n)
}

// topTable begins a section with a table.
func (a *app) topTable(head ...string) *screen.Table {
	fmt.Fprintln(a.out)
	return screen.NewTable(a.out, head...)
}

func (a *app) topFleet(v *topView) error {
	runs := make(map[string][]string)
	for i := range v.Longest {
		x := &v.Longest[i]
		runs[x.Worker.String()] = append(runs[x.Worker.String()], x.Workflow)
	}
	t := a.topTable("WORKER", "STATE", "SLOTS", "HEARTBEAT", "RUNS")
	for i := range v.Fleet {
		w := &v.Fleet[i]
		t.Row(narrow(w.Name), w.State.String(), fmt.Sprintf("%d/%d", w.Running, w.Capacity),
			since(w.HeartbeatAt)+" ago", screen.Brief(dash(strings.Join(runs[w.ID.String()], ",")), 60))
	}
	return t.Flush()
}

func (a *app) topLanes(v *topView) error {
	if len(v.Lanes) == 0 {
		return nil
	}
	t := a.topTable("QUEUE", "PENDING", "SCHEDULED", "RUNNING", "OLDEST")
	for i := range v.Lanes {
		l := &v.Lanes[i]
		t.Row(narrow(l.Queue), fmt.Sprint(l.Pending), fmt.Sprint(l.Scheduled), fmt.Sprint(l.Running), since(l.Oldest))
	}
	return t.Flush()
}

func (a *app) topGatesShut(v *topView) error {
	if len(v.Gates) == 0 {
		return nil
	}
	t := a.topTable("GATE", "STATE", "WHY")
	for i := range v.Gates {
		g := &v.Gates[i]
		t.Row(narrow(string(g.ID)), gateState(g), whyShut(g))
	}
	return t.Flush()
}

func (a *app) topLongest(v *topView) error {
	if len(v.Longest) == 0 {
		return nil
	}
	t := a.topTable("EXECUTION", "STATE", "WORKFLOW", "RUNS FOR", "STEP", "PROGRESS", "OWNER")
	for i := range v.Longest {
		x := &v.Longest[i]
		progress := since(x.Progress)
		if !x.Progress.IsZero() {
			progress += " ago"
		}
		t.Row(x.Execution.String(), x.State, narrow(x.Workflow), since(x.Started), narrow(dash(x.doing())), progress,
			narrow(dash(x.Owner)))
	}
	return t.Flush()
}

// doing is the current step with the time since its begin, or the newest saved step.
func (x *topRun) doing() string {
	if len(x.Current) == 0 {
		return x.Step
	}
	s := &x.Current[0]
	text := screen.Brief(s.Name, 24) + " for " + since(s.BeganAt)
	if s.Attempt > 1 {
		text += fmt.Sprintf(", try %d", s.Attempt)
	}
	if n := len(x.Current) - 1; n > 0 {
		text += fmt.Sprintf(", +%d", n)
	}
	return text
}

func (a *app) topDeadLetters(v *topView) error {
	if len(v.Dead.Groups) == 0 {
		return nil
	}
	t := a.topTable("DEAD", "WORKFLOW", "REASON", "LAST", "ERROR")
	for i := range v.Dead.Groups {
		g := &v.Dead.Groups[i]
		t.Row(fmt.Sprint(g.Count), narrow(g.Workflow), g.Reason, since(g.Last)+" ago", screen.Brief(g.Message, 80))
	}
	return t.Flush()
}

// narrow keeps a long name from pushing the other columns off the screen.
func narrow(name string) string { return screen.Brief(screen.Line(name), 40) }

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

// Rule: belay get names the current steps, with the time since their begin, and shows with each event of the history
// how long its step took and which tries failed before it; names and errors change nothing on the terminal.
func TestGetShowsSteps(t *testing.T) {
	const hostile = "evil\u202e\x1b[2J\nname"
	now := time.Now()
	e := &belay.ExecutionDetail{Execution: belay.Execution{
		Workflow: "w", State: belay.Running, Current: []belay.StepRecord{
			{Kind: belay.KindStep, Name: "charge", Attempt: 2, BeganAt: now.Add(-90 * time.Second)},
			{Kind: belay.KindWait, Name: hostile, BeganAt: now.Add(-time.Hour)},
		},
	}}
	events := []belay.Event{
		{Seq: 1, Kind: "step", Name: "fetch", Attempt: 2, DurationMS: 1500, At: now, Steps: []belay.StepRecord{
			{Kind: belay.KindStep, Name: "fetch", Attempt: 1, Over: true, DurationMS: 20, Error: hostile, BeganAt: now},
		}},
		{Seq: 2, Kind: "lost", At: now, Steps: []belay.StepRecord{
			{Kind: belay.KindStep, Name: "charge", BeganAt: now.Add(-5 * time.Second)},
		}},
	}
	var out bytes.Buffer
	a := &app{streams: streams{out: &out, err: &out}}
	if err := a.show(e, nil, events, "", ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"step charge, attempt 2, for 1m30s; wait evil", "for 1h00m", "fetch · attempt 2 · took 1.5s",
		"fetch, attempt 1, took 20ms · evil", "charge, unfinished after 5s",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("belay get does not show %q:\n%s", want, &out)
		}
	}
	if strings.ContainsFunc(out.String(), func(r rune) bool { return r != '\n' && screen.Hostile(r) }) ||
		strings.Contains(out.String(), "\nname") {
		t.Errorf("a name changes the terminal: %q", out.String())
	}
}

// Rule: belay watch prints each try of a current step once.
func TestWatchPrintsACurrentStepOnce(t *testing.T) {
	var out bytes.Buffer
	a := &app{streams: streams{out: &out, err: &out}}
	var lines stepLines
	e := &belay.Execution{Current: []belay.StepRecord{{Kind: belay.KindStep, Name: "charge", Attempt: 1}}}
	for range 3 {
		if err := lines.print(a, e); err != nil {
			t.Fatal(err)
		}
	}
	e.Current[0].Attempt = 2
	if err := lines.print(a, e); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "attempt 1") != 1 || strings.Count(got, "attempt 2") != 1 {
		t.Errorf("watch prints %q", got)
	}
}

// Rule: belay top shows the current step of a running execution, or else its newest saved step.
func TestTopShowsTheCurrentStep(t *testing.T) {
	x := topRun{Step: "fetch"}
	if got := x.doing(); got != "fetch" {
		t.Errorf("without a current step: %q", got)
	}
	x.Current = []belay.StepRecord{
		{Name: "charge", Attempt: 2, BeganAt: time.Now().Add(-90 * time.Second)}, {Name: "b/poll"},
	}
	if got := x.doing(); got != "charge for 1m30s, try 2, +1" {
		t.Errorf("with two current steps: %q", got)
	}
}

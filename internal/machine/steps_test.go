package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// A text of steps that a newer version has written in another form counts as empty: no reader fails because of it.
func TestStepsOfUnknownForms(t *testing.T) {
	for _, text := range []string{"", "{}", "null", "[1]", `[{"n":1}]`, "[", `"x"`} {
		if got := StepsOf(text); got != nil {
			t.Errorf("%q gives %v", text, got)
		}
		x := &Worker{Current: text}
		if got, _ := x.CurrentSteps(belay.RunID{}); got != nil {
			t.Errorf("%q gives the current steps %v", text, got)
		}
	}
}

// A checkpoint of a current step ends the step, also if the name was cut; an event of another kind or name does not.
func TestUnderway(t *testing.T) {
	long := strings.Repeat("ü", 100)
	cut := oneLine(long, belay.MaxCurrentName)
	steps := []belay.StepRecord{
		{Kind: belay.KindStep, Name: "a"}, {Kind: belay.KindWait, Name: "b"}, {Kind: belay.KindStep, Name: cut},
	}
	for _, c := range []struct {
		events []belay.Event
		want   int
	}{
		{nil, 3},
		{[]belay.Event{{Kind: "wait", Name: "a"}, {Kind: "step", Name: "b"}, {Kind: "signal", Name: "b"}}, 3},
		{[]belay.Event{{Kind: "step", Name: "a"}, {Kind: "wait", Name: "b"}}, 1},
		{[]belay.Event{{Kind: "step", Name: long}}, 2},
	} {
		if got := Underway(steps, c.events); len(got) != c.want {
			t.Errorf("after %v %d steps are left, want %d", c.events, len(got), c.want)
		}
	}
}

// Reported times lie between the creation of the execution and now, and reported durations fit into a time.
func TestReportedTimesAreBounded(t *testing.T) {
	e := &Execution{CreatedAt: 1000}
	w := &world{Rows: &Rows{Now: 5000}}
	for ago, want := range map[time.Duration]Time{
		-1 << 63: 5000, -1: 5000, 0: 5000, 1000 * time.Microsecond: 4000, time.Hour: 1000, 1<<63 - 1: 1000,
	} {
		rows := w.stepRows(e, []belay.StepReport{{Name: "n", Ago: ago, Over: true, Took: ago}}, 1, 10)
		if len(rows) != 1 || rows[0].Began != want || *rows[0].Took < 0 {
			t.Errorf("a step that began %s ago: %+v, want %d", ago, rows, want)
		}
		if r := records(rows)[0]; r.DurationMS < 0 {
			t.Errorf("a step of %s lasted %d ms", ago, r.DurationMS)
		}
	}
}

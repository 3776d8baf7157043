package webui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// overviewWith requests the overview of a server that did this.
func overviewWith(t *testing.T, all []Minute, since time.Time) *answer {
	t.Helper()
	return sendWith(t, &fake{list: func(belay.Filter) (belay.Page, error) { return belay.Page{}, nil }},
		Options{Activity: func() ([]Minute, time.Time) { return all, since }}, "/overview")
}

// quietHour is an hour in which nothing happened.
func quietHour() []Minute {
	all := make([]Minute, 60)
	for i := range all {
		all[i].At = noon.Add(time.Duration(i-59) * time.Minute)
	}
	return all
}

// Rule: each plot has its values in words, in the picture and in a table.
func TestTheLastHourIsPlotted(t *testing.T) {
	all := quietHour()
	all[10].Succeeded, all[10].Failed = 12, 3
	all[59].Cancelled = 1
	all[10].Starts, all[10].StartHalf, all[10].StartMost = 15, 20*time.Millisecond, 2*time.Second
	all[30].Starts = 1 // at once
	all[20].Takeovers, all[20].TakeoverHalf, all[20].TakeoverMost = 2, 30*time.Millisecond, 40*time.Millisecond
	a := overviewWith(t, all, noon.Add(-30*time.Minute))
	a.says("which has counted since 11:30 UTC",
		"With children: 12 succeeded, 3 failed, 1 cancelled; at most 15 in a minute.",
		"16 runs; in the slowest minute 95 of 100 began within 2s.",
		"2 workers lost; the slowest takeover came 40ms after the end of the lease.")
	figures := a.root.all("figure")
	if len(figures) != 3 {
		t.Fatalf("%d figures", len(figures))
	}
	for i, want := range [][]string{
		{"11:11 12 3 0", "12:00 0 0 1"}, {"11:11 15 20ms 2s", "11:31 1 0s 0s"}, {"11:21 2 30ms 40ms"},
	} {
		var rows []string
		for _, row := range figures[i].all("tbody")[0].all("tr") {
			rows = append([]string{strings.Join(strings.Fields(row.words()), " ")}, rows...)
		}
		if fmt.Sprint(rows) != fmt.Sprint(want) {
			t.Errorf("the table is %q, want %q", rows, want)
		}
		picture := figures[i].all("svg")[0]
		if picture.attr["role"] != "img" || !strings.Contains(picture.attr["aria-label"], ".") {
			t.Errorf("the picture has no words: %v", picture.attr)
		}
		if n := len(picture.all("g")); n != len(want) {
			t.Errorf("%d minutes in the picture, want %d", n, len(want))
		}
	}
	// 12 of 20 is three fifths of the picture; 3 of 20 stand on them.
	var bars []string
	for _, r := range figures[0].all("g")[0].all("rect") {
		bars = append(bars, strings.Join([]string{r.attr["class"], r.attr["x"], r.attr["y"], r.attr["height"]}, " "))
	}
	if want := "[good 101 40 60 bad 101 25 15]"; fmt.Sprint(bars) != want {
		t.Errorf("the bars are %v, want %s", bars, want)
	}
	overviewWith(t, all, noon.Add(-2*time.Hour)).saysNot("counted since")
}

// Rule: waits that are too short for a number have words, and no "within 0s".
func TestShortWaitsInWords(t *testing.T) {
	all := quietHour()
	all[30].Starts, all[31].Takeovers = 1, 1
	overviewWith(t, all, noon.Add(-2*time.Hour)).says("1 run began at once.",
		"1 worker lost; each takeover came at the end of the lease at the latest.")
}

// Rule: a plot without values says so in place of an empty picture, and a server that does not count has no plots.
func TestAQuietHourHasNoPictures(t *testing.T) {
	a := overviewWith(t, quietHour(), noon)
	a.says("None has ended.", "No run has begun.", "No worker was lost.")
	if n := len(a.root.all("figure")[0].all("svg")); n != 0 {
		t.Errorf("%d pictures", n)
	}
	overviewWith(t, nil, noon).saysNot("Last hour")
	get(t, &fake{}, "/overview").saysNot("Last hour")
}

// Rule: whatever the values are, no bar is outside of its picture, and the page stays small.
func TestBarsStayInTheirPictures(t *testing.T) {
	all := quietHour()
	for i := range all {
		m := &all[i]
		m.Succeeded, m.Failed, m.Cancelled = 1_000_000_000, i, 1
		m.Starts, m.StartHalf, m.StartMost = i, time.Duration(i)*time.Nanosecond, time.Duration(i)*time.Hour
		m.Takeovers, m.TakeoverHalf, m.TakeoverMost = 1, 1, time.Duration(1<<62)
	}
	a := overviewWith(t, all, noon)
	for _, r := range a.root.all("rect") {
		var x, y, w, h int
		for name, to := range map[string]*int{"x": &x, "y": &y, "width": &w, "height": &h} {
			if s := r.attr[name]; s != "" {
				if _, err := fmt.Sscan(s, to); err != nil {
					t.Fatal(err)
				}
			}
		}
		if x < 0 || y < 0 || x+w > 600 || y+h > 100 {
			t.Errorf("a bar is outside: %v", r.attr)
		}
	}
	if len(a.body) > 96<<10 {
		t.Errorf("the page has %d bytes", len(a.body))
	}
}

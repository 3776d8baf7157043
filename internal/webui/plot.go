package webui

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Minute is what this server did in one minute.
type Minute struct {
	At                           time.Time // when the minute began
	Succeeded, Failed, Cancelled int       // executions that ended
	// Starts are the runs that began. StartHalf is how long half of their executions had been due at most, and
	// StartMost how long 95 in 100 of them.
	Starts               int
	StartHalf, StartMost time.Duration
	// Takeovers are the sessions of workers that were lost. TakeoverHalf is how long after the end of the lease the
	// executions of half of them were taken back at most, and TakeoverMost that of the last one.
	Takeovers                  int
	TakeoverHalf, TakeoverMost time.Duration
}

// The size of a picture, and of the place of one minute in it.
const (
	plotHeight  = 100
	minuteWidth = 10
)

// activity has the plots of the last hour on this server.
type activity struct {
	Of    string // which time the plots show
	Plots []plot
}

// plot is a picture with a bar, or several, for each minute, and a table of the same values.
type plot struct {
	Title   string
	Summary string // the picture in words
	Width   int
	Top     string // the value at the top of the picture
	From    string
	Keys    []plotKey
	Minutes []plotMinute // empty if nothing has happened
	Columns []string
	Rows    [][]string // the newest first; minutes in which nothing happened are left out
}

// plotKey says what a colour means.
type plotKey struct{ Class, Word string }

// plotMinute is one minute of the picture.
type plotMinute struct {
	Title string
	Bars  []plotBar
}

type plotBar struct {
	Class               string
	X, Y, Width, Height int
}

// activityOf draws the minutes, the oldest first, of which the server has counted those after since.
func activityOf(all []Minute, since time.Time) *activity {
	if len(all) == 0 {
		return nil
	}
	a := &activity{Of: "on this server"}
	if since.After(all[0].At) {
		a.Of += ", which has counted since " + clock(since)
	}
	a.Plots = []plot{ended(all), starts(all), takeovers(all)}
	for i := range a.Plots {
		a.Plots[i].Width, a.Plots[i].From = len(all)*minuteWidth, clock(all[0].At)
	}
	return a
}

// clock is the time of day as pages show it.
func clock(t time.Time) string { return t.UTC().Format("15:04") + " UTC" }

// ended draws how many executions ended.
func ended(all []Minute) plot {
	p := plot{
		Title: "Ended executions per minute", Columns: []string{"Minute (UTC)", "Succeeded", "Failed", "Cancelled"},
		Keys: []plotKey{{"good", "succeeded"}, {"bad", "failed"}, {"rest", "cancelled"}},
	}
	most, sum := 0, [3]int{}
	for i := range all {
		m := &all[i]
		most = max(most, m.Succeeded+m.Failed+m.Cancelled)
		sum[0], sum[1], sum[2] = sum[0]+m.Succeeded, sum[1]+m.Failed, sum[2]+m.Cancelled
	}
	if most == 0 {
		p.Summary = "None has ended."
		return p
	}
	p.Summary = fmt.Sprintf("With children: %d succeeded, %d failed, %d cancelled; at most %d in a minute.", sum[0],
		sum[1], sum[2], most)
	top := round(most)
	p.Top = strconv.Itoa(top)
	for i := range all {
		m := &all[i]
		values := []int{m.Succeeded, m.Failed, m.Cancelled}
		p.add(i, m.At, m.Succeeded+m.Failed+m.Cancelled > 0, values, float64(top), true,
			[]string{strconv.Itoa(m.Succeeded), strconv.Itoa(m.Failed), strconv.Itoa(m.Cancelled)})
	}
	return p
}

// starts draws how long executions waited for their runs.
func starts(all []Minute) plot {
	p := plot{
		Title:   "From due to the start of the run",
		Columns: []string{"Minute (UTC)", "Runs", "Half within", "95 of 100 within"},
		Keys:    []plotKey{{"most", "95 of 100 within"}, {"busy", "half within"}},
	}
	n, top := 0, time.Duration(0)
	for i := range all {
		n, top = n+all[i].Starts, max(top, all[i].StartMost)
	}
	if n == 0 {
		p.Summary = "No run has begun."
		return p
	}
	p.Summary = fmt.Sprintf("%s; in the slowest minute 95 of 100 began within %s.", several(n, "run"), short(top))
	if top == 0 {
		p.Summary = several(n, "run") + " began at once."
	}
	p.Top = short(top)
	for i := range all {
		m := &all[i]
		p.add(i, m.At, m.Starts > 0, []int{int(m.StartMost), int(m.StartHalf)}, float64(top), false,
			[]string{strconv.Itoa(m.Starts), short(m.StartHalf), short(m.StartMost)})
	}
	return p
}

// takeovers draws how long after the end of its lease a lost worker was noticed.
func takeovers(all []Minute) plot {
	p := plot{
		Title:   "Takeover from lost workers",
		Columns: []string{"Minute (UTC)", "Lost workers", "Half within", "All within"},
		Keys:    []plotKey{{"most", "all within"}, {"busy", "half within"}},
	}
	n, top := 0, time.Duration(0)
	for i := range all {
		n, top = n+all[i].Takeovers, max(top, all[i].TakeoverMost)
	}
	if n == 0 {
		p.Summary = "No worker was lost."
		return p
	}
	p.Summary = fmt.Sprintf("%s lost; the slowest takeover came %s after the end of the lease.",
		several(n, "worker"), short(top))
	if top == 0 { // a process that is seen to be gone loses its lease before the end
		p.Summary = several(n, "worker") + " lost; each takeover came at the end of the lease at the latest."
	}
	p.Top = short(top)
	for i := range all {
		m := &all[i]
		p.add(i, m.At, m.Takeovers > 0, []int{int(m.TakeoverMost), int(m.TakeoverHalf)}, float64(top), false,
			[]string{strconv.Itoa(m.Takeovers), short(m.TakeoverHalf), short(m.TakeoverMost)})
	}
	return p
}

// add adds a minute in which something happened: a bar for each key, on top of each other if they are stacked.
func (p *plot) add(i int, at time.Time, happened bool, values []int, top float64, stacked bool, cells []string) {
	if !happened {
		return
	}
	row := append([]string{at.UTC().Format("15:04")}, cells...)
	p.Rows = append([][]string{row}, p.Rows...)
	words := make([]string, len(cells))
	for k, c := range cells {
		words[k] = strings.ToLower(p.Columns[k+1]) + " " + c
	}
	m := plotMinute{Title: row[0] + ": " + strings.Join(words, ", ")}
	below := 0
	for k, v := range values {
		if v == 0 && stacked {
			continue
		}
		// The shortest bar is still visible, but does not grow out of the picture.
		height := min(plotHeight-below, max(2, int(math.Round(plotHeight*float64(v)/max(1, top)))))
		m.Bars = append(m.Bars, plotBar{
			Class: p.Keys[k].Class, X: i*minuteWidth + 1, Y: plotHeight - below - height, Width: minuteWidth - 2,
			Height: height,
		})
		if stacked {
			below += height
		}
	}
	p.Minutes = append(p.Minutes, m)
}

// round returns the next of the numbers 1, 2, 5, 10, 20, and so on.
func round(n int) int {
	for unit := 1; ; unit *= 10 {
		for _, step := range []int{1, 2, 5} {
			if n <= step*unit || unit > math.MaxInt/100 {
				return step * unit
			}
		}
	}
}

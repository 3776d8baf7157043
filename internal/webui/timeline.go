package webui

import (
	"fmt"
	"strconv"
	"time"

	"github.com/belaydev/belay"
)

// timeline shows the runs of an execution as bars on one time axis, and below each run its steps and
// waits. It is made from the events that the page lists, and from the current steps.
type timeline struct {
	From, To string // times since the submission
	Runs     []runRow
	Waits    string // the state and its reason, if no worker runs the execution now
	Undrawn  string // the number of steps that are not drawn; empty for none
}

// runRow is one run: a bar for the run, marks on the bar for its checkpoints, and a paler bar for
// the wait before the run.
type runRow struct {
	Attempt int
	Token   belay.Token
	Worker  string
	Outcome string
	Class   string
	Took    string
	Wait    *bar
	Bar     bar
	Marks   []bar
	Label   string // the row in words, for screen readers
	Steps   []stepRow
}

// bar is a part of the axis; X and Width are thousandths of the axis.
type bar struct {
	X, Width int
	Title    string
}

// axis maps a time to a position on the time axis, in thousandths of the length of the axis.
type axis struct{ from, to time.Time }

const (
	axisWidth = 1000
	leastBar  = 3 // the least width of a bar, so that the shortest run is visible
)

func (a axis) at(t time.Time) int {
	whole := a.to.Sub(a.from)
	if whole <= 0 {
		return 0
	}
	return int(min(axisWidth, max(0, int64(axisWidth)*int64(t.Sub(a.from)/time.Microsecond)/max(1,
		int64(whole/time.Microsecond)))))
}

func (a axis) bar(from, to time.Time, title string) bar {
	x := a.at(from)
	width := max(leastBar, a.at(to)-x)
	return bar{X: min(x, axisWidth-width), Width: width, Title: title}
}

// timelineOf draws the runs that a part of the history contains; nil if it contains no run. newest
// says that this part ends with the newest event.
func timelineOf(e *belay.Execution, events []belay.Event, names map[belay.WorkerID]string,
	work map[string]*belay.Task, newest bool, now time.Time) *timeline {
	if len(events) == 0 {
		return nil
	}
	a := axis{events[0].At, events[len(events)-1].At}
	if newest && !e.State.Terminal() {
		a.to = now
	}
	d := drawing{axis: a, names: names, work: work, free: a.from}
	for i := range events {
		d.event(&events[i])
	}
	if d.open != nil {
		if newest {
			d.current(e.Current)
		}
		d.end(a.to, "running", "running")
		if !newest {
			d.rows[len(d.rows)-1].Outcome = "continues"
		}
	}
	if newest && !e.State.Terminal() {
		d.still()
	}
	d.resume(a.to)
	if len(d.rows) == 0 {
		return nil
	}
	t := &timeline{From: offset(a.from.Sub(e.CreatedAt)), To: offset(a.to.Sub(e.CreatedAt)), Runs: d.rows}
	t.Undrawn = d.draw()
	if newest && !e.State.Terminal() && e.State != belay.Running && e.Reason != nil {
		t.Waits = line(e.State.String() + ": " + e.Reason.Code)
	}
	return t
}

// drawing is the state of timelineOf while it goes through the events.
type drawing struct {
	axis
	names map[belay.WorkerID]string
	work  map[string]*belay.Task // the tasks of a document, by the ids of their executions
	rows  []runRow
	open  *runRow   // the run whose end is not among the events so far; nil between two runs
	begin time.Time // when the open run began
	free  time.Time // since when no worker runs the execution
	steps int       // checkpoints of the open run

	waiting []*spell // the waits for which the execution was suspended last
}

func (d *drawing) event(ev *belay.Event) {
	switch ev.Kind {
	case "started":
		d.start(ev)
	case "step", "state", "wait":
		if d.open == nil { // the run began before this part of the history
			d.start(&belay.Event{At: d.from, Token: ev.Token})
		}
		d.steps++
		x := d.at(ev.At)
		d.open.Marks = append(d.open.Marks, bar{X: min(x, axisWidth-2), Width: 2, Title: ev.Kind + " " + line(ev.Name)})
		d.saved(ev)
	case "child":
		d.child(ev)
	case "succeeded", "failed", "timed_out", "lost", "suspended", "preempted", "released", "cancelled", "timeout",
		"steal":
		if d.open == nil && ev.Token != 0 {
			d.start(&belay.Event{At: d.from, Token: ev.Token, Worker: ev.Worker, Attempt: ev.Attempt})
		}
		if d.open != nil {
			d.left(ev)
			d.end(ev.At, ev.Kind, kindClass(ev.Kind))
		}
	}
}

func (d *drawing) start(ev *belay.Event) {
	if d.open != nil {
		d.end(ev.At, "ended", "plain")
	}
	d.resume(ev.At)
	r := &runRow{Attempt: ev.Attempt, Token: ev.Token}
	if !ev.Worker.IsZero() {
		r.Worker = workerName(ev.Worker, d.names)
	}
	if wait := ev.At.Sub(d.free); wait > 0 && d.at(ev.At) > d.at(d.free) {
		b := d.bar(d.free, ev.At, "waited "+short(wait)+" for a worker")
		r.Wait = &b
	}
	d.open, d.begin, d.steps = r, ev.At, 0
}

func (d *drawing) end(at time.Time, outcome, class string) {
	r := d.open
	r.Outcome, r.Class, r.Took = outcome, class, short(at.Sub(d.begin))
	r.Bar = d.bar(d.begin, at, r.Took)
	saved := "nothing saved"
	switch d.steps {
	case 0:
	case 1:
		saved = "1 checkpoint saved"
	default:
		saved = strconv.Itoa(d.steps) + " checkpoints saved"
	}
	r.Label = fmt.Sprintf("from %s for %s, %s, %s", offset(d.begin.Sub(d.from)), r.Took, saved, outcome)
	d.rows = append(d.rows, *r)
	d.open, d.free = nil, at
}

package webui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

const (
	maxSteps    = 100      // steps and waits that a timeline draws
	maxStepLog  = 2 << 10  // bytes of output that a step shows
	maxStepLogs = 16 << 10 // bytes of output that all steps show
)

// waited is the result of a wait for which the execution was suspended.
const waited = "waited"

// stepRow is a step or wait of a run: a bar with its name, duration, result, error and output.
type stepRow struct {
	Kind, Name string
	Child      string // the id of the child execution for whose end it waited
	Attempt    int
	Bar        bar
	Took       string
	Result     string
	Class      string
	Error      string
	Label      string // the bar in words, for screen readers
	Log        *stepLog

	*spell
}

// stepLog is the output that was written while a step was carried out.
type stepLog struct {
	Text string
	Note string
}

// spell is a step or wait in time, before it is drawn.
type spell struct {
	begin, end time.Time
	timed      bool // the begin is known
	now        bool // a wait that has not ended
}

// saved adds the step or wait that an event has saved, after those without an event of their own.
func (d *drawing) saved(ev *belay.Event) {
	d.untold(ev)
	if ev.Kind == "state" {
		return
	}
	took := time.Duration(ev.DurationMS) * time.Millisecond
	s := stepRow{
		Kind: ev.Kind, Name: line(ev.Name), Attempt: ev.Attempt, Result: "saved", Class: "succeeded",
		spell: &spell{begin: ev.At.Add(-took), end: ev.At, timed: took > 0},
	}
	if ev.Kind == "wait" {
		s.Result, s.Class = "over", "plain"
		d.whole(&s)
		if c := d.merge("child", s.Name); c != nil { // the end of a child and the wait for it are one row
			s.Kind, s.Child = "child", c.Child
		}
	}
	if !s.timed {
		s.Class = "plain"
	}
	d.add(s)
}

// add adds a step or wait to the open run. A wait whose begin was saved is the row of that checkpoint.
func (d *drawing) add(s stepRow) {
	if s.Kind == "wait" && s.timed {
		d.merge("wait", s.Name)
	}
	d.open.Steps = append(d.open.Steps, s)
}

// merge removes and returns the newest mark of the open run with this kind and name; nil if there is none.
func (d *drawing) merge(kind, name string) *stepRow {
	for i := len(d.open.Steps) - 1; i >= 0; i-- {
		if s := d.open.Steps[i]; s.Kind == kind && s.Name == name && !s.timed {
			d.open.Steps = slices.Delete(d.open.Steps, i, i+1)
			return &s
		}
	}
	return nil
}

// whole removes the rows of a wait in the runs that were suspended for it: the row of the run that saved the wait
// contains them. A run that finds the wait over reports no time for it.
func (d *drawing) whole(s *stepRow) {
	const inaccurate = time.Second // the begin that a worker reports has passed through two clocks
	begin := s.begin
	for i := range d.rows {
		d.rows[i].Steps = slices.DeleteFunc(d.rows[i].Steps, func(x stepRow) bool {
			if x.Kind != "wait" || x.Name != s.Name || x.Result != waited ||
				s.timed && x.begin.Before(s.begin.Add(-inaccurate)) {
				return false
			}
			if x.begin.Before(begin) {
				begin = x.begin
			}
			return true
		})
	}
	if !s.timed && begin.Before(s.begin) {
		s.spell = &spell{begin: begin, end: s.end, timed: true}
	}
}

// untold adds the steps and waits that have no event of their own and that an event reports.
func (d *drawing) untold(ev *belay.Event) {
	for i := range ev.Steps {
		s := d.row(&ev.Steps[i])
		if s.Error != "" || s.Kind == "step" {
			s.Result, s.Class = "failed", "failed"
		}
		d.add(s)
	}
}

func (d *drawing) row(r *belay.StepRecord) stepRow {
	end := r.BeganAt.Add(time.Duration(r.DurationMS) * time.Millisecond)
	return stepRow{
		Kind: r.Kind.String(), Name: line(r.Name), Attempt: r.Attempt, Error: line(r.Error), Result: "over",
		Class: "plain", spell: &spell{begin: r.BeganAt, end: end, timed: true},
	}
}

// left adds the steps and waits that a run has left at its end. A wait for which the execution was suspended goes on
// until the next run.
func (d *drawing) left(ev *belay.Event) {
	d.untold(ev)
	first := len(d.open.Steps) - len(ev.Steps)
	for i := range ev.Steps {
		s := &d.open.Steps[first+i]
		if ev.Steps[i].Over {
			continue
		}
		s.end, s.Result, s.Class = ev.At, "unfinished", "failed"
		if s.Kind == "wait" && ev.Kind == "suspended" {
			s.Result, s.Class = waited, "plain"
			d.waiting = append(d.waiting, s.spell)
		}
	}
}

// still says that the waits for which the execution was suspended have not ended.
func (d *drawing) still() {
	for _, s := range d.waiting {
		s.now = true
	}
}

// resume ends the waits for which the execution was suspended.
func (d *drawing) resume(at time.Time) {
	for _, s := range d.waiting {
		s.end = at
	}
	d.waiting = nil
}

// current adds the current steps.
func (d *drawing) current(steps []belay.StepRecord) {
	for i := range steps {
		s := d.row(&steps[i])
		switch {
		case steps[i].Over && s.Error != "":
			s.Result, s.Class = "failed, will be tried again", "failed"
		case steps[i].Over:
			s.Result, s.Class = "being saved", "running"
		default:
			s.end, s.Result, s.Class = d.to, "running", "running"
			if s.Kind == "wait" {
				s.Result = "waiting"
			}
		}
		d.add(s)
	}
}

// child adds the end of a child to the present or the last run.
func (d *drawing) child(ev *belay.Event) {
	run := d.open
	if run == nil && len(d.rows) > 0 {
		run = &d.rows[len(d.rows)-1]
	}
	if _, err := belay.ParseExecutionID(ev.Text); run == nil || err != nil {
		return
	}
	s := stepRow{
		Kind: "child", Name: line(ev.Name), Child: ev.Text, Result: "ended", Class: "plain",
		spell: &spell{begin: ev.At, end: ev.At},
	}
	if t := d.work[ev.Text]; t != nil && !t.EndedAt.IsZero() {
		s.Result, s.Class = excerpt(string(t.State), 20), "plain"
		if t.State == belay.TaskSucceeded || t.State == belay.TaskFailed {
			s.Class = s.Result
		}
		if !t.StartedAt.IsZero() {
			s.spell = &spell{begin: t.StartedAt, end: t.EndedAt, timed: true}
		}
	}
	run.Steps = append(run.Steps, s)
}

// draw draws the steps of all runs, the newest maxSteps. It returns a note about the others.
func (d *drawing) draw() string {
	left, undrawn := maxSteps, 0
	for i := len(d.rows) - 1; i >= 0; i-- {
		steps := d.rows[i].Steps
		slices.SortStableFunc(steps, func(a, b stepRow) int { return a.begin.Compare(b.begin) })
		cut := max(0, len(steps)-left)
		undrawn += cut
		steps = steps[cut:]
		left -= len(steps)
		d.rows[i].Steps = steps
		for k := range steps {
			d.place(&steps[k])
		}
	}
	switch undrawn {
	case 0:
		return ""
	case 1:
		return "1 earlier step is not drawn."
	}
	return fmt.Sprintf("%d earlier steps are not drawn.", undrawn)
}

func (d *drawing) place(s *stepRow) {
	if s.now {
		s.Result = "waiting"
	}
	s.Took = "–"
	if s.timed {
		s.Took = short(s.end.Sub(s.begin))
	}
	what := strings.TrimSpace(s.Kind + " " + s.Name)
	s.Bar = d.bar(s.begin, s.end, what+", "+s.Took)
	s.Label = fmt.Sprintf("from %s for %s, %s", offset(s.begin.Sub(d.from)), s.Took, s.Result)
}

// output adds to the steps the output that was written while they were carried out, as far as the tail of the log has
// it. Output that was written during several steps belongs to each of them.
func (t *timeline) output(log *logTail) {
	if t == nil || log == nil {
		return
	}
	total := 0
	for i := len(t.Runs) - 1; i >= 0; i-- {
		steps := t.Runs[i].Steps
		for k := len(steps) - 1; k >= 0 && total < maxStepLogs; k-- {
			s := &steps[k]
			if s.Kind != "step" || !s.timed {
				continue
			}
			var text strings.Builder
			for _, c := range log.chunks {
				if !c.at.Before(s.begin) && !c.at.After(s.end) {
					text.Write(c.data)
				}
			}
			if text.Len() == 0 {
				continue
			}
			s.Log = stepLogOf(terminal(strings.ToValidUTF8(text.String(), "�")))
			total += len(s.Log.Text)
		}
	}
}

func stepLogOf(text string) *stepLog {
	text = strings.TrimRight(text, "\n")
	l := &stepLog{Text: text, Note: "1 line of output"}
	if n := strings.Count(text, "\n"); n > 0 {
		l.Note = fmt.Sprintf("%d lines of output", n+1)
	}
	if len(text) > maxStepLog {
		cut := text[len(text)-maxStepLog:]
		if _, rest, ok := strings.Cut(cut, "\n"); ok {
			cut = rest
		}
		l.Text = strings.ToValidUTF8(cut, "")
		l.Note += fmt.Sprintf(", the last %d", strings.Count(l.Text, "\n")+1)
	}
	return l
}

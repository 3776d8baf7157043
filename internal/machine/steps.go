package machine

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// Steps that workers report are facts for people: no rule depends on them. So a report is never a reason to refuse
// a command; this file cuts what is too long, and drops control characters. Rows keep them as JSON with short names.

// stepRow is a step or wait in a row.
type stepRow struct {
	Wait    bool   `json:"w,omitempty"`
	Name    string `json:"n"`
	Attempt int    `json:"a,omitempty"`
	Began   Time   `json:"b"`
	Took    *int64 `json:"d,omitempty"` // in microseconds; nil if it has not ended
	Error   string `json:"e,omitempty"`
}

// maxTook bounds reported durations, so that a hostile one cannot overflow a time.
const maxTook = 10 * 365 * 24 * time.Hour

// took is a reported duration in microseconds, rounded up.
func took(d time.Duration) int64 { return int64(Time(0).Add(min(max(d, 0), maxTook))) }

// attempt is a reported number of a try.
func attempt(n int) int { return min(max(n, 0), 1_000_000) }

// stepRows converts reports of a run. No step began before the execution was created.
func (w *world) stepRows(e *Execution, reports []belay.StepReport, most, name int) []stepRow {
	if len(reports) > most {
		reports = reports[len(reports)-most:]
	}
	rows := make([]stepRow, 0, len(reports))
	for _, r := range reports {
		s := stepRow{
			Wait: r.Kind == belay.KindWait, Name: oneLine(r.Name, name), Attempt: attempt(r.Attempt),
			Began: max(e.CreatedAt, w.Now.Add(-min(max(r.Ago, 0), maxTook))),
			Error: oneLine(r.Error, belay.MaxReported),
		}
		if r.Over {
			d := took(r.Took)
			s.Took = &d
		}
		if s.Name != "" {
			rows = append(rows, s)
		}
	}
	return rows
}

// stepsText encodes the steps that a run reports with a checkpoint or with its end; empty for none.
func (w *world) stepsText(e *Execution, reports []belay.StepReport) string {
	if len(reports) == 0 {
		return ""
	}
	return encodeSteps(w.stepRows(e, reports, belay.MaxReports, belay.MaxName))
}

func encodeSteps(rows []stepRow) string {
	if len(rows) == 0 {
		return ""
	}
	b, err := json.Marshal(rows)
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	return string(b)
}

// oneLine is clip without line breaks and tabs.
func oneLine(s string, limit int) string {
	return clip(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, s), limit)
}

// StepsOf decodes a text of stepsText. A text of a newer version that it cannot read counts as empty.
func StepsOf(text string) []belay.StepRecord {
	if text == "" {
		return nil
	}
	var rows []stepRow
	if json.Unmarshal([]byte(text), &rows) != nil {
		return nil
	}
	return records(rows)
}

func records(rows []stepRow) []belay.StepRecord {
	var out []belay.StepRecord
	for _, s := range rows {
		r := belay.StepRecord{
			Kind: belay.KindStep, Name: s.Name, Attempt: s.Attempt, BeganAt: s.Began.Time(), Error: s.Error,
		}
		if s.Wait {
			r.Kind = belay.KindWait
		}
		if s.Took != nil {
			r.Over, r.DurationMS = true, tookMillis(*s.Took)
		}
		out = append(out, r)
	}
	return out
}

// tookMillis converts microseconds to milliseconds, rounded up.
func tookMillis(us int64) int64 { return (us + 999) / 1000 }

// currentRun has the current steps of one run in the row of a session.
type currentRun struct {
	Execution belay.ExecutionID `json:"x"`
	Token     belay.Token       `json:"t"`
	// Seq is the seq of the execution when the worker reported the steps: a checkpoint of such a step with a
	// higher seq has ended the step.
	Seq   int64     `json:"q"`
	Steps []stepRow `json:"s"`
}

// current encodes the current steps that a heartbeat reports, those of the runs that the session owns; empty for
// none. The heartbeat writes the row of its session in any case, so the text costs no write of its own, and it
// reaches every server. Its size is bounded, because each heartbeat writes it.
func (c *Heartbeat) current(w *world, x *Worker) string {
	named := make(map[belay.RunID][]belay.StepReport)
	for _, h := range c.Holds {
		if len(h.Steps) > 0 {
			named[belay.RunID{Execution: h.Execution, Token: h.Token}] = h.Steps
		}
	}
	if len(named) == 0 {
		return ""
	}
	var text []byte
	for _, e := range w.held(x.ID) {
		steps := named[belay.RunID{Execution: e.ID, Token: e.Token}]
		if len(steps) == 0 || e.State != belay.Running {
			continue
		}
		b, err := json.Marshal(currentRun{e.ID, e.Token, e.Seq,
			w.stepRows(e, steps, belay.MaxCurrent, belay.MaxCurrentName)})
		if err != nil {
			panic(err) // strings and numbers can always be encoded
		}
		if len(text)+len(b)+len("[]") > belay.MaxCurrentBytes {
			break
		}
		if len(text) > 0 {
			text = append(text, ',')
		}
		text = append(text, b...)
	}
	if len(text) == 0 {
		return ""
	}
	return "[" + string(text) + "]"
}

// currentOf returns the steps that the session's worker reported last for a run, and the seq of the execution at that
// time; nil if it reported none.
func (w *Worker) currentOf(run belay.RunID) (steps []stepRow, seq int64) {
	if w == nil || w.Current == "" {
		return nil, 0
	}
	var all []currentRun
	if json.Unmarshal([]byte(w.Current), &all) != nil {
		return nil, 0
	}
	for _, r := range all {
		if r.Execution == run.Execution && r.Token == run.Token {
			return r.Steps, r.Seq
		}
	}
	return nil, 0
}

// CurrentSteps returns the steps that the session's worker reported last for a run, and the seq of the execution at
// that time. A step that has a checkpoint with a higher seq is over.
func (w *Worker) CurrentSteps(run belay.RunID) (steps []belay.StepRecord, seq int64) {
	rows, seq := w.currentOf(run)
	return records(rows), seq
}

// Underway removes from the current steps of a run those that the events have ended: the events after the seq that
// CurrentSteps has returned.
func Underway(steps []belay.StepRecord, events []belay.Event) []belay.StepRecord {
	ended := make(map[string]bool, len(events))
	for i := range events {
		if k := events[i].Kind; k == "step" || k == "wait" {
			ended[k+" "+oneLine(events[i].Name, belay.MaxCurrentName)] = true
		}
	}
	var out []belay.StepRecord
	for _, s := range steps {
		if !ended[s.Kind.String()+" "+s.Name] {
			out = append(out, s)
		}
	}
	return out
}

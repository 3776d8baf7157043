package run

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/belaydev/belay"
)

// A run reports its steps and waits in three ways: with a step's checkpoint, how long the step took and in which try;
// with the next checkpoint or settlement, the steps and waits that have no checkpoint of their own, such as failed
// tries and sleeps; and in heartbeats, the steps and waits that are under way.

// TellAfter is how long a step or wait lasts before a heartbeat names it. So steps that take less time cost no
// heartbeat, and a longer step appears about a second after its begin.
const TellAfter = 500 * time.Millisecond

// doing is a step that is being executed.
type doing struct {
	name    string
	tries   bool // the step may have several tries
	attempt int
	began   time.Time     // when the try began
	over    bool          // the try has failed, and the next one has not begun
	took    time.Duration // of a try that has failed
	err     string
	told    bool // a heartbeat has named this try
	// lasted is how long the try took that had the result. Only the goroutine of the step uses it.
	lasted time.Duration
}

// ended is a step or wait that has no checkpoint of its own.
type ended struct {
	belay.StepReport
	began time.Time
}

// reports has what the run has to report. Its fields are guarded by Run.mu.
type reports struct {
	doing []*doing
	ended []ended // since the last checkpoint: the newest belay.MaxReports
	// stale says that a step or wait has ended that a heartbeat has named.
	stale bool
	some  atomic.Bool // ended is not empty
	// spare is a doing that a later step may use, and room is the first room of the list doing: a run with many short
	// steps, one after the other, allocates nothing for its reports.
	spare atomic.Pointer[doing]
	room  [1]*doing
}

// newDoing returns the record of a step that begins.
func (s *reports) newDoing(name string, tries bool) *doing {
	d := s.spare.Swap(nil)
	if d == nil {
		d = new(doing)
	}
	*d = doing{name: name, tries: tries}
	return d
}

// beginTry records that a try of a step begins.
func (r *Run) beginTry(d *doing, n int) {
	r.mu.Lock()
	if d.attempt == 0 {
		if r.reports.doing == nil {
			r.reports.doing = r.reports.room[:0]
		}
		r.reports.doing = append(r.reports.doing, d)
	}
	if d.told {
		r.reports.stale = true
	}
	d.attempt, d.began, d.over, d.took, d.err, d.told = n, time.Now(), false, 0, "", false
	r.mu.Unlock()
	r.report()
}

// failTry records that a try of a step has failed. A try that gave the execution back does not count.
func (r *Run) failTry(d *doing, err error) {
	took := time.Since(d.began)
	r.mu.Lock()
	defer r.mu.Unlock()
	d.over, d.took = true, took
	if !errors.Is(err, ErrYield) {
		d.err = brief(err)
		r.reports.add(ended{d.report(), d.began})
	}
}

// done records that a step has ended.
func (r *Run) done(d *doing) {
	r.mu.Lock()
	told := r.reports.done(d)
	r.mu.Unlock()
	r.reports.spare.Store(d)
	if told {
		r.report()
	}
}

func (s *reports) done(d *doing) (told bool) {
	i := slices.Index(s.doing, d)
	if i < 0 {
		return false
	}
	s.doing = slices.Delete(s.doing, i, i+1)
	s.stale = s.stale || d.told
	return d.told
}

// quietFor is how long a session reports no steps after it has met a server that refuses reports.
const quietFor = 10 * time.Minute

// Refused reports whether a server may have refused a request only because it reports steps: servers of older versions
// refuse fields that they do not know. Then the caller sends the request again without the steps, and calls Quiet if
// the server accepts that.
func Refused(err error) bool { return belay.CodeOf(err) == belay.CodeInvalid }

// Quiet makes the runs of the session report no steps for some time.
func (s *Session) Quiet() { s.quiet.Store(time.Now().Add(quietFor).UnixMicro()) }

// reports reports whether the runs of the session report their steps now.
func (s *Session) reports() bool {
	until := s.quiet.Load()
	return until == 0 || time.Now().UnixMicro() > until
}

// report tells the worker that there may be something to report.
func (r *Run) report() {
	if r.s.Report != nil {
		r.s.Report()
	}
}

// try is the number of the try for the checkpoint of a step; 0 for a step without tries.
func (d *doing) try() int {
	if !d.tries {
		return 0
	}
	return d.attempt
}

// report is the step as a heartbeat reports it, without its age.
func (d *doing) report() belay.StepReport {
	return belay.StepReport{
		Kind: belay.KindStep, Name: d.name, Attempt: d.try(), Over: d.over, Took: d.took, Error: d.err,
	}
}

func (s *reports) add(e ended) {
	if len(s.ended) == belay.MaxReports {
		s.ended = slices.Delete(s.ended, 0, 1)
	}
	s.ended = append(s.ended, e)
	s.some.Store(true)
}

// takeReports returns the steps and waits that no checkpoint has reported yet, and forgets them.
func (r *Run) takeReports() []belay.StepReport {
	if !r.reports.some.Load() || !r.s.reports() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reports.takeLocked()
}

func (s *reports) takeLocked() []belay.StepReport {
	var out []belay.StepReport
	for _, e := range s.ended {
		e.Ago = time.Since(e.began)
		out = append(out, e.StepReport)
	}
	s.ended = s.ended[:0]
	s.some.Store(false)
	return out
}

// endWaitLocked records the end of a wait that has blocked its branch.
func (r *Run) endWaitLocked(w *wait, err error) {
	if w.began.IsZero() || w.silent() {
		return
	}
	r.reports.stale = r.reports.stale || w.told
	e := ended{belay.StepReport{Kind: belay.KindWait, Name: w.name}, w.began}
	switch {
	case errors.Is(err, ErrYield): // the wait goes on without the run
	case err != nil:
		e.Over, e.Took, e.Error = true, time.Since(w.began), brief(err)
	case w.wants == nil: // a sleep saves no checkpoint at its end
		e.Over, e.Took = true, time.Since(w.began)
	default:
		return
	}
	r.reports.add(e)
}

// current returns the steps and waits that are under way and have lasted for TellAfter, and marks them as told.
func (r *Run) current() []belay.StepReport {
	if !r.s.reports() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports.stale = false
	var out []belay.StepReport
	for _, d := range r.reports.doing {
		if ago := time.Since(d.began); ago >= TellAfter && len(out) < belay.MaxCurrent {
			s := d.report()
			s.Ago, d.told = ago, true
			out = append(out, s)
		}
	}
	for _, w := range r.waits.list {
		if ago := time.Since(w.began); !w.silent() && ago >= TellAfter && len(out) < belay.MaxCurrent {
			w.told = true
			out = append(out, belay.StepReport{Kind: belay.KindWait, Name: w.name, Ago: ago})
		}
	}
	return out
}

// Untold reports whether a heartbeat would report another list of current steps than the last one. If not, next is the
// time until a step that is under way is old enough for it; 0 if there is none.
func (r *Run) Untold() (due bool, next time.Duration) {
	if !r.s.reports() {
		return false, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	due = r.reports.stale
	look := func(began time.Time, told bool) {
		switch left := TellAfter - time.Since(began); {
		case told:
		case left <= 0:
			due = true
		case next == 0 || left < next:
			next = left
		}
	}
	told := 0
	for _, d := range r.reports.doing {
		told++
		look(d.began, d.told || told > belay.MaxCurrent)
	}
	for _, w := range r.waits.list {
		if !w.silent() {
			told++
			look(w.began, w.told || told > belay.MaxCurrent)
		}
	}
	return due, next
}

// brief is the text of an error for a report. It has no control characters: a server refuses a request with a NUL.
func brief(err error) string {
	text := strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return ' '
		case unicode.IsControl(c):
			return -1
		}
		return c
	}, clip(err.Error(), 4*belay.MaxReported))
	return strings.ToValidUTF8(clip(text, belay.MaxReported), "")
}

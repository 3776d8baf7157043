package machine

import (
	"time"

	"github.com/belaydev/belay"
)

// world is the state while one batch of commands is applied: the rows by their keys, and the
// changes so far.
type world struct {
	*Rows
	was     []belay.State // the states of Rows.Executions before the batch
	execs   map[belay.ExecutionID]*Execution
	workers map[belay.WorkerID]*Worker
	keys    map[Key]KeyRow
	specs   map[belay.ExecutionID]*Spec
	letters map[LetterRef]*DeadLetter
	runs    map[belay.RunID]*Run
	sums    map[SumRef]*Sum
	lanes   map[LaneID]bool
	ready   map[LaneID][]*Execution
	fresh   map[LaneID][]*Execution // executions that became ready in this batch

	assigned     []*Execution // executions that got an owner in this batch
	dirty        []*Execution
	isDirty      map[*Execution]bool
	dirtyRuns    map[*Run]bool
	dirtyWorkers []*Worker
	gates        map[belay.GateID]*gate
	looked       []gateTerms // the terms that own has replaced; see forgetTerms
	gateOrder    []*gate     // the gates in the order of their first use
	lines        map[belay.GateID][]*Execution
	placed       map[placeAt]*Place  // the rows in out.Places
	unasked      map[*Execution]bool // due executions with a gate that the batch has not read
	following    []Command           // commands that follow from the present command
	gap          time.Duration       // added to sessions if the batch sees sessions or writes a mark of life
	out          *Changes
}

func newWorld(rows *Rows) *world {
	n := len(rows.Executions)
	w := &world{
		Rows:    rows,
		execs:   make(map[belay.ExecutionID]*Execution, n),
		workers: make(map[belay.WorkerID]*Worker, len(rows.Workers)),
		keys:    make(map[Key]KeyRow, len(rows.Keys)),
		specs:   make(map[belay.ExecutionID]*Spec, len(rows.Specs)),
		letters: make(map[LetterRef]*DeadLetter, len(rows.Letters)),
		runs:    make(map[belay.RunID]*Run, len(rows.Runs)+n),
		sums:    make(map[SumRef]*Sum, len(rows.Sums)),
		lanes:   make(map[LaneID]bool),
		ready:   make(map[LaneID][]*Execution, len(rows.Ready)),
		fresh:   make(map[LaneID][]*Execution),
		isDirty: make(map[*Execution]bool, n),

		dirtyRuns: make(map[*Run]bool, n),
		gates:     make(map[belay.GateID]*gate),
		out:       &Changes{},
	}
	w.was = make([]belay.State, n)
	for i, e := range rows.Executions {
		w.execs[e.ID] = e
		w.was[i] = e.State
	}
	for _, x := range rows.Workers {
		w.workers[x.ID] = x
	}
	for _, k := range rows.Keys {
		w.keys[k.Key] = k
	}
	for _, s := range rows.Specs {
		w.specs[s.Execution] = s
	}
	for _, d := range rows.Letters {
		w.letters[LetterRef{d.Execution, d.Generation}] = d
	}
	for _, r := range rows.Runs {
		w.runs[belay.RunID{Execution: r.Execution, Token: r.Token}] = r
	}
	for _, s := range rows.Sums {
		w.sums[s.SumRef] = s
	}
	for _, lane := range rows.Ready {
		for _, id := range lane.Due {
			if e := w.execs[id]; e != nil {
				w.ready[e.Lane] = append(w.ready[e.Lane], e)
			}
		}
	}
	for _, line := range rows.Lines {
		if w.lines == nil {
			w.lines = make(map[belay.GateID][]*Execution)
		}
		for _, id := range line.Heads {
			if e := w.execs[id]; e != nil {
				w.lines[line.Gate] = append(w.lines[line.Gate], e)
			}
		}
	}
	w.extendSessions()
	return w
}

// follow adds a command to send after the batch.
func (w *world) follow(c Command) { w.following = append(w.following, c) }

// extendSessions extends every session by the time since the last mark of life (a time that servers
// store at short intervals to show that they run). This time is the gap. It extends sessions only if
// the gap is longer than three of the intervals at which servers write marks: no worker can renew its
// session while no server answers. If the clock leapt forwards, extendSessions also moves the
// deadlines of owned executions, because the skipped time did not pass. Every batch that reads
// sessions or writes a mark of life extends the sessions, since the mark would hide the gap from the
// next batch. Other batches do not change the sessions, so that they need not wait for the sessions'
// locks.
func (w *world) extendSessions() {
	if w.Mark == 0 || w.Beat == 0 {
		return
	}
	gap := w.Now.Sub(w.Mark)
	leap := max(0, min(w.Leapt, gap))
	switch {
	case gap <= 3*w.Beat && leap == 0:
		return
	case leap == 0 && len(w.Rows.Workers)+len(w.Rows.Owners) == 0:
		w.gap = gap
		return
	}
	w.out.Grace, w.out.Leap = gap, leap
	for _, e := range w.Rows.Executions {
		if leap > 0 && !e.Worker.IsZero() {
			e.moveTimes(leap, w.Now)
			w.changed(e)
		}
	}
	for _, x := range w.Rows.Workers {
		if !x.State.Ended() {
			x.ExpiresAt = max(x.ExpiresAt.Add(gap), w.Now.Add(x.ttl()))
			w.changedWorker(x)
		}
	}
}

// moveTimes adds by to the times from which the deadlines of an owned execution are counted. None
// of these times becomes later than now.
func (e *Execution) moveTimes(by time.Duration, now Time) {
	for _, t := range []*Time{&e.StartedAt, &e.RunAt, &e.ProgressAt, &e.ScheduledAt} {
		if *t != 0 {
			*t = max(*t, min(t.Add(by), now))
		}
	}
	if e.CancelBy != 0 {
		e.CancelBy = e.CancelBy.Add(by)
	}
}

// Late returns a copy of an owned execution's row in which by, the time by which the clock was set
// forwards, is added to the times from which deadlines are counted; see [Changes].
func (e *Execution) Late(by time.Duration, now Time) Execution {
	c := *e
	c.moveTimes(by, now)
	return c
}

// copyOf returns a copy of the row for a reply, because later commands of the batch may change the
// row.
func (w *world) copyOf(e *Execution) *Execution {
	c := *e
	c.CheckAt = checkAt(e)
	return &c
}

// changed notes that the execution's row must be written.
func (w *world) changed(e *Execution) {
	if !w.isDirty[e] {
		w.isDirty[e] = true
		w.dirty = append(w.dirty, e)
	}
}

func (w *world) changedWorker(x *Worker) {
	for _, d := range w.dirtyWorkers {
		if d == x {
			return
		}
	}
	w.dirtyWorkers = append(w.dirtyWorkers, x)
}

// advance gives the execution its next seq and notes that its row must be written.
func (w *world) advance(e *Execution) int64 {
	e.Seq++
	w.changed(e)
	return e.Seq
}

// markDue notes that the execution became due in this batch, so that a later claim of the batch may
// take it.
func (w *world) markDue(e *Execution) {
	if e.Ready().over(w.Now) {
		w.fresh[e.Lane] = append(w.fresh[e.Lane], e)
	}
}

// run returns the row of the execution's current run. The caller changes the row, and the batch
// writes it.
func (w *world) run(e *Execution) *Run {
	id := belay.RunID{Execution: e.ID, Token: e.Token}
	r := w.runs[id]
	if r == nil || r.EndedSeq != 0 {
		r = &Run{Execution: e.ID, Token: e.Token, Generation: e.Generation}
		w.runs[id] = r
	}
	w.changedRun(r)
	return r
}

func (w *world) changedRun(r *Run) {
	if !w.dirtyRuns[r] {
		w.dirtyRuns[r] = true
		w.out.Runs = append(w.out.Runs, r)
	}
}

// deed records an action with the execution's current seq.
func (w *world) deed(e *Execution, kind, actor, reason string, op belay.OpID, sum OpSum) *Deed {
	d := &Deed{Execution: e.ID, Seq: e.Seq, Kind: kind, Actor: actor, Reason: reason, Op: op, OpSum: sum, At: w.Now}
	w.out.Deeds = append(w.out.Deeds, d)
	return d
}

package simulation

import (
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// soon is how long a due execution may wait while a worker has a free slot for it.
const soon = 300 * time.Millisecond

// slotUse is the use of one worker's slots in one session.
type slotUse struct {
	*shift
	runs []span
	// alone says for each run whether its execution had to run alone.
	alone []bool
	died  time.Duration // when the worker's process died; 0 if it did not die
}

// g5idle checks a part of G5, that no execution is stuck, in simulations in which only workers have
// faults: a due execution does not wait while a worker that could claim it has a free slot. If a hint
// (a message between nodes) is lost, a poll must find the execution.
func g5idle(f *finding) {
	workers, shut := f.slotUse(), f.laneShut()
	for _, s := range f.stories {
		for i, r := range s.rows {
			due := r.Ready()
			if due == 0 {
				continue
			}
			until := f.healed
			if i+1 < len(s.rows) {
				until = min(until, s.rows[i+1].c.real)
			}
			from := max(f.real(due), r.c.real)
			within := soon
			switch { // the time is longer if the hint that announces the execution may have been lost
			case f.w.plan.hints:
				within += f.w.plan.hintPoll
			case len(f.w.nodes) > 1:
				within += f.w.plan.slowPoll
			}
			from = afterShut(from, within, shut[belay.Gate(belay.GateQueue, r.Queue)],
				shut[belay.Gate(belay.GateWorkflow, r.Workflow)])
			if until-from <= within {
				f.OK()
				continue
			}
			for _, x := range workers {
				if x.takes(r) && x.idle(from, from+within) && x.mixes(r, from, from+within) {
					f.violation(s, r.c, "it was due at %s and not claimed until %s, though %s was idle", from, until,
						x.last().Spec.Name)
				}
			}
		}
	}
}

// afterShut returns the beginning of the first period of the given length that does not begin before
// earliest and that no span overlaps.
func afterShut(earliest, length time.Duration, shut ...[]span) time.Duration {
	for again := true; again; {
		again = false
		for _, spans := range shut {
			for _, x := range spans {
				if x.from < earliest+length && x.to > earliest {
					earliest, again = x.to, true
				}
			}
		}
	}
	return earliest
}

func (f *finding) slotUse() []*slotUse {
	var out []*slotUse
	for _, x := range f.shifts {
		if !strings.HasPrefix(x.last().Spec.Name, "w") {
			continue // a bare worker does not notice a free slot at once
		}
		b := &slotUse{shift: x, died: f.crashed[x.last().Spec.Process.PID]}
		for _, s := range f.stories {
			for _, a := range s.runs {
				if a.Worker == x.id && a.began != nil {
					run := span{a.began.real, f.ended}
					// After the engine has taken a run away, the function of the run may continue and keep
					// its slot. Only a settlement, which has an operation id, shows that the function has
					// returned.
					if a.ended != nil && !a.Op.IsZero() {
						run.to = a.ended.real
					}
					b.runs = append(b.runs, run)
					b.alone = append(b.alone, s.suspectAt(a))
				}
			}
		}
		out = append(out, b)
	}
	return out
}

// suspectAt reports whether the execution had to run alone, because it was lost several times in a
// row, when the given run began.
func (s *story) suspectAt(a *attempt) bool {
	for _, r := range s.rows {
		if r.c == a.began {
			return r.Suspect()
		}
	}
	return false
}

func (b *slotUse) takes(r row) bool {
	for _, w := range b.last().Spec.Workflows {
		if w.Workflow == r.Workflow && w.Version == r.Version {
			return true
		}
	}
	return false
}

// claimWait is how long a claim of the SDK waits. A claim that the worker sent while it ran something
// requests fewer slots than the worker has, and therefore wins no suspect (an execution that must run
// alone), even after the run has ended. So a suspect may wait until this claim returns.
const claimWait = 20 * time.Second

// mixes reports whether the worker could run an execution beside its other runs between two
// moments: a suspect (an execution that must run alone) cannot run beside any run, and no execution
// can run beside a suspect.
func (b *slotUse) mixes(r row, from, to time.Duration) bool {
	since := from - soon
	if r.Suspect() {
		since = from - claimWait
	}
	for i, run := range b.runs {
		if run.from < to && run.to > since && (r.Suspect() || b.alone[i]) {
			return false
		}
	}
	return true
}

// idle reports whether the worker had a free slot during the whole time.
func (b *slotUse) idle(from, to time.Duration) bool {
	first, last := b.versions[0], b.last()
	open := first.c.real < from-soon && (b.died == 0 || b.died > to)
	for _, v := range b.versions {
		if v.State != belay.WorkerOpen && v.c.real < to {
			open = false
		}
	}
	n := 0
	for _, run := range b.runs {
		// A run that has just ended frees its slot a moment later.
		if run.from < to && run.to > from-soon {
			n++
		}
	}
	return open && n < last.Spec.Capacity
}

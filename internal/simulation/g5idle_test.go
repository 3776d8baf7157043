package simulation

import (
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// soon is how long something due may wait for a worker that has a free slot all
// the time.
const soon = 300 * time.Millisecond

// busy is what is known of a worker's slots.
type busy struct {
	*shift
	runs []span
	// alone says which of the runs were to be alone.
	alone []bool
	died  time.Duration // its process; 0 if it did not
}

// g5idle is the part of G5 that needs a world in which nothing goes wrong but
// with workers: what is due does not wait while a worker that takes it is idle.
// Hints are hints, but somebody has to give them.
func g5idle(f *finding) {
	workers := f.busy()
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
			switch { // until it is looked for whose hint may have got lost
			case f.w.plan.hints:
				within += f.w.plan.hintPoll
			case len(f.w.nodes) > 1:
				within += f.w.plan.slowPoll
			}
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

func (f *finding) busy() []*busy {
	var out []*busy
	for _, x := range f.shifts {
		if !strings.HasPrefix(x.last().Spec.Name, "w") {
			continue // a bare worker does not hear of a free slot at once
		}
		b := &busy{shift: x, died: f.crashed[x.last().Spec.Process.PID]}
		for _, s := range f.stories {
			for _, a := range s.runs {
				if a.Worker == x.id && a.began != nil {
					run := span{a.began.real, f.ended}
					// Taken away, its function may go on and keep the slot.
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

// suspectAt reports whether the execution was to run alone when a run of it began.
func (s *story) suspectAt(a *attempt) bool {
	for _, r := range s.rows {
		if r.c == a.began {
			return r.Suspect()
		}
	}
	return false
}

func (b *busy) takes(r row) bool {
	for _, w := range b.last().Spec.Workflows {
		if w.Workflow == r.Workflow && w.Version == r.Version {
			return true
		}
	}
	return false
}

// claimWait is how long a claim of the SDK waits. One that was sent while the worker ran
// something asks for fewer slots than it has, and takes nothing that is to run alone.
const claimWait = 20 * time.Second

// mixes reports whether the worker takes an execution beside what it ran at some time
// between two moments: one that is to run alone it takes beside nothing, and beside such a
// one it takes nothing.
func (b *busy) mixes(r row, from, to time.Duration) bool {
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

// idle reports whether the worker had a free slot during all of a time.
func (b *busy) idle(from, to time.Duration) bool {
	first, last := b.versions[0], b.last()
	open := first.c.real < from-soon && (b.died == 0 || b.died > to)
	for _, v := range b.versions {
		if v.State != belay.WorkerOpen && v.c.real < to {
			open = false
		}
	}
	n := 0
	for _, run := range b.runs {
		// One that has just ended frees its slot a moment later.
		if run.from < to && run.to > from-soon {
			n++
		}
	}
	return open && n < last.Spec.Capacity
}

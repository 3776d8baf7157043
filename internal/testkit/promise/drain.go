package promise

import (
	"slices"

	"github.com/belaydev/belay"
)

// G11 checks that draining loses nothing. A worker whose drain was acknowledged, or whose session
// has ended, claims nothing any more. When a session is closed or drained, its runs are released
// and not lost. The checkers of G4 (atomic transitions) and G8 (limits of retries) check that these
// releases do not count as attempts.
func G11(f *Finding) {
	drained := make(map[belay.WorkerID]*Entry)
	f.eachEntry("drain", OK, func(e *Entry) {
		f.OK()
		if drained[e.Worker] == nil {
			drained[e.Worker] = e
		}
	})
	for _, w := range f.History.Sessions {
		if w.State == belay.WorkerClosed || w.State == belay.WorkerDrained {
			f.Count("worker ended in order")
			f.OK()
		}
	}
	for _, s := range f.History.Stories {
		for _, r := range s.Runs {
			if e := drained[r.Worker]; e != nil && s.when(r.Event).After(e.To) {
				f.Violation(s, "token %d was claimed by a worker whose drain was acknowledged at %s", r.Token,
					e.To.Format(clock))
			}
			if w := f.History.Sessions[r.Worker]; w != nil && w.State.Ended() {
				f.afterSession(s, r, w)
			}
			if r.End != nil && r.End.Kind == belay.OutcomeReleased.String() {
				f.Count("released")
			}
		}
	}
}

// byOwners lists the outcomes that a run can have only while it has an owner: the outcomes that the
// owner writes, and a timeout. After the owner's session was closed or drained, the run cannot have
// such an outcome.
var byOwners = []string{
	belay.OutcomeSucceeded.String(), belay.OutcomeFailed.String(), belay.OutcomeTimedOut.String(),
	belay.OutcomeSuspended.String(),
	belay.OutcomePreempted.String(), "timeout",
}

func (f *Finding) afterSession(s *Story, r *Run, w *belay.Worker) {
	if r.At.After(w.EndedAt) {
		f.Violation(s, "token %d was claimed at %s by %s, whose session had ended at %s", r.Token, r.At.Format(clock),
			w.Name, w.EndedAt.Format(clock))
	}
	if w.State == belay.WorkerLost || r.End == nil {
		return
	}
	// A run may be lost earlier: the lease of the session ended, the engine took the run away, and the worker ended the
	// session in order before the engine expired it.
	lost := r.End.Kind == belay.OutcomeLost.String() && !r.End.At.Before(w.EndedAt)
	if lost || r.End.At.After(w.EndedAt) && slices.Contains(byOwners, r.End.Kind) {
		f.Violation(s, "token %d of %s, which ended in order at %s, became %s at %s", r.Token, w.Name,
			w.EndedAt.Format(clock), r.End.Kind, r.End.At.Format(clock))
	}
}

package chaos

import "github.com/belaydev/belay"

// g11: a worker that ends in order claims nothing after it, and leaves nothing
// behind: what it held is given back by then, and nothing is charged.
func g11(f *finding) {
	for _, w := range f.sessions {
		if w.State == belay.WorkerClosed || w.State == belay.WorkerDrained {
			f.count("worker ended in order")
			f.ok()
		}
	}
	for _, s := range f.stories {
		for _, a := range s.runs {
			w := f.sessions[a.Worker]
			if w == nil || w.EndedAt.IsZero() {
				continue
			}
			if a.At.After(w.EndedAt) {
				f.violation(s, "token %d was claimed at %s by %s, whose session had ended at %s", a.Token, a.At.Format(clock), w.Name, w.EndedAt.Format(clock))
			}
			if w.State != belay.WorkerLost && a.end != nil && a.end.Kind == belay.OutcomeLost.String() {
				f.violation(s, "token %d of %s was lost, which ended in order", a.Token, w.Name)
			}
			if a.end != nil && a.end.Kind == belay.OutcomeReleased.String() {
				f.count("released")
			}
		}
	}
}

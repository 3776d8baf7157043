package simulation

import (
	"github.com/belaydev/belay"
)

// g11 checks G11, the rules of draining, by the rows: a session that is not open claims nothing,
// and a released execution is due at once without a counted attempt.
func g11(f *finding) {
	for _, s := range f.stories {
		for _, a := range s.runs {
			if a.began == nil {
				continue
			}
			if x := f.workers[a.Worker]; x != nil {
				if v, there := x.before(a.began); there && v.State != belay.WorkerOpen {
					f.violation(s, a.began, "token %d was claimed by %s, which was %s", a.Token, v.Spec.Name, v.State)
				}
			}
			if a.ended == nil || a.Outcome != belay.OutcomeReleased || a.Final {
				continue
			}
			before, _ := s.before(a.ended)
			r, _ := s.at(a.ended)
			if before.Token != a.Token || r.Token != a.Token {
				continue // the same commit also claimed the execution
			}
			if r.Attempts != before.Attempts || r.Losses > before.Losses {
				f.violation(s, a.ended, "it was released and charged: %d attempts and %d losses became %d and %d",
					before.Attempts, before.Losses, r.Attempts, r.Losses)
			}
			// A run that met an open circuit breaker may be due later, when the breaker lets calls through.
			if r.State == belay.Pending && r.DueAt > a.EndedAt && a.Class != belay.ClassCircuitOpen {
				f.violation(s, a.ended, "it was released and is not due at once")
			}
		}
	}
}

package simulation

import (
	"github.com/belaydev/belay"
)

// g11: drain. After a drain no new claim by that worker. It ends with no lease,
// or what is left is released: the next claim may be at once and nothing is
// charged.
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
			if a.ended != nil && a.Outcome == belay.OutcomeReleased && !a.Final {
				g11released(f, s, a)
			}
		}
	}
	for _, c := range f.calls {
		if id, is := c.request.(belay.WorkerID); is && c.kind == "drain" && c.end == ok {
			g11drained(f, c, id)
		}
	}
	for _, x := range f.shifts {
		last := x.last()
		if last.State != belay.WorkerClosed && last.State != belay.WorkerDrained {
			continue
		}
		f.ok()
		for _, s := range f.stories {
			for _, a := range s.runs {
				if a.Worker == x.id && a.ended != nil && a.ended.n > last.c.n && a.Outcome != belay.OutcomeReleased && a.Outcome != belay.OutcomeCancelled {
					f.violation(s, a.ended, "it was still held when %s ended in order, and became %s instead of released", last.Spec.Name, a.Outcome)
				}
			}
		}
	}
}

// g11drained checks that a worker claims nothing once its drain was acknowledged.
func g11drained(f *finding, c *call, id belay.WorkerID) {
	f.ok()
	for _, s := range f.stories {
		for _, a := range s.runs {
			if a.Worker == id && a.began != nil && a.began.real > c.to {
				f.violation(s, a.began, "token %d was claimed by a worker whose drain was acknowledged at %s", a.Token, c.to)
			}
		}
	}
}

// g11released checks that giving something back costs nothing.
func g11released(f *finding, s *story, a *attempt) {
	f.count("released")
	before, _ := s.before(a.ended)
	r, _ := s.at(a.ended)
	if before.Token != a.Token || r.Token != a.Token {
		return // claimed or claimed again in the same commit
	}
	if r.Attempts != before.Attempts {
		f.violation(s, a.ended, "it was released and %d attempts became %d", before.Attempts, r.Attempts)
	}
	if r.Losses > before.Losses {
		f.violation(s, a.ended, "it was released and %d losses became %d", before.Losses, r.Losses)
	}
	if r.State == belay.Pending && r.DueAt > a.EndedAt {
		f.violation(s, a.ended, "it was released and is not due at once")
	}
}

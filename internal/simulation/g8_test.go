package simulation

import (
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// g8 checks G8, the times of retries, by the rows. After a failed run, the execution is due again
// after the backoff plus at most a quarter of the backoff, or after the delay that the settlement
// requested if that is longer. After a lost run, the execution is due again no sooner than after
// the lock delay, and no later than after the longer of the lock delay and machine.LossDelay.
func g8(f *finding) {
	asked := make(map[belay.OpID]time.Duration)
	for _, c := range f.calls {
		if r, is := c.request.(*belay.Settlement); is && r.RetryAfter > 0 {
			asked[r.Op] = r.RetryAfter
		}
	}
	for _, s := range f.stories {
		p := machine.Defaults(policyOf(s))
		for _, a := range s.runs {
			r := s.Run(a.Token)
			if r == nil || a.ended == nil || a.Final {
				continue
			}
			switch a.Outcome {
			case belay.OutcomeFailed, belay.OutcomeTimedOut:
				n := r.Failed + 1
				g8due(f, s, a, max(machine.Backoff(p, n, 0), asked[a.Op]), max(machine.Backoff(p, n, 1), asked[a.Op]))
			case belay.OutcomeLost:
				g8due(f, s, a, p.LockDelay.D(), max(p.LockDelay.D(), machine.LossDelay(r.All)))
			}
		}
	}
}

// g8due checks the time at which the next run may begin.
func g8due(f *finding, s *story, a *attempt, least, most time.Duration) {
	if r, _ := s.at(a.ended); r.State == belay.Pending && r.Token == a.Token {
		if got := r.DueAt.Sub(a.EndedAt); got < least || got > most+time.Microsecond {
			f.violation(s, a.ended, "after %s it is due in %s, which is not between %s and %s", a.Outcome, got, least,
				most)
		}
	}
}

func policyOf(s *story) belay.Policy {
	if p := s.rows[0].Policy; p != nil {
		return *p
	}
	return belay.Policy{}
}

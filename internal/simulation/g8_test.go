package simulation

import (
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// g8: retries and waits keep their terms. The next claim is never before the backoff, which
// is base·2^(n-1), capped, and up to a quarter more; attempts stay within their
// limit; losses have a limit of their own and charge no attempt. A sleep never
// ends early.
func g8(f *finding) {
	after := g8asked(f)
	g8sleeps(f)
	for _, s := range f.stories {
		p := machine.Defaults(policyOf(s))
		generation, failed, losses := 0, 0, 0
		saved := 0 // looked through so far
		for i, a := range s.runs {
			if a.Generation != generation {
				generation, failed, losses = a.Generation, 0, 0
			}
			for saved < len(s.saved) && s.saved[saved].Seq < a.StartedSeq {
				saved++
			}
			f.ok()
			if a.Attempt != failed+1 {
				f.violation(s, a.began, "the run of token %d is attempt %d after %d that failed", a.Token, a.Attempt, failed)
			}
			for saved < len(s.saved) && (a.EndedSeq == 0 || s.saved[saved].Seq < a.EndedSeq) {
				saved++
				losses = 0
			}
			switch a.Outcome {
			case belay.OutcomeFailed, belay.OutcomeTimedOut:
				failed, losses = failed+1, 0
				if a.Outcome == belay.OutcomeTimedOut {
					f.count("run timed out")
				}
				g8wait(f, s, i, machine.Backoff(p, failed, 0), machine.Backoff(p, failed, 1), after[a.Op])
			case belay.OutcomeLost:
				losses++
				f.count("run lost")
				if f.outside(a) {
					g8outside(f, s, a)
				}
				g8wait(f, s, i, p.LockDelay.D(), max(p.LockDelay.D(), machine.LossDelay(losses)), 0)
			}
			if failed > p.MaxAttempts {
				f.violation(s, a.ended, "%d attempts failed; %d are allowed", failed, p.MaxAttempts)
			}
			if allowed := lossesAllowed(p.MaxLosses); losses > allowed {
				f.violation(s, a.ended, "%d losses in a row; %d are allowed", losses, allowed)
			}
			if failed == p.MaxAttempts && a.ended != nil && a.Outcome == belay.OutcomeFailed && !a.Final {
				f.violation(s, a.ended, "attempt %d of %d failed and it goes on", failed, p.MaxAttempts)
			}
		}
	}
}

// lossesAllowed is how many losses in a row an execution may have whose policy allows so
// many: from the third on only those count that are put down to it, and of any four runs
// one is.
func lossesAllowed(most int) int {
	if most <= 2 {
		return most
	}
	return 2 + 4*(most-2)
}

// g8outside checks that what an owner from outside lost has failed, unless its
// policy says that it goes on.
func g8outside(f *finding, s *story, a *attempt) {
	f.count("lock lost")
	if a.ended != nil && !a.Final && policyOf(s).OnLost != belay.Requeue {
		f.violation(s, a.ended, "token %d of an owner from outside was lost and it goes on", a.Token)
	}
}

// g8sleeps holds the ends of sleeps against their first checkpoint, where the
// store's clock goes like all others.
func g8sleeps(f *finding) {
	if len(f.offsets) > 1 { // it was set
		return
	}
	for _, x := range f.sleeps {
		s := f.byID[x.execution]
		for _, k := range s.saved {
			if k.Kind == belay.KindWait && k.Key == x.key && k.Token != 0 && x.real >= k.c.real {
				f.ok()
				if got := x.real - k.c.real; got < x.least && !forgotten(s, k) {
					f.violation(s, k.c, "sleep %q of %s ended after %s", x.key, x.least, got)
				}
				break
			}
		}
	}
}

// forgotten reports whether a checkpoint was saved under an input that does not
// count any more.
func forgotten(s *story, k *savedRow) bool {
	for _, d := range s.deeds {
		if d.Kind == "requeue" && d.Seq > k.Seq {
			return true
		}
	}
	return false
}

// g8asked is the least delay that each settlement asked for.
func g8asked(f *finding) map[belay.OpID]time.Duration {
	asked := make(map[belay.OpID]time.Duration)
	for _, c := range f.calls {
		if r, is := c.request.(*belay.Settlement); is && r.RetryAfter > 0 {
			asked[r.Op] = r.RetryAfter
		}
	}
	return asked
}

// g8wait checks when the next run may begin, and when it did.
func g8wait(f *finding, s *story, i int, least, most, asked time.Duration) {
	a := s.runs[i]
	if a.ended == nil || a.Final {
		return
	}
	least, most = max(least, asked), max(most, asked)
	if r, _ := s.at(a.ended); r.State == belay.Pending && r.Token == a.Token {
		if got := r.DueAt.Sub(a.EndedAt); got < least || got > most+time.Microsecond {
			f.violation(s, a.ended, "after %s it is due in %s, which is not between %s and %s", a.Outcome, got, least, most)
		}
	}
	if i+1 < len(s.runs) && s.runs[i+1].Generation == a.Generation {
		if got := s.runs[i+1].StartedAt.Sub(a.EndedAt); got < least {
			f.violation(s, s.runs[i+1].began, "it was claimed %s after token %d had %s; the least is %s", got, a.Token, a.Outcome, least)
		}
		f.count("retried")
	}
}

func policyOf(s *story) belay.Policy {
	if p := s.rows[0].Policy; p != nil {
		return *p
	}
	return belay.Policy{}
}

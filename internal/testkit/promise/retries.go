package promise

import (
	"time"

	"github.com/belaydev/belay"
)

// G8 checks the times and limits of retries and waits. The next claim does not come before the end
// of the backoff, base·2^(n-1) up to its maximum, nor before the end of the delay that the
// settlement requested. Attempts stay within their limit. Losses have a limit of their own and do
// not count as attempts. A sleep never ends early.
func G8(f *Finding) {
	f.eachEntry("settle", OK, func(e *Entry) {
		if s := f.History.Story(e.Execution); s != nil && s.Run(e.Token) != nil {
			s.Run(e.Token).Asked = e.Delay
		}
	})
	for _, s := range f.History.Stories {
		p := s.policy()
		for i, r := range s.Runs {
			f.OK()
			if r.Attempt != r.Failed+1 {
				f.Violation(s, "the run of token %d is attempt %d after %d that failed", r.Token, r.Attempt, r.Failed)
			}
			if r.End != nil {
				f.runEnd(s, i, r, p)
			}
		}
		if s.Execution.Losses > p.MaxLosses {
			f.Violation(s, "it was lost %d times in a row; the limit is %d", s.Execution.Losses, p.MaxLosses)
		}
	}
	f.eachEntry("slept", "", f.slept)
}

// runEnd checks whether, and when, the execution may continue after a run.
func (f *Finding) runEnd(s *Story, i int, r *Run, p belay.Policy) {
	var last bool
	var wait time.Duration
	switch r.End.Kind {
	case belay.OutcomeFailed.String(), belay.OutcomeTimedOut.String():
		last = r.Failed+1 >= p.MaxAttempts || r.End.Error != nil && r.End.Error.Class == belay.ClassPermanent
		wait = max(backoff(p, r.Failed+1), r.Asked)
		if r.End.Kind == belay.OutcomeTimedOut.String() {
			f.Count("run timed out")
		}
		if !r.End.Final {
			f.Count("retried")
		}
	case belay.OutcomeLost.String():
		x := f.History.Sessions[r.Worker]
		last = r.Sure >= p.MaxLosses || p.OnLost == belay.Fail || p.OnLost == "" && x != nil && x.External
		wait = p.LockDelay.D()
		f.Count("run lost")
		if x != nil && x.External {
			f.Count("lock lost")
		}
	default:
		return
	}
	if last && !r.End.Final {
		f.Violation(s, "the run of token %d, attempt %d of %d and lost %d times in a row of %d, ended with %s and "+
			"was not the last",
			r.Token, r.Failed+1, p.MaxAttempts, r.All, p.MaxLosses, r.End.Kind)
	}
	if i+1 < len(s.Runs) && s.Runs[i+1].Generation == r.Generation && s.Runs[i+1].At.Sub(r.End.At) < wait {
		f.Violation(s, "it was claimed %s after token %d had %s; the least is %s", s.Runs[i+1].At.Sub(r.End.At),
			r.Token, r.End.Kind, wait)
	}
}

// backoff returns the least wait after the n-th failure.
func backoff(p belay.Policy, n int) time.Duration {
	d := p.BackoffBase.D()
	for ; n > 1 && d < p.BackoffCap.D(); n-- {
		d *= 2
	}
	return min(d, p.BackoffCap.D())
}

// slept compares the time at which a sleep ended with the time at which it began.
func (f *Finding) slept(e *Entry) {
	s := f.History.Story(e.Execution)
	if s == nil {
		return // there is no history with which to compare the sleep
	}
	base := int64(0)
	if r := s.Run(e.Token); r != nil {
		base = r.Base
	}
	began := s.Find("wait", func(ev *belay.Event) bool { return ev.Name == e.Name && ev.Seq > base })
	if began == nil {
		f.Violation(s, "sleep %q ended and never began", e.Name)
		return
	}
	if began.Token == 0 {
		return // a fork copied the event: the sleep began in another execution
	}
	f.OK()
	if got := e.At.Sub(s.when(began)); got < e.Least-f.History.Skew {
		f.Violation(s, "sleep %q of %s ended after %s", e.Name, e.Least, got)
	}
}

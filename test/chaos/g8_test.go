package chaos

import (
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// skew is how far two clocks of one machine may be apart after a few seconds:
// one of them is slewed, the other counts.
const skew = 5 * time.Millisecond

// g8: retries and waits keep their terms. The next claim is never before the
// backoff, base·2^(n-1) capped; attempts stay within their limit; losses have a
// limit of their own and charge no attempt. A sleep never ends early.
func g8(f *finding) {
	asked := make(map[belay.RunID]time.Duration)
	f.told("settle", ok, func(e *entry) { asked[belay.RunID{Execution: e.Execution, Token: e.Token}] = e.Delay })
	for _, s := range f.stories {
		p := belay.Policy{}
		if s.Execution.Policy != nil {
			p = *s.Execution.Policy
		}
		g8story(f, s, machine.Defaults(p), asked)
	}
	f.told("slept", "", func(e *entry) { g8sleep(f, e) })
}

func g8story(f *finding, s *story, p belay.Policy, asked map[belay.RunID]time.Duration) {
	generation, failed, losses, blamed := 0, 0, 0, 0
	for i, a := range s.runs {
		if a.generation != generation {
			generation, failed, losses, blamed = a.generation, 0, 0, 0
		}
		f.ok()
		if a.Attempt != failed+1 {
			f.violation(s, "the run of token %d is attempt %d after %d that failed", a.Token, a.Attempt, failed)
		}
		if a.end == nil {
			continue
		}
		for k := range s.Events {
			if ev := &s.Events[k]; isSave(ev) && ev.Seq > a.Seq && ev.Seq < a.end.Seq {
				losses, blamed = 0, 0
			}
		}
		var wait time.Duration
		switch a.end.Kind {
		case belay.OutcomeFailed.String(), belay.OutcomeTimedOut.String():
			failed, losses, blamed = failed+1, 0, 0
			wait = max(machine.Backoff(p, failed, 0), asked[belay.RunID{Execution: s.id, Token: a.Token}])
			if !a.end.Final {
				f.count("retried")
			}
		case belay.OutcomeLost.String():
			if losses++; losses <= 2 || a.Token%4 == 0 {
				blamed++ // others are, where it ran beside suspects
			}
			wait = p.LockDelay.D()
		}
		if failed > p.MaxAttempts || blamed > p.MaxLosses {
			f.violation(s, "%d attempts failed of %d and %d were lost in a row of %d", failed, p.MaxAttempts, blamed, p.MaxLosses)
		}
		if failed == p.MaxAttempts && !a.end.Final && a.end.Kind == belay.OutcomeFailed.String() {
			f.violation(s, "attempt %d of %d failed and it goes on", failed, p.MaxAttempts)
		}
		if i+1 < len(s.runs) && s.runs[i+1].generation == generation && s.runs[i+1].At.Sub(a.end.At) < wait {
			f.violation(s, "it was claimed %s after token %d had %s; the least is %s", s.runs[i+1].At.Sub(a.end.At), a.Token, a.end.Kind, wait)
		}
	}
}

// g8sleep holds the end of a sleep against the moment it began.
func g8sleep(f *finding, e *entry) {
	s := f.byID[e.Execution]
	if s == nil {
		return // see g2
	}
	began := s.find("wait", func(ev *belay.Event) bool { return ev.Name == e.Name })
	if began == nil {
		f.violation(s, "sleep %q ended and never began", e.Name)
		return
	}
	f.ok()
	if got := e.At.Sub(began.At); got < e.Least-skew {
		f.violation(s, "sleep %q of %s ended after %s", e.Name, e.Least, got)
	}
}

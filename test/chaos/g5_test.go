package chaos

import (
	"time"

	"github.com/belaydev/belay"
)

// g5 checks G5, that no execution is stuck. Whenever the test listed the open executions, each of
// them had a live owner, or a due time, or a named reason; executions of a lost owner were
// reclaimed as soon as its session was over; and after the last fault every execution ended.
func g5(f *finding) {
	for _, l := range f.Looks {
		at := make(map[belay.WorkerID]*belay.Worker)
		for i := range l.Sessions {
			at[l.Sessions[i].ID] = &l.Sessions[i]
		}
		for i := range l.Open {
			g5look(f, &l, &l.Open[i], at)
			f.OK()
		}
	}
	for _, s := range f.stories {
		g5lost(f, s)
		if !s.Execution.State.Terminal() {
			f.Violation(s, "the execution is %s although all faults are over", s.Execution.State)
		}
	}
	for _, o := range f.Open {
		f.Violation(nil, "%s", o)
	}
}

// g5look checks the state of one execution in a list of the open executions.
func g5look(f *finding, l *look, x *belay.Execution, sessions map[belay.WorkerID]*belay.Worker) {
	s := f.byID[x.ID]
	switch {
	case x.State == belay.Running:
		w := sessions[x.Worker]
		if w == nil {
			f.Violation(s, "at %s the execution ran under %s, which is no session", l.At.Format(clock), x.Worker)
		} else if w.State.Ended() && l.At.After(f.deadline(w.EndedAt)) {
			f.Violation(s, "at %s the execution ran under %s, which was %s since %s", l.At.Format(clock), w.Name,
				w.State,
				w.EndedAt.Format(clock))
		}
	case x.Reason == nil || x.Reason.Code == "":
		f.Violation(s, "at %s the execution was %s without a reason", l.At.Format(clock), x.State)
	case x.State == belay.Waiting && x.Reason.Until.IsZero() && x.Reason.Code == "timer":
		f.Violation(s, "at %s the execution waited for a timer that has no end", l.At.Format(clock))
	case x.State == belay.Pending && x.DueAt.IsZero():
		f.Violation(s, "at %s the execution was pending and never due", l.At.Format(clock))
	}
}

// g5lost checks that the executions of a session were reclaimed promptly after its end.
func g5lost(f *finding, s *story) {
	for _, a := range s.Runs {
		w := f.sessions[a.Worker]
		if w == nil {
			f.Violation(s, "token %d was claimed by %s, which is no session", a.Token, a.Worker)
			continue
		}
		if w.EndedAt.IsZero() {
			continue
		}
		until := f.Settled
		if a.End != nil {
			until = a.End.At
		}
		if by := f.deadline(w.EndedAt); until.After(by) {
			f.Violation(s, "the run of token %d ended at %s; the session of %s had ended at %s", a.Token,
				until.Format(clock), w.Name, w.EndedAt.Format(clock))
		}
		if a.End != nil && a.End.Kind == belay.OutcomeLost.String() {
			f.Count("run lost")
			if w.State != belay.WorkerLost {
				f.Violation(s, "the run of token %d was lost and the session of %s is %s", a.Token, w.Name, w.State)
			}
			if early := w.EndedAt.Sub(a.End.At); early > 0 {
				f.Violation(s, "the run of token %d was lost %s before its session ended", a.Token,
					early.Round(time.Microsecond))
			}
		}
	}
}

package chaos

import "github.com/belaydev/belay"

// g2 checks G2, that no stale owner has an effect, also outside of the store: no step begins after
// a newer claim, and no owner is refused while it owns the execution.
func g2(f *finding) {
	for i := range f.Told {
		switch e := &f.Told[i]; {
		case e.Kind == "effect":
			g2effect(f, e)
		case (e.Kind == "save" || e.Kind == "settle") && e.Code == belay.CodeLeaseLost:
			g2owner(f, e)
		}
	}
}

// g2effect checks that no newer owner had claimed the execution when a step began.
func g2effect(f *finding, e *entry) {
	s := f.byID[e.Execution]
	if s == nil || s.Run(e.Token) == nil {
		f.Violation(s, "%s worked on %s under token %d, which no claim was given", e.Who, e.Execution, e.Token)
		return
	}
	for _, a := range s.Runs {
		if a.Token > e.Token && a.At.Before(e.At) {
			f.Violation(s, "%s began step %s under token %d at %s, after token %d was claimed at %s",
				e.Who, e.Name, e.Token, e.At.Format(clock), a.Token, a.At.Format(clock))
		}
	}
	f.OK()
}

// g2owner checks that a worker had lost its lease if the server refused a call of this worker.
func g2owner(f *finding, e *entry) {
	s := f.byID[e.Execution]
	if s == nil {
		return
	}
	a, w := s.Run(e.Token), f.sessions[e.Worker]
	over := w == nil || !w.EndedAt.IsZero() && !w.EndedAt.After(e.To) || w.ExpiresAt.Before(e.To) ||
		e.Why == belay.CauseCancelled && g2grace(s, e)
	if a != nil && !a.EndedBy(e.To) && !over {
		f.Violation(s, "%s of %s under token %d was refused at %s as %q although it owned the execution", e.Kind,
			e.Who,
			e.Token, e.To.Format(clock), e.Why)
	}
}

// g2grace reports whether the grace period of a cancel was over when the owner was refused. After
// that period the owner has no lease any more, although the store records the end of its run only a
// moment later.
func g2grace(s *story, e *entry) bool {
	grace := belay.DefaultCancelGrace
	if p := s.Execution.Policy; p != nil && p.CancelGrace != 0 {
		grace = p.CancelGrace
	}
	return s.Find(string(belay.ActionCancel), func(ev *belay.Event) bool {
		return !ev.At.Add(grace.D()).After(e.To)
	}) != nil
}

package chaos

import (
	"bytes"

	"github.com/belaydev/belay"
)

// g2: no stale effect. After an expiry, a newer claim or an end nothing with an
// older token is applied, neither in the store nor in the world outside; the
// refusal says why, and is true; a repeated operation gets its first answer.
func g2(f *finding) {
	answers := make(map[belay.OpID]*entry)
	for i := range f.Told {
		e := &f.Told[i]
		switch e.Kind {
		case "effect":
			g2effect(f, e)
		case "save", "settle":
			switch e.End {
			case ok:
				g2repeat(f, answers, e)
				f.ok()
			case refused:
				g2refused(f, e)
			case unknown:
			}
		}
	}
}

// g2effect looks for a claim that was newer when a step had its effect.
func g2effect(f *finding, e *entry) {
	s := f.byID[e.Execution]
	if s == nil || s.byToken[e.Token] == nil {
		f.violation(s, "%s worked on %s under token %d, which nobody claimed", e.Who, e.Execution, e.Token)
		return
	}
	for _, a := range s.runs {
		if a.Token > e.Token && a.At.Before(e.At) {
			f.violation(s, "%s began step %s under token %d at %s, after token %d was claimed at %s",
				e.Who, e.Name, e.Token, e.At.Format(clock), a.Token, a.At.Format(clock))
		}
	}
	f.ok()
}

// g2repeat compares the answers to one operation.
func g2repeat(f *finding, answers map[belay.OpID]*entry, e *entry) {
	first := answers[e.Op]
	if first == nil {
		answers[e.Op] = e
		return
	}
	f.count("repeated write answered")
	if first.Seq != e.Seq || first.Token != e.Token {
		f.violation(f.byID[e.Execution], "%s was answered with seq %d, and again with %d", e.Kind, first.Seq, e.Seq)
	}
}

// g2refused checks that who was refused had lost the lease, was told why, and
// changed nothing.
func g2refused(f *finding, e *entry) {
	s := f.byID[e.Execution]
	if s == nil || e.Code != belay.CodeLeaseLost {
		return
	}
	f.count("stale write refused")
	if e.Why == "" {
		f.violation(s, "%s of %s under token %d was refused without a cause: %s", e.Kind, e.Who, e.Token, e.Text)
	}
	a, w := s.byToken[e.Token], f.sessions[e.Worker]
	over := w == nil || !w.EndedAt.IsZero() && !w.EndedAt.After(e.To) || w.ExpiresAt.Before(e.To) || e.Why == belay.CauseCancelled && g2grace(s, e)
	if a != nil && !a.endedBy(e.To) && !over {
		f.violation(s, "%s of %s under token %d was refused at %s as %q though it was the owner", e.Kind, e.Who, e.Token, e.To.Format(clock), e.Why)
	}
	if e.Kind != "save" || e.Replayed { // one that is repeated may have been applied the first time
		return
	}
	for i := range s.Events {
		ev := &s.Events[i]
		if isSave(ev) && ev.Token == e.Token && ev.Name == e.Name && ev.Kind == e.Check.String() && bytes.Equal(ev.Data, e.Data) {
			f.violation(s, "checkpoint %s of %s under token %d was refused and is there at seq %d", e.Name, e.Who, e.Token, ev.Seq)
		}
	}
	f.ok()
}

// g2grace reports whether the grace of a cancel was over when the owner was
// refused. It owns nothing from then on; that its run has ended is written a
// moment later.
func g2grace(s *story, e *entry) bool {
	grace := belay.DefaultCancelGrace
	if p := s.Execution.Policy; p != nil && p.CancelGrace != 0 {
		grace = p.CancelGrace
	}
	return s.find(string(belay.ActionCancel), func(ev *belay.Event) bool { return !ev.At.Add(grace.D()).After(e.To) }) != nil
}

package promise

import (
	"github.com/belaydev/belay"
)

// G2 checks that no stale write has an effect. After an expiry, a newer claim or an end, no write
// with an older token is applied: each write of an owner lies between the start and the end of its
// run. A call that was refused has changed nothing, and the cause in its refusal is true. A repeat
// of an operation gets the same answer as the first call.
func G2(f *Finding) {
	for _, s := range f.History.Stories {
		for i := range s.Events {
			ev := &s.Events[i]
			if ev.Token == 0 || begins(ev) {
				continue
			}
			f.OK()
			r := s.Run(ev.Token)
			if r == nil || ev.Seq < r.Seq || r.End != nil && ev.Seq > r.End.Seq || IsSave(ev) &&
				(r.Started == nil || ev.Seq < r.Started.Seq) {
				f.Violation(s, "%s at seq %d was written outside of the run of its token %d", ev.Kind, ev.Seq, ev.Token)
			}
		}
	}
	answers := make(map[belay.OpID]*Entry)
	for i := range f.History.Told {
		e := &f.History.Told[i]
		switch {
		case e.End == Refused && e.Code == belay.CodeLeaseLost:
			f.refused(e)
		case e.End == OK && (e.Kind == "save" || e.Kind == "settle"):
			f.repeated(answers, e)
			f.ownToken(e)
			f.OK()
		}
	}
}

// repeated compares the answers to the calls of one operation, which must be equal.
func (f *Finding) repeated(answers map[belay.OpID]*Entry, e *Entry) {
	first := answers[e.Op]
	if first == nil {
		answers[e.Op] = e
		return
	}
	f.Count("repeated write answered")
	if first.Seq != e.Seq || first.Token != e.Token {
		f.Violation(f.History.Story(e.Execution), "%s was answered with seq %d, and again with %d", e.Kind, first.Seq,
			e.Seq)
	}
}

// ownToken checks that an accepted checkpoint is stored with the token under which it was sent.
func (f *Finding) ownToken(e *Entry) {
	s := f.History.Story(e.Execution)
	if e.Kind != "save" || s == nil {
		return
	}
	if ev := s.At(e.Seq); ev != nil && ev.Token != e.Token {
		f.Violation(s, "save %q with token %d was accepted as one of token %d", e.Name, e.Token, ev.Token)
	}
}

// refused checks a call that was refused with lease_lost: the cause in the refusal is true, and the
// call wrote nothing.
func (f *Finding) refused(e *Entry) {
	s := f.History.Story(e.Execution)
	if e.Why == "" {
		f.Violation(s, "%s of %s under token %d was refused without a cause: %s", e.Kind, e.Who, e.Token, e.Text)
	}
	if s == nil {
		return
	}
	switch e.Kind {
	case "renew":
		f.Count("stale renewal refused")
	case "save", "settle":
		f.Count("stale write refused")
		if ev := s.written(e); ev != nil {
			f.Violation(s, "%s %s of %s under token %d was refused (%s) and is stored at seq %d", e.Kind, e.Name, e.Who,
				e.Token, e.Why, ev.Seq)
		}
	default:
		return
	}
	if !s.holds(e.Why, e.Token) {
		f.Violation(s, "token %d was refused as %s, which it never was", e.Token, e.Why)
	}
	f.OK()
}

// written returns the event that a refused operation wrote, or nil if it wrote none. Without
// operation ids it cannot distinguish a repetition from the first call, which may have been
// accepted.
func (s *Story) written(e *Entry) *belay.Event {
	if s.Ops != nil {
		if seqs := s.Ops[e.Op]; !e.Op.IsZero() && len(seqs) > 0 {
			return s.At(seqs[0])
		}
		return nil
	}
	if e.Kind != "save" || e.Replayed {
		return nil
	}
	return s.Find(e.Check.String(), func(ev *belay.Event) bool {
		return ev.Token == e.Token && ev.Name == e.Name && Same(ev.Data, e.Data)
	})
}

// holds reports whether a refusal's cause was true for the token at some time in the history.
func (s *Story) holds(cause belay.Cause, token belay.Token) bool {
	switch cause {
	case belay.CauseReassigned:
		return s.Execution.Token > token
	case belay.CauseFinished:
		r := s.Run(token)
		for _, l := range s.lives {
			if l.end != nil && (r == nil || l.end.Seq > r.Seq) {
				return true
			}
		}
		return false
	case belay.CauseCancelled:
		return s.Find(string(belay.ActionCancel), func(*belay.Event) bool { return true }) != nil
	default:
		return true
	}
}

package promise

import "github.com/belaydev/belay"

// G7 checks that an end is final, and that a cancel is final. A generation ends at most once, and
// only a retry, a requeue, a fork or a forget can follow its end. A cancelled execution is not
// claimed any more, and ends as cancelled unless another end was committed before the cancel.
func G7(f *Finding) {
	for _, s := range f.History.Stories {
		f.ends(s)
		x, l := &s.Execution, s.life()
		switch {
		case x.State.Terminal() != (l.end != nil):
			f.Violation(s, "its state is %s; its history has an end: %t", x.State, l.end != nil)
		case l.end != nil && x.State != l.state:
			f.Violation(s, "it ended with %s at seq %d as %s, and is %s", l.end.Kind, l.end.Seq, l.state, x.State)
		case l.end == nil && l.cancelled != nil && x.CancelBy.IsZero():
			f.Violation(s, "it was cancelled at seq %d and is %s", l.cancelled.Seq, x.State)
		}
	}
}

func (f *Finding) ends(s *Story) {
	ended, forgotten := false, false
	var cancelled *belay.Event
	for i := range s.Events {
		ev := &s.Events[i]
		switch {
		case forgotten:
			f.Violation(s, "%s at seq %d came after it was forgotten", ev.Kind, ev.Seq)
		case reopens(ev):
			f.Count("run again")
			if !ended {
				f.Violation(s, "%s at seq %d while it had not ended", ev.Kind, ev.Seq)
			}
			ended, cancelled = false, nil
		case ev.Kind == "fork":
		case ev.Kind == "forget" || ev.Kind == string(belay.ActionDelete):
			forgotten = true
			if !ended {
				f.Violation(s, "it was forgotten at seq %d and had not ended", ev.Seq)
			}
		case ended:
			f.Violation(s, "%s at seq %d came after its end", ev.Kind, ev.Seq)
		case cancelled != nil && begins(ev):
			f.Violation(s, "it was cancelled at seq %d and token %d was claimed after that", cancelled.Seq, ev.Token)
		case cancelled != nil && ev.Token != 0 && !IsSave(ev):
			f.afterCancel(s, cancelled, ev)
		}
		if ev.Kind == string(belay.ActionCancel) && cancelled == nil {
			cancelled = ev
		}
		if ev.Final {
			f.OK()
			ended = true
		}
	}
}

// afterCancel checks how a run ended that was cancelled while it ran.
func (f *Finding) afterCancel(s *Story, cancelled, end *belay.Event) {
	if !end.Final {
		f.Violation(s, "it was cancelled at seq %d, its run ended with %s at seq %d, and it goes on", cancelled.Seq,
			end.Kind, end.Seq)
	}
	f.Count("cancelled while running")
	if end.Kind == belay.OutcomeSucceeded.String() || end.Kind == belay.OutcomeFailed.String() {
		f.Count("cancel raced with the end")
	}
}

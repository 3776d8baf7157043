package chaos

import (
	"github.com/belaydev/belay"
)

// g7: terminal is final, cancel is final. At most one end in each generation and
// nothing after it but what reopens it. A cancel acknowledged ends in cancelled
// unless another end was committed before it.
func g7(f *finding) {
	for _, s := range f.stories {
		ended := false
		for i := range s.Events {
			ev := &s.Events[i]
			reopens := ev.Kind == "retry" || ev.Kind == "requeue"
			switch {
			case ended && !reopens:
				f.violation(s, "%s at seq %d came after its end", ev.Kind, ev.Seq)
			case reopens && !ended:
				f.violation(s, "%s at seq %d while it had not ended", ev.Kind, ev.Seq)
			case reopens:
				f.count("run again")
			}
			if ev.Final {
				f.ok()
			}
			ended = (ended || ev.Final) && !reopens
		}
		if s.Execution.State.Terminal() != ended {
			f.violation(s, "it is %s and its history says ended: %t", s.Execution.State, ended)
		}
		g7cancel(f, s)
	}
}

// g7cancel finds the end of what was cancelled.
func g7cancel(f *finding, s *story) {
	for i := range s.Events {
		ev := &s.Events[i]
		if ev.Kind != string(belay.ActionCancel) {
			continue
		}
		end, reopened := g7end(s.Events[i:])
		if end == nil {
			f.violation(s, "it was cancelled at seq %d and has no end", ev.Seq)
			continue
		}
		f.ok()
		if end != ev {
			f.count("cancelled while running")
			if end.Kind == belay.OutcomeSucceeded.String() || end.Kind == belay.OutcomeFailed.String() {
				f.count("cancel raced with the end")
			}
		}
		if !reopened && s.Execution.State != belay.Cancelled {
			f.violation(s, "it was cancelled at seq %d, ended with %s at seq %d, and is %s", ev.Seq, end.Kind, end.Seq, s.Execution.State)
		}
		for _, after := range s.runs {
			if after.Seq > ev.Seq && after.Seq < end.Seq {
				f.violation(s, "it was cancelled at seq %d and token %d was claimed after that", ev.Seq, after.Token)
			}
		}
	}
}

// g7end is the first end in events, and whether it was reopened after that.
func g7end(events []belay.Event) (end *belay.Event, reopened bool) {
	for i := range events {
		switch ev := &events[i]; {
		case end == nil && ev.Final:
			end = ev
		case end != nil && (ev.Kind == "retry" || ev.Kind == "requeue"):
			return end, true
		}
	}
	return end, false
}

package simulation

import (
	"github.com/belaydev/belay"
)

// g7: terminal is final, cancel is final. At most one end in each generation and
// nothing after it but what reopens, copies or forgets it. A cancel acknowledged ends in
// cancelled unless another end was committed before it, and within its grace.
func g7(f *finding) {
	for _, s := range f.stories {
		ended := false
		for _, e := range s.events {
			reopens := e.kind == "retry" || e.kind == "requeue"
			if ended && !reopens && e.kind != "fork" && e.kind != "forget" {
				f.violation(s, e.c, "%s at seq %d came after its end", e.kind, e.seq)
			}
			if reopens && !ended {
				f.violation(s, e.c, "%s at seq %d while it had not ended", e.kind, e.seq)
			}
			if e.final {
				f.ok()
			}
			ended = (ended || e.final) && !reopens
		}
		if last := s.last(); last.State.Terminal() != ended {
			f.violation(s, last.c, "it is %s and its history says ended: %t", last.State, ended)
		}
		g7states(f, s)
	}
	for _, c := range f.calls {
		if r, is := c.request.(*belay.Control); is && r.Action == belay.ActionCancel && c.end == ok {
			g7cancel(f, c, r)
		}
	}
}

func g7states(f *finding, s *story) {
	for i := 1; i < len(s.rows); i++ {
		before, r := s.rows[i-1], s.rows[i]
		if before.State.Terminal() && r.Generation == before.Generation && r.State != before.State {
			f.violation(s, r.c, "it was %s and became %s", before.State, r.State)
		}
		if r.Generation < before.Generation || r.Seq < before.Seq || r.Token < before.Token {
			f.violation(s, r.c, "generation, seq or token went back")
		}
		if before.CancelBy == 0 || before.State != belay.Running || r.CancelBy != 0 {
			continue
		}
		// Its run has ended: so has it.
		if r.State != belay.Cancelled && r.Generation == before.Generation {
			f.violation(s, r.c, "it was cancelled while it ran and became %s", r.State)
		}
		if a := s.byToken[before.Token]; a != nil && a.Outcome == belay.OutcomeSucceeded {
			f.count("cancel raced with the end")
		}
	}
}

// g7cancel finds the end of what was cancelled.
func g7cancel(f *finding, c *call, r *belay.Control) {
	s := f.byID[r.Execution]
	for _, d := range s.deeds {
		if d.Op != r.Op {
			continue
		}
		at, _ := s.at(d.c)
		last := at
		for _, x := range s.rows {
			if x.Generation == at.Generation && x.Seq >= d.Seq {
				last = x
			}
		}
		f.ok()
		if last.State != belay.Cancelled {
			f.violation(s, last.c, "a cancel was acknowledged at seq %d and generation %d ended as %s", d.Seq, at.Generation, last.State)
		}
		if at.State == belay.Running {
			f.count("cancelled while running")
		}
		return
	}
}

package simulation

import (
	"context"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// g10 checks G10, that dead letters are conserved, by the rows: each dead letter is resolved at most once, it
// keeps the resolutions and notes that were acknowledged, and the counts of the store agree with the history.
func g10(f *finding) {
	for _, s := range f.stories {
		for generation, all := range s.resolved {
			if n := len(all); n > 1 {
				f.violation(s, nil, "the dead letter of generation %d was resolved %d times: by %s and by %s",
					generation, n, all[0].ResolvedBy, all[1].ResolvedBy)
			}
			f.Count("dead letter " + all[0].Resolution)
		}
	}
	for _, c := range f.calls {
		if q, is := c.request.(*belay.DeadLetterChange); is && c.end == promise.OK {
			g10change(f, c, q)
		} else if is && c.end == promise.Refused && belay.CodeOf(c.err) == belay.CodeConflict {
			f.Count("second resolution refused")
		}
	}
	counts, err := f.w.store.Counts(context.Background())
	if err != nil {
		f.violation(nil, nil, "the rows of the store cannot be counted: %v", err)
		return
	}
	f.Books(counts.Executions, counts.DeadLetters)
}

// g10change checks that a dead letter has what an acknowledged change of it wrote.
func g10change(f *finding, c *call, q *belay.DeadLetterChange) {
	s := f.byID[q.Execution]
	if s == nil || s.newest[q.Generation] == nil {
		f.violation(s, nil, "%s changed the dead letter of generation %d, which does not exist", c.actor, q.Generation)
		return
	}
	d, want := s.newest[q.Generation], map[belay.DeadLetterAction]string{
		belay.DeadLetterFix: belay.ResolvedFixed, belay.DeadLetterDiscard: belay.ResolvedDiscarded,
	}[q.Action]
	if want != "" && (d.Resolution != want || d.ResolvedBy != q.Actor) {
		f.violation(s, nil, "%s was answered that the dead letter of generation %d is %s; it is %q by %q", c.actor,
			q.Generation, want, d.Resolution, d.ResolvedBy)
	}
	notes := slices.DeleteFunc(slices.Clone(d.Notes), func(n machine.LetterNote) bool { return n.Op != q.Op })
	if n := len(notes); n != 1 {
		f.violation(s, nil, "the note of %s on the dead letter of generation %d is there %d times", c.actor,
			q.Generation, n)
	}
	f.OK()
}

package simulation

import (
	"context"

	"github.com/belaydev/belay"
)

// g10: dead letters are conserved. A root that failed has exactly one dead letter
// of that generation, written in the failing commit, unless its policy wants
// none; nothing else has one; it is resolved at most once. The books balance:
// accepted = succeeded + failed + cancelled + active.
func g10(f *finding) {
	states := make(map[belay.State]int64)
	open := int64(0)
	for _, s := range f.stories {
		f.ok()
		states[s.last().State]++
		failures := make(map[int]*commit) // by generation
		for i, r := range s.rows {
			if r.State == belay.Failed && (i == 0 || s.rows[i-1].State != belay.Failed) {
				failures[r.Generation] = r.c
			}
		}
		wanted := s.rows[0].Parent.IsZero() && !policyOf(s).NoDeadLetters
		for _, l := range s.letters {
			f.count("dead letter")
			if !wanted || failures[l.Generation] != l.c {
				f.violation(s, l.c, "a dead letter of generation %d was written, and not in a commit that failed it", l.Generation)
			}
			if len(l.resolved) > 1 {
				f.violation(s, l.c, "the dead letter of generation %d was resolved %d times", l.Generation, len(l.resolved))
			}
			if len(l.resolved) == 0 {
				open++
			}
			delete(failures, l.Generation)
		}
		for g, c := range failures {
			if wanted {
				f.violation(s, c, "generation %d failed without a dead letter", g)
			}
		}
	}
	counts, err := f.w.store.Counts(context.Background())
	if err != nil {
		f.violation(nil, nil, "the store cannot be counted: %v", err)
		return
	}
	for state, n := range counts.Executions {
		if states[state] != n {
			f.violation(nil, nil, "%d executions are %s in the store; %d should be", n, state, states[state])
		}
	}
	if counts.DeadLetters != open {
		f.violation(nil, nil, "%d dead letters are open in the store; %d should be", counts.DeadLetters, open)
	}
}

package simulation

import (
	"context"
)

// g10 checks G10, that dead letters are conserved, by the rows: each dead letter is resolved at
// most once, and the counts of the store agree with the history.
func g10(f *finding) {
	for _, s := range f.stories {
		for generation, n := range s.resolved {
			if n > 1 {
				f.violation(s, nil, "the dead letter of generation %d was resolved %d times", generation, n)
			}
		}
	}
	counts, err := f.w.store.Counts(context.Background())
	if err != nil {
		f.violation(nil, nil, "the rows of the store cannot be counted: %v", err)
		return
	}
	f.Books(counts.Executions, counts.DeadLetters)
}

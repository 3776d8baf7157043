package memory

import (
	"slices"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// loadLetters loads dead letters, each once.
func (s *Store) loadLetters(rows *machine.Rows, refs []machine.LetterRef) {
	for _, ref := range refs {
		for _, d := range slices.Backward(s.of(ref.Execution).letters) {
			if ref.Generation != 0 && d.Generation != ref.Generation {
				continue
			}
			if !slices.ContainsFunc(rows.Letters, func(x *machine.DeadLetter) bool {
				return x.Execution == d.Execution && x.Generation == d.Generation
			}) {
				rows.Letters = append(rows.Letters, copyLetter(d))
			}
			break
		}
	}
}

// listLetters lists dead letters, the newest first.
func (s *Store) listLetters(q store.Query, f *store.Filling, last machine.DeadLetter) {
	var all []store.Letter
	for _, r := range s.records {
		if !q.Letters.Execution.IsZero() && r.execution.ID != q.Letters.Execution {
			continue
		}
		for _, d := range r.letters {
			if store.CompareLetters(d, &last) < 0 && (!q.Letters.Open || d.Resolution == "") {
				all = append(all, store.Letter{DeadLetter: copyLetter(d), Workflow: r.execution.Workflow})
			}
		}
	}
	slices.SortFunc(all, func(a, b store.Letter) int { return store.CompareLetters(b.DeadLetter, a.DeadLetter) })
	for _, l := range all {
		if !f.Letter(l, q.Letters) {
			break
		}
	}
}

func copyLetter(d *machine.DeadLetter) *machine.DeadLetter {
	c := copyOf(d)
	c.Notes = slices.Clone(d.Notes)
	return c
}

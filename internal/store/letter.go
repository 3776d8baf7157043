package store

import (
	"bytes"
	"cmp"
	"math"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Letter is a dead letter with the workflow of its execution.
type Letter struct {
	*machine.DeadLetter
	Workflow string
}

// LetterQuery selects dead letters.
type LetterQuery struct {
	// Open selects only open dead letters, and Execution only those of one execution; a zero Execution
	// means all. A store finds these by an index.
	Open      bool
	Execution belay.ExecutionID
	Newest[Letter]
}

// Letter adds a dead letter if the query selects it, and reports whether the store should read the
// next one.
func (f *Filling) Letter(l Letter, q LetterQuery) bool {
	at := place{l.At, l.Execution, int64(l.Generation)}
	selected, more := examine(f, q.Newest, l, at, int64(len(l.Message)+len(l.Workflow)))
	if selected {
		f.Letters = append(f.Letters, l)
	}
	return more
}

// CompareLetters orders dead letters by the time of the failure, the oldest first.
func CompareLetters(a, b *machine.DeadLetter) int {
	return cmp.Or(cmp.Compare(a.At, b.At), bytes.Compare(a.Execution[:], b.Execution[:]),
		cmp.Compare(a.Generation, b.Generation))
}

// startLetters returns the last dead letter of the previous part, with only the fields by which dead
// letters are ordered; for the first part it returns a dead letter that is newer than all dead
// letters that the query selects.
func (q Query) startLetters() (machine.DeadLetter, error) {
	p, err := placeOf(q.After, q.Letters.Before)
	if p.number > math.MaxInt32 || p.number < math.MinInt32 {
		err = errCursor
	}
	return machine.DeadLetter{At: p.at, Execution: p.execution, Generation: int(p.number)}, err
}

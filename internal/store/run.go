package store

import (
	"bytes"
	"cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// RunRow is a run that has started, without its output and the stack of its error, and with the
// workflow of its execution.
type RunRow struct {
	*machine.Run
	Workflow string
	// Content is the key of the submission if it begins as the keys that follow from a content do
	// (machine.ContentPrefix), otherwise empty. InputGen is that of the execution.
	Content  string
	InputGen int
}

// RunQuery selects runs that have started.
type RunQuery = Newest[RunRow]

// Run adds a run if the query selects it, and reports whether the store should read the next one.
func (f *Filling) Run(r RunRow, q RunQuery) bool {
	at := place{r.StartedAt, r.Execution, int64(r.Token)}
	selected, more := examine(f, q, r, at, int64(len(r.Message)+len(r.Workflow)+len(r.Content)))
	if selected {
		f.Runs = append(f.Runs, r)
	}
	return more
}

// CompareRuns orders runs by the time of their start, the oldest first.
func CompareRuns(a, b *machine.Run) int {
	return cmp.Or(cmp.Compare(a.StartedAt, b.StartedAt), bytes.Compare(a.Execution[:], b.Execution[:]),
		cmp.Compare(a.Token, b.Token))
}

// startRuns returns the last run of the previous part, with only the fields by which runs are ordered;
// for the first part it returns a run that started later than all runs that the query selects.
func (q Query) startRuns() (machine.Run, error) {
	p, err := placeOf(q.After, q.Runs.Before)
	return machine.Run{StartedAt: p.at, Execution: p.execution, Token: belay.Token(p.number)}, err
}

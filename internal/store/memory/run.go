package memory

import (
	"slices"
	"strings"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// listRuns lists runs that have started, the run that started last first.
func (s *Store) listRuns(q store.Query, f *store.Filling, last machine.Run) {
	var all []store.RunRow
	for _, r := range s.records {
		for _, run := range r.runs {
			if run.StartedAt != 0 && store.CompareRuns(run, &last) < 0 {
				c := copyOf(run)
				c.Output, c.Stack = nil, ""
				row := store.RunRow{Run: c, Workflow: r.execution.Workflow, InputGen: r.execution.InputGen}
				if key := r.specs[0].Key; strings.HasPrefix(key, machine.ContentPrefix) {
					row.Content = key
				}
				all = append(all, row)
			}
		}
	}
	slices.SortFunc(all, func(a, b store.RunRow) int { return store.CompareRuns(b.Run, a.Run) })
	for _, r := range all {
		if !f.Run(r, q.Runs) {
			break
		}
	}
}

package memory

import (
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// detail finds the newest action of a person or program, and computes the measures.
func (s *Store) detail(r *record, out *machine.Record) {
	for i := len(r.deeds) - 1; i >= max(0, len(r.deeds)-store.ActsRead); i-- {
		if r.deeds[i].Actor != machine.System {
			out.Act = copyOf(r.deeds[i])
			break
		}
	}
	m := &machine.Measures{Runs: make(map[belay.Outcome]int), Children: make(map[belay.State]int)}
	out.Measures = m
	for _, run := range r.runs[:min(len(r.runs), belay.MaxMeasured)] {
		if at := run.StartedAt; at != 0 && (m.FirstRun == 0 || at < m.FirstRun) {
			m.FirstRun = at
		}
	}
	for _, run := range newest(r.runs, m) {
		if run.StartedAt != 0 {
			m.Runs[run.Outcome]++
			m.Running += length(run)
		}
	}
	names := make(map[string]bool)
	for _, k := range newest(r.checkpoints, m) {
		if k.Seq > r.execution.BaseSeq && k.Kind == belay.KindStep && !k.Pruned {
			names[k.Key] = true
		}
	}
	m.Steps = len(names)
	var runs []*machine.Run
	children := s.where(func(e *machine.Execution) bool { return e.Parent == r.execution.ID })
	for _, e := range newest(children, m) {
		m.Children[e.State]++
		m.ChildCost = m.ChildCost.Add(e.Cost)
		for _, run := range s.of(e.ID).runs {
			if run.StartedAt != 0 {
				runs = append(runs, run)
			}
		}
	}
	for _, run := range newest(runs, m) {
		if run.EndedAt != 0 {
			m.ChildRuns++
			m.ChildRunning += length(run)
		}
	}
}

// newest returns the last belay.MaxMeasured rows, and notes in m whether there are more.
func newest[R any](rows []R, m *machine.Measures) []R {
	if more := len(rows) - belay.MaxMeasured; more > 0 {
		m.Truncated = true
		return rows[more:]
	}
	return rows
}

// length is the duration of a run that has ended, 0 for a run that goes on.
func length(r *machine.Run) time.Duration {
	if r.EndedAt == 0 {
		return 0
	}
	return max(0, r.EndedAt.Sub(r.StartedAt))
}

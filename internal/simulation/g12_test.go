package simulation

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// g12 checks G12, the order of claims. Within one lane (the executions with the same queue,
// workflow, version and labels) and priority, executions are claimed first in, first out, up to the
// number of concurrent claimers. The memory store commits one batch after the other, so there is
// one claimer, and no claim may pass over a due execution.
func g12(f *finding) {
	ready := make(map[machine.LaneID]map[belay.ExecutionID]*machine.Execution)
	for _, c := range f.commits {
		claimed := make(map[belay.ExecutionID]bool)
		for _, r := range c.changes.Runs {
			// The order of claims does not apply to a lock, because a lock names its execution.
			if x := f.workers[r.Worker]; r.New && (x == nil || !x.last().Spec.External) {
				claimed[r.Execution] = true
			}
		}
		for id := range claimed {
			s := f.byID[id]
			before, there := s.before(c)
			if !there || before.Ready() == 0 {
				continue
			}
			f.OK()
			// The row before the commit may show a later due time than the time of the commit, if a
			// signal in the same commit made the execution due at once.
			due := min(before.Ready(), c.at)
			for other, e := range ready[before.Lane] {
				if other != id && !claimed[other] && e.Ready() < due && f.byID[other].rowIn(c) == nil {
					f.violation(f.byID[other], c, "it was passed over in its lane by %s", short(id))
				}
			}
		}
		for _, e := range c.changes.Executions {
			if ready[e.Lane] == nil {
				ready[e.Lane] = make(map[belay.ExecutionID]*machine.Execution)
			}
			delete(ready[e.Lane], e.ID)
			if e.Ready() != 0 {
				ready[e.Lane][e.ID] = e
			}
		}
	}
}

// rowIn returns the row that the commit wrote for the execution, or nil if the commit did not
// change the execution.
func (s *story) rowIn(c *commit) *machine.Execution {
	if r, there := s.at(c); there && r.c == c {
		return r.Execution
	}
	return nil
}

package simulation

import (
	"maps"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// replaced checks submissions with when_full "replace": the executions that the submission replaces
// are cancelled in time, even if the node crashes right after it has accepted the submission.
type replaced struct {
	members map[belay.GateID][]belay.ExecutionID // the members of each limit, the oldest first
	waits   map[belay.ExecutionID]replacement    // the executions that must be cancelled and are not cancelled yet
}

// replacement says since when an execution must be cancelled.
type replacement struct {
	real time.Duration
	c    *commit
}

// cancelAgain is how late a cancel may come beyond one second after the submission, if a fault has
// prevented earlier cancels: a node repeats the cancel every second.
const cancelAgain = 3 * time.Second

func newReplaced() *replaced {
	return &replaced{
		members: make(map[belay.GateID][]belay.ExecutionID), waits: make(map[belay.ExecutionID]replacement),
	}
}

// enter reads one commit. An execution that has ended in the commit may have ended before or after
// a submission of the same commit, so it does not count as a member at all.
func (p *replaced) enter(f *finding, g *gateRows, c *commit) {
	for _, r := range g.fresh {
		p.members[r.id] = slices.DeleteFunc(p.members[r.id], func(m belay.ExecutionID) bool {
			_, there := r.places[m]
			return !there
		})
	}
	for _, e := range c.changes.Executions {
		if e.State.Terminal() || e.CancelBy != 0 {
			delete(p.waits, e.ID)
		}
	}
	for _, e := range c.changes.Executions {
		if _, there := f.byID[e.ID].before(c); !there && e.Gates != nil && e.Gates.Concurrency != nil {
			p.submitted(f, g, e, c)
		}
	}
	for _, r := range g.fresh {
		p.members[r.id] = slices.SortedFunc(maps.Keys(r.places), belay.ExecutionID.Compare)
	}
	for _, id := range slices.SortedFunc(maps.Keys(p.waits), belay.ExecutionID.Compare) {
		w := p.waits[id]
		due := max(w.real, f.real(w.c.at.Add(time.Second)))
		if by := f.deadline(due, w.c) + cancelAgain; c.real > by {
			f.violation(f.byID[id], w.c, "a submission replaced it, and it was not cancelled until %s", c.real)
			delete(p.waits, id)
		}
	}
}

// submitted reads the submission of an execution under a limit.
func (p *replaced) submitted(f *finding, g *gateRows, e *machine.Execution, c *commit) {
	id := belay.Gate(belay.GateLimit, e.Gates.Concurrency.Name)
	r, all := g.row(id), p.members[id]
	limit, limited := limitOf(&r.now)
	if old, was := limitOf(&r.was); was {
		limit = max(limit, old) // the order of changes within a commit is not known
	}
	// A fork names the same gates, and replaces nothing.
	fork := slices.ContainsFunc(c.changes.Deeds, func(d *machine.Deed) bool {
		return d.Kind == string(belay.ActionFork)
	})
	if e.Gates.Concurrency.WhenFull == belay.ReplaceWhenFull && limited && r.orders <= 1 && !fork {
		f.OK()
		for _, m := range all[:max(0, min(len(all)+1-limit, len(all)))] {
			s := f.byID[m]
			if now, there := s.at(c); p.waits[m].c == nil && there && now.CancelBy == 0 {
				p.waits[m] = replacement{c.real, c}
				f.count("replaced")
			}
		}
	}
	if !e.State.Terminal() {
		p.members[id] = append(all, e.ID)
		slices.SortFunc(p.members[id], belay.ExecutionID.Compare)
	}
}

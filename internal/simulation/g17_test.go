package simulation

import (
	"math"
	"time"

	"github.com/belaydev/belay"
)

// g17 checks G17, that costs count once and that a spent budget pauses, by the rows.
func g17(f *finding) {
	ended := make(map[belay.RunID]bool)
	for _, c := range f.commits {
		g17charges(f, c, ended)
	}
	for _, s := range f.stories {
		g17root(f, s)
		g17runs(f, s)
		g17resumed(f, s)
	}
}

// g17charges checks that a commit adds the costs of its checkpoints and ends of runs to their
// executions and to the ancestors of these, and nothing else.
func g17charges(f *finding, c *commit, ended map[belay.RunID]bool) {
	due := make(map[belay.ExecutionID]belay.Cost)
	charge := func(id belay.ExecutionID, cost belay.Cost) {
		for s := f.byID[id]; cost > 0 && s != nil && !f.goneBy(id, c); s = f.byID[id] {
			due[id] += cost
			id = s.rows[0].Parent
		}
	}
	for _, k := range c.changes.Checkpoints {
		charge(k.Execution, k.Cost)
	}
	for _, r := range c.changes.Runs {
		if id := (belay.RunID{Execution: r.Execution, Token: r.Token}); r.EndedSeq != 0 && !ended[id] {
			ended[id] = true
			charge(r.Execution, r.Cost)
		}
	}
	for _, e := range c.changes.Executions {
		s, had := f.byID[e.ID], belay.Cost(0)
		if was, existed := s.before(c); existed {
			had = was.Cost
		}
		if e.Cost != had+due[e.ID] {
			f.violation(s, c, "it cost %s, the commit has costs of %s, and it costs %s", had, due[e.ID], e.Cost)
		}
		delete(due, e.ID)
	}
	for id, cost := range due {
		f.violation(f.byID[id], c, "the commit has costs of %s, which were not added", cost)
	}
	f.OK()
}

// goneBy reports whether an execution was deleted before a commit.
func (b *book) goneBy(id belay.ExecutionID, c *commit) bool {
	p, gone := b.deleted[id]
	return gone && p.commit <= c.n
}

// spent reports whether the execution is a root whose budget is spent. A reopened root is
// paused only before its next run.
func (r row) spent() bool {
	return !r.State.Terminal() && r.Parent.IsZero() && r.Budget > 0 && r.Cost >= r.Budget
}

// g17root checks that a root is paused, or about to be, while its budget is spent, and that the budget
// pauses it no longer.
func g17root(f *finding, s *story) {
	for i, r := range s.rows {
		if r.spent() && r.State != belay.Paused && !r.PauseRequested && r.CancelBy == 0 &&
			!(r.State == belay.Pending && r.StartedAt == 0 && r.Generation > 1) {
			f.violation(s, r.c, "it is %s, and its cost of %s has reached its budget of %s", r.State, r.Cost, r.Budget)
		}
		if r.SpentBy == s.id && !r.spent() {
			f.violation(s, r.c, "its budget pauses it, and its cost of %s is below its budget of %s", r.Cost, r.Budget)
		}
		if i == 0 || r.SpentBy == s.rows[i-1].SpentBy || !r.Parent.IsZero() {
			continue
		}
		switch {
		case r.SpentBy.IsZero() && !r.State.Terminal():
			f.Count("root resumed by a raise")
		case r.Cost > s.rows[i-1].Cost && !chargedItself(s, r.c):
			f.Count("budget spent in a child")
		}
	}
}

// chargedItself reports whether a commit has a cost that the execution itself reported.
func chargedItself(s *story, c *commit) bool {
	for _, k := range c.changes.Checkpoints {
		if k.Execution == s.id && k.Cost > 0 {
			return true
		}
	}
	for _, r := range c.changes.Runs {
		if r.Execution == s.id && r.Cost > 0 {
			return true
		}
	}
	return false
}

// rootAt is the root of the execution's tree; nil if an ancestor was deleted before the commit.
func (b *book) rootAt(s *story, c *commit) *story {
	for s != nil && !s.rows[0].Parent.IsZero() {
		if up := s.rows[0].Parent; b.goneBy(up, c) {
			return nil
		}
		s = b.byID[s.rows[0].Parent]
	}
	return s
}

// g17runs checks that no run begins in a tree whose budget is spent.
func g17runs(f *finding, s *story) {
	for _, a := range s.runs {
		if a.began == nil {
			continue
		}
		root := f.rootAt(s, a.began)
		if root == nil {
			continue
		}
		was, existed := root.before(a.began)
		now, _ := root.at(a.began)
		if existed && was.spent() && now.spent() && was.Budget == now.Budget {
			f.violation(s, a.began, "a run began although the budget of %s was spent", short(root.id))
		}
		f.OK()
	}
}

// g17resumed checks that a descendant which a spent budget has paused is resumed soon after the budget is
// not spent any more.
func g17resumed(f *finding, s *story) {
	for i := 0; i < len(s.rows); i++ {
		first := s.rows[i]
		if first.Parent.IsZero() || first.SpentBy.IsZero() {
			continue
		}
		for i+1 < len(s.rows) && s.rows[i+1].SpentBy == first.SpentBy && !s.rows[i+1].State.Terminal() {
			i++
		}
		until := f.ended
		if i+1 < len(s.rows) {
			until = s.rows[i+1].c.real
			if next := s.rows[i+1]; next.SpentBy.IsZero() && !next.State.Terminal() {
				f.Count("child resumed after a raise")
			}
		}
		f.unspent(f.byID[first.SpentBy], func(c *commit, from, to time.Duration) {
			if c.n < first.c.n {
				c, from = first.c, first.c.real
			}
			if by := f.deadline(from, c); min(to, until) > by {
				f.violation(s, first.c, "it was paused for the budget of %s, which was not spent from %s on, and was "+
					"not resumed by %s", short(first.SpentBy), from, by)
			}
		})
		f.OK()
	}
}

// unspent calls each with every period in which the budget of a root was not spent, and the commit with
// which the period began.
func (b *book) unspent(root *story, each func(c *commit, from, to time.Duration)) {
	for i := 0; i < len(root.rows); i++ {
		first := root.rows[i]
		if first.spent() {
			continue
		}
		for i+1 < len(root.rows) && !root.rows[i+1].spent() {
			i++
		}
		to := time.Duration(math.MaxInt64)
		if i+1 < len(root.rows) {
			to = root.rows[i+1].c.real
		}
		each(first.c, first.c.real, to)
	}
}

package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// pruned is the deletion of an execution whose retention was over.
type pruned struct {
	record *machine.Record // the execution before the deletion
	before machine.Time    // the call of Prune deleted executions that had ended before this time
	asked  bool            // the call deleted only the tree of a root that a caller asked to delete
	commit int             // the number of commits before the deletion
}

// The bounds of the retention in plans with a retention. The retention is longer than the time in
// which a submission may be repeated, because a repetition that arrives after its execution was
// deleted would be a new submission.
const (
	leastRetention = 6 * time.Second
	mostRetention  = 9 * time.Second
	// pruneBound is the longest time for which an execution may remain after its retention is over,
	// while the store works.
	pruneBound = 2 * time.Second
)

// withRetention gives the plan a retention that ends within the simulation. The clock of such a
// plan is never set, because a client could then repeat a submission after the retention is over.
func (p *plan) withRetention(d time.Duration) {
	p.retention, p.clockStep = d, 0
	p.safety += d
}

// Prune implements store.Store. It records the executions that the store deletes.
func (s *gated) Prune(ctx context.Context, over store.Retention, limit int) (store.Pruned, error) {
	return through(ctx, s, "prune", func() (store.Pruned, error) {
		asked := over.Before
		s.w.mutant.prunes(s.w, &over)
		candidates := s.w.history.notDeleted(func(id belay.ExecutionID) *machine.Record {
			q := store.Read{Execution: id, Spec: true, History: true, Data: true}
			r, err := s.Store.Read(context.Background(), q)
			if err != nil {
				return nil
			}
			return r
		})
		p, err := s.Store.Prune(context.Background(), over, limit)
		for id, r := range candidates {
			if _, gone := s.Store.Read(context.Background(), store.Read{Execution: id}); gone != nil && r != nil {
				s.w.history.pruned(id, pruned{record: r, before: asked, asked: !over.Root.IsZero()})
			}
		}
		return p, err
	})
}

// notDeleted reads the records of all executions that were not deleted.
func (h *history) notDeleted(read func(belay.ExecutionID) *machine.Record) map[belay.ExecutionID]*machine.Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[belay.ExecutionID]*machine.Record)
	for id := range h.newest {
		if _, gone := h.deleted[id]; !gone {
			all[id] = read(id)
		}
	}
	return all
}

func (h *history) pruned(id belay.ExecutionID, p pruned) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.commit = len(h.commits)
	h.deleted[id] = p
	delete(h.newest, id)
	h.count("deleted after the retention")
}

// deletedByHand reports whether the history of the execution has a deletion.
func (s *story) deletedByHand() bool {
	return slices.ContainsFunc(s.written.Deeds, func(d *machine.Deed) bool {
		return d.Kind == string(belay.ActionDelete)
	})
}

// retention checks two rules. An execution is deleted only when it has ended, its retention is over
// or a caller asked to delete its root, it has no open dead letter, and its parent is deleted too, so
// that a retry of a parent finds its children. A tree of executions (a root with its descendants)
// without an open dead letter is deleted soon after the retention of the whole tree is over.
func retention(f *finding) {
	if f.w.plan.retention <= 0 {
		return
	}
	for _, s := range f.stories {
		if s.deletedByHand() {
			acknowledgedDeletion(f, s)
		}
		if p, gone := f.deleted[s.id]; gone {
			retentionDeleted(f, s, p)
			continue
		}
		retentionKept(f, s)
	}
}

func retentionDeleted(f *finding, s *story, p pruned) {
	e := p.record.Execution
	switch {
	case !e.State.Terminal():
		f.violation(s, nil, "it was deleted while it was %s", e.State)
	case p.asked && !f.askedToDelete(s):
		f.violation(s, nil, "it was deleted before its retention was over, and no caller asked for that")
	case e.FinishedAt >= p.before:
		f.violation(s, nil, "it ended at %s, and was deleted with those that ended before %s", e.FinishedAt.Time(),
			p.before.Time())
	case s.hasOpenLetter():
		f.violation(s, nil, "it was deleted although its dead letter is open")
	case s.last().c.n >= p.commit:
		f.violation(s, s.last().c, "it was written after it was deleted")
	}
	if parent := f.byID[e.Parent]; parent != nil {
		if q, gone := f.deleted[e.Parent]; !gone || q.commit > p.commit {
			f.violation(s, nil, "it was deleted before its parent %s", short(e.Parent))
		}
	}
	f.OK()
}

// askedToDelete reports whether a caller asked to delete the root of the execution.
func (b *book) askedToDelete(s *story) bool {
	for up := b.byID[s.last().Parent]; up != nil; up = b.byID[s.last().Parent] {
		s = up
	}
	if s.deletedByHand() {
		b.count("deleted by hand")
		return true
	}
	return false
}

// acknowledgedDeletion checks that an execution whose deletion was acknowledged is gone, and that the
// deletion is in the audit.
func acknowledgedDeletion(f *finding, s *story) {
	for _, c := range f.calls {
		q, is := c.request.(*belay.Control)
		if !is || q.Execution != s.id || q.Action != belay.ActionDelete || c.end != promise.OK {
			continue
		}
		if _, gone := f.deleted[s.id]; !gone {
			f.violation(s, nil, "%s was answered at %s that it is deleted, and it is there", c.actor, c.to)
		}
	}
	for _, d := range s.written.Deeds {
		c := s.wrote[d.Seq]
		if d.Kind == string(belay.ActionDelete) && !slices.ContainsFunc(c.changes.Audit, func(a *machine.Audit) bool {
			return a.Name == s.id.String() && a.Actor == d.Actor && a.Action == d.Kind
		}) {
			f.violation(s, c, "its deletion is not in the audit")
		}
	}
}

// retentionKept checks an execution that was not deleted: its tree did not end so long before the
// end of the simulation that its retention was over.
func retentionKept(f *finding, s *story) {
	over := f.ended - f.w.plan.retention - pruneBound
	if s.last().Parent.IsZero() && !s.hasOpenLetter() && over > f.healed+pruneBound && f.treeEnded(s, over) {
		f.violation(s, s.last().c, "its retention of %s was over, and it was not deleted", f.w.plan.retention)
	}
	f.OK()
}

// hasOpenLetter reports whether the execution has a dead letter that is not resolved.
func (s *story) hasOpenLetter() bool {
	return slices.ContainsFunc(s.letters, func(l promise.Letter) bool { return l.Resolution == "" })
}

// treeEnded reports whether an execution and all its descendants ended before a time.
func (b *book) treeEnded(s *story, before time.Duration) bool {
	if last := s.last(); !last.State.Terminal() || last.c.real >= before {
		return false
	}
	for _, child := range b.stories {
		if child.last().Parent == s.id && !b.treeEnded(child, before) {
			return false
		}
	}
	return true
}

package store

import (
	"slices"

	"github.com/belaydev/belay"
)

// Pruned is what a call of Prune has done.
type Pruned struct {
	// Executions, Sessions and Keys are how many it deleted.
	Executions, Sessions, Keys int
	// Large are roots whose retention is over, and whose trees are too large to
	// go in one commit. Once they are forgotten they go piece by piece.
	Large []belay.ExecutionID
	// More says that there is more to delete now.
	More bool
}

// Root is an execution that ended before the moment, and whose parent is not there if
// it had one.
type Root struct {
	ID        belay.ExecutionID
	Seq       int64
	Forgotten bool
}

// Member is an execution in a tree.
type Member struct {
	ID, Parent belay.ExecutionID
	Seq        int64
	Over       bool // it ended before the moment
}

// Forest is what a store is asked for by Fell. A limit of 0 is none.
type Forest interface {
	// Roots are those that ended before the moment, in the order of their ids, of
	// the executions within a stretch. It says up to where it looked, and whether
	// that is short of the stretch's end.
	Roots(s Stretch, limit int) (roots []Root, next belay.ExecutionID, more bool, err error)
	// Children are those of some executions, in any order.
	Children(of []belay.ExecutionID, limit int) ([]Member, error)
	// Leaves are the children that are over and have no children, by id; Nodes
	// those that are over and have some.
	Leaves(of belay.ExecutionID, limit int) ([]Member, error)
	Nodes(of belay.ExecutionID, limit int) ([]Member, error)
	// Weigh says what executions keep, about; those that keep as many rows as
	// their seq says, and few bytes, may be left out.
	Weigh(of []Member) (map[belay.ExecutionID]Weight, error)
}

// Weight is how much an execution keeps.
type Weight struct{ Rows, Bytes int64 }

// LightSeq is the seq up to which an execution cannot keep much beside its logs and
// artifacts.
const LightSeq = 20

// Felled is what a store deletes in one commit.
type Felled struct {
	// Trees are whole, by their roots: each goes if all of it is still over.
	Trees map[belay.ExecutionID][]belay.ExecutionID
	// Leaves are executions of a tree whose root is forgotten.
	Leaves []belay.ExecutionID
	// Trim is such a leaf with too much to go at once: a part of its rows goes.
	Trim belay.ExecutionID
	// Next is up to where it looked; More says that this is not all.
	Next belay.ExecutionID
	More bool

	Large []belay.ExecutionID
}

// Nothing reports whether there is nothing to delete.
func (f *Felled) Nothing() bool { return len(f.Trees)+len(f.Leaves) == 0 && f.Trim.IsZero() }

// Bounds of what one commit deletes beside the limit of executions, and of how many
// branches of a large tree are followed for leaves.
const (
	FellRows     = 5000
	fellBytes    = 64 << 20
	fellBranches = 50
)

// Fell chooses what to delete next: trees whose root and every other execution ended
// before the moment, whole, at most limit executions together. What may be run again
// needs its descendants, so these stay with it; and what has not ended needs its
// ancestors. A tree that is too large goes from its leaves, once its root is forgotten.
func Fell(f Forest, s Stretch, limit int) (Felled, error) {
	x := felling{forest: f, limit: limit, Felled: Felled{Trees: make(map[belay.ExecutionID][]belay.ExecutionID)}}
	roots, next, more, err := f.Roots(s, limit)
	if err != nil {
		return x.Felled, err
	}
	if some, err := x.grow(roots); err != nil {
		return x.Felled, err
	} else if len(some) < len(roots) {
		roots, next, more = some, some[len(some)-1].ID, true
	}
	if err := x.weighAll(roots); err != nil {
		return x.Felled, err
	}
	for i := range roots {
		full, err := x.take(&roots[i])
		if err != nil {
			return x.Felled, err
		}
		if full {
			x.Next, x.More = s.From, true
			if i > 0 {
				x.Next = roots[i-1].ID
			}
			return x.Felled, nil
		}
	}
	x.Next, x.More = next, more
	return x.Felled, nil
}

// felling is one call of Fell.
type felling struct {
	forest Forest
	Felled
	limit int
	trees map[belay.ExecutionID]*tree

	count       int // of executions taken
	rows, bytes int64
}

// tree is a root and what descends from it, or the beginning of that.
type tree struct {
	members []Member
	part    bool
	over    bool // all of it that is known
	Weight
}

// grow finds the trees of as many of the roots as a bounded number of rows tells.
func (x *felling) grow(roots []Root) ([]Root, error) {
	for {
		whole, err := x.trunks(roots)
		if err != nil || whole || len(roots) <= 1 {
			return roots, err
		}
		roots = roots[:len(roots)/2]
	}
}

// trunks finds the trees of roots, and reports whether it found all of them.
func (x *felling) trunks(roots []Root) (bool, error) {
	x.trees = make(map[belay.ExecutionID]*tree, len(roots))
	of := make(map[belay.ExecutionID]*tree, len(roots)) // by member
	level := make([]belay.ExecutionID, len(roots))
	for i, r := range roots {
		t := &tree{members: []Member{{ID: r.ID, Seq: r.Seq, Over: true}}}
		x.trees[r.ID], of[r.ID], level[i] = t, t, r.ID
	}
	for left := 4*x.limit + 1; len(level) > 0; {
		most := 0
		if x.limit > 0 {
			most = left
		}
		children, err := x.forest.Children(level, most)
		if err != nil {
			return false, err
		}
		if x.limit > 0 && len(children) >= left {
			for _, t := range x.trees {
				t.part = true
			}
			return false, nil
		}
		left -= len(children)
		below := make([]belay.ExecutionID, 0, len(children))
		for _, c := range children {
			t := of[c.Parent]
			of[c.ID] = t
			t.members = append(t.members, c)
			below = append(below, c.ID)
		}
		level = below
	}
	return true, nil
}

// take takes a tree, or leaves it for another pass. It reports whether there is no room
// for it, or for no more after it.
func (x *felling) take(r *Root) (full bool, err error) {
	t := x.trees[r.ID]
	large := t.part || x.limit > 0 && len(t.members) > x.limit || t.Rows > FellRows || t.Bytes > fellBytes
	switch {
	case !t.over && !r.Forgotten:
		return false, nil
	case large && !r.Forgotten:
		x.Large = append(x.Large, r.ID)
		return false, nil
	case large || !t.over:
		if x.count > 0 {
			return true, nil // it comes first the next time
		}
		return x.prune(r.ID)
	case x.count > 0 && (x.limit > 0 && x.count+len(t.members) > x.limit || x.rows+t.Rows > FellRows ||
		x.bytes+t.Bytes > fellBytes):
		return true, nil
	}
	ids := make([]belay.ExecutionID, len(t.members))
	for i, m := range t.members {
		ids[i] = m.ID
	}
	x.Trees[r.ID] = ids
	x.count, x.rows, x.bytes = x.count+len(ids), x.rows+t.Rows, x.bytes+t.Bytes
	return false, nil
}

// weighAll says of all trees that may go whole how much they keep.
func (x *felling) weighAll(roots []Root) error {
	var all []Member
	for _, r := range roots {
		t := x.trees[r.ID]
		t.over = !slices.ContainsFunc(t.members, func(m Member) bool { return !m.Over })
		if !t.part && t.over {
			all = append(all, t.members...)
		}
	}
	if len(all) == 0 {
		return nil
	}
	kept, err := x.forest.Weigh(all)
	if err != nil {
		return err
	}
	for _, r := range roots {
		t := x.trees[r.ID]
		for _, m := range t.members {
			w := weightOf(kept, m)
			t.Rows, t.Bytes = t.Rows+w.Rows, t.Bytes+w.Bytes
		}
	}
	return nil
}

// weightOf is how much one keeps.
func weightOf(kept map[belay.ExecutionID]Weight, m Member) Weight {
	if w, known := kept[m.ID]; known {
		return w
	}
	return Weight{Rows: m.Seq}
}

// prune takes leaves of a tree whose root is forgotten. It reports false where none
// may go now.
func (x *felling) prune(root belay.ExecutionID) (some bool, err error) {
	leaves, err := x.leaves(root)
	if err != nil {
		return false, err
	}
	if len(leaves) == 0 {
		children, err := x.forest.Children([]belay.ExecutionID{root}, 1)
		if err != nil || len(children) > 0 {
			return false, err
		}
		leaves = []Member{x.trees[root].members[0]}
	}
	kept, err := x.forest.Weigh(leaves)
	if err != nil {
		return false, err
	}
	for _, m := range leaves {
		w := weightOf(kept, m)
		if x.rows+w.Rows > FellRows || x.bytes+w.Bytes > fellBytes {
			if len(x.Leaves) == 0 {
				x.Trim = m.ID
			}
			break
		}
		x.Leaves = append(x.Leaves, m.ID)
		x.rows, x.bytes = x.rows+w.Rows, x.bytes+w.Bytes
	}
	return true, nil
}

// leaves are some below an execution.
func (x *felling) leaves(of belay.ExecutionID) ([]Member, error) {
	leaves, err := x.forest.Leaves(of, x.limit)
	if err != nil || len(leaves) > 0 {
		return leaves, err
	}
	nodes, err := x.forest.Nodes(of, fellBranches)
	for i := 0; i < len(nodes) && err == nil && len(leaves) == 0; i++ {
		leaves, err = x.leaves(nodes[i].ID)
	}
	return leaves, err
}

package store

import (
	"math"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Retention says what a call of Prune may delete.
type Retention struct {
	// Before is a time: only executions that ended before it, and sessions and gates that were last
	// used before it, may be deleted.
	Before machine.Time
	// Letters is the time before which an execution with an open dead letter must have failed, so
	// that it may be deleted; 0 keeps all executions with an open dead letter.
	Letters machine.Time
	// Root, if not zero, makes Prune delete only the tree of this root, which a command has marked as
	// being deleted ([machine.Forgotten]), whenever it ended. Prune then deletes nothing of a root
	// without this mark or with an open dead letter, and no other rows.
	Root belay.ExecutionID
}

// Only returns the Retention for one call of Prune that deletes the tree of a root which is marked as
// being deleted.
func Only(root belay.ExecutionID) Retention { return Retention{Root: root, Before: math.MaxInt64} }

// Next returns the stretch of executions in which Prune searches.
func (r Retention) Next(w *Walk) Stretch {
	if r.Root.IsZero() {
		return w.Next(r.Before)
	}
	return Stretch{From: before(r.Root), To: r.Root, Rows: 2, Forgotten: true}
}

// Went notes the result of the search in a stretch of executions, and reports whether there may be
// more to delete.
func (r Retention) Went(w *Walk, s Stretch, f *Felled) (more bool) {
	if r.Root.IsZero() {
		return w.Went(s, f)
	}
	return !f.Nothing()
}

// before returns the greatest id that is less than id.
func before(id belay.ExecutionID) belay.ExecutionID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]--; id[i] != 0xff {
			break
		}
	}
	return id
}

// Pruned is the result of a call of Prune.
type Pruned struct {
	// Executions, Sessions, Keys and Gates count the deleted rows.
	Executions, Sessions, Keys, Gates int
	// Large are roots whose retention is over and whose trees are too large for one commit. After
	// a [machine.Forget] they are deleted in several commits.
	Large []belay.ExecutionID
	// More says that there is more to delete now.
	More bool
}

// Root is an execution that has no parent in the store, ended before the time that the call of
// Prune names, and has no open dead letter that must be kept.
type Root struct {
	ID        belay.ExecutionID
	Seq       int64
	Forgotten bool
}

// Member is an execution in a tree: a root with its descendants.
type Member struct {
	ID, Parent belay.ExecutionID
	Seq        int64
	Over       bool // the execution ended before the time that the call of Prune names
}

// Forest is the part of a store from which Fell reads trees of executions. A limit of 0 means no
// limit.
type Forest interface {
	// Roots lists, within a stretch of ids and in the order of ids, the roots that ended before the
	// time of the call. next is the last id that Roots read; more says that the stretch continues
	// after next.
	Roots(s Stretch, limit int) (roots []Root, next belay.ExecutionID, more bool, err error)
	// Children lists the children of some executions, in any order.
	Children(of []belay.ExecutionID, limit int) ([]Member, error)
	// Leaves lists, by id, the children of an execution that have ended and have no children; Nodes
	// lists its children that have ended and have children.
	Leaves(of belay.ExecutionID, limit int) ([]Member, error)
	Nodes(of belay.ExecutionID, limit int) ([]Member, error)
	// Weigh estimates the number of rows and bytes of executions. It may leave out an execution
	// that has few bytes; the seq of that execution then counts as its number of rows.
	Weigh(of []Member) (map[belay.ExecutionID]Weight, error)
}

// Weight is the number of rows and bytes of an execution.
type Weight struct{ Rows, Bytes int64 }

// LightSeq is the largest seq of an execution that counts as small: apart from its logs and
// artifacts, it has few rows and bytes.
const LightSeq = 20

// Felled is what a store deletes in one commit.
type Felled struct {
	// Trees are complete trees by their roots. In the commit the store checks again that all
	// executions of a tree have ended, and otherwise keeps the tree.
	Trees map[belay.ExecutionID][]belay.ExecutionID
	// Leaves are executions without children in a tree whose root is being deleted; see
	// [machine.Forget].
	Leaves []belay.ExecutionID
	// Trim is a leaf with too many rows for one commit: a part of its rows is deleted.
	Trim belay.ExecutionID
	// Next is the last id that Fell read. More says that there are further ids to read.
	Next belay.ExecutionID
	More bool

	Large []belay.ExecutionID
}

// Nothing reports whether there is nothing to delete.
func (f *Felled) Nothing() bool { return len(f.Trees)+len(f.Leaves) == 0 && f.Trim.IsZero() }

// FellRows and fellBytes limit what one commit deletes, in addition to the limit of executions.
// fellBranches is the largest number of subtrees of a large tree in which Fell looks for executions
// without children.
const (
	FellRows     = 5000
	fellBytes    = 64 << 20
	fellBranches = 50
)

// Fell chooses the executions to delete next: complete trees whose root and descendants all ended
// before the time that the call of Prune names, together at most limit executions. A tree is
// deleted as a whole, because an execution that may be reopened needs its descendants, and an
// execution that has not ended needs its ancestors. A tree that is too large for one commit is
// deleted from its leaves upwards, after a [machine.Forget] of its root.
func Fell(f Forest, s Stretch, limit int) (Felled, error) {
	x := felling{forest: f, limit: limit, Felled: Felled{Trees: make(map[belay.ExecutionID][]belay.ExecutionID)}}
	roots, next, more, err := f.Roots(s, limit)
	if err != nil {
		return x.Felled, err
	}
	if s.Forgotten {
		roots = slices.DeleteFunc(roots, func(r Root) bool { return !r.Forgotten })
	}
	if some, err := x.loadTrees(roots); err != nil {
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

// felling is the state of one call of Fell.
type felling struct {
	forest Forest
	Felled
	limit int
	trees map[belay.ExecutionID]*tree

	count       int // number of executions chosen so far
	rows, bytes int64
}

// tree is a root execution with its descendants, as far as they were loaded.
type tree struct {
	members []Member
	part    bool
	over    bool // all known members have ended
	Weight
}

// loadTrees loads the trees of the roots. If the trees have too many executions, loadTrees tries
// again with the first half of the roots.
func (x *felling) loadTrees(roots []Root) ([]Root, error) {
	for {
		whole, err := x.loadCompletely(roots)
		if err != nil || whole || len(roots) <= 1 {
			return roots, err
		}
		roots = roots[:len(roots)/2]
	}
}

// loadCompletely loads the trees of the roots. It stops and reports false if they have too many
// executions.
func (x *felling) loadCompletely(roots []Root) (bool, error) {
	x.trees = make(map[belay.ExecutionID]*tree, len(roots))
	of := make(map[belay.ExecutionID]*tree, len(roots)) // the tree of each member
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

// take chooses a tree for deletion, or leaves the tree for a later call. full reports that this
// call has no room for the tree or for any further tree.
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
			return true, nil // the next call begins with this tree
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

// weighAll sets the weights of the trees that may be deleted as a whole.
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

// weightOf returns the weight of an execution. If Weigh left it out, its seq counts as its number
// of rows.
func weightOf(kept map[belay.ExecutionID]Weight, m Member) Weight {
	if w, known := kept[m.ID]; known {
		return w
	}
	return Weight{Rows: m.Seq}
}

// prune chooses leaves of a tree whose root is being deleted. It reports false if no leaf can be
// deleted now.
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

// leaves lists some leaves below an execution.
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

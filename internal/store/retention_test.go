package store

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// flatForest is a Forest of executions without children, in the order of their ids.
type flatForest struct {
	ids  []belay.ExecutionID
	over map[belay.ExecutionID]bool
	seq  map[belay.ExecutionID]int64
	read int // the largest number of rows that one call has read
}

func (g *flatForest) Roots(s Stretch, limit int) (roots []Root, next belay.ExecutionID, more bool, err error) {
	from, _ := slices.BinarySearchFunc(g.ids, s.From, belay.ExecutionID.Compare)
	for i, id := range g.ids[from:] {
		switch {
		case id == s.From:
			continue
		case id.Compare(s.To) > 0:
			return roots, s.To, false, nil
		case i >= s.Rows || len(roots) == limit:
			return roots, next, true, nil
		}
		if next, g.read = id, max(g.read, i); g.over[id] {
			roots = append(roots, Root{ID: id, Seq: max(1, g.seq[id])})
		}
	}
	return roots, s.To, false, nil
}

func (g *flatForest) Children([]belay.ExecutionID, int) ([]Member, error) { return nil, nil }
func (g *flatForest) Leaves(belay.ExecutionID, int) ([]Member, error)     { return nil, nil }
func (g *flatForest) Nodes(belay.ExecutionID, int) ([]Member, error)      { return nil, nil }
func (g *flatForest) Weigh([]Member) (map[belay.ExecutionID]Weight, error) {
	return nil, nil
}

// fell makes a pass over all executions, and returns the number of deleted executions and the
// number of calls of Fell.
func (g *flatForest) fell(t *testing.T, w *Walk, before machine.Time, limit int) (gone, calls int) {
	t.Helper()
	for more := true; more; calls++ {
		s := w.Next(before)
		f, err := Fell(g, s, limit)
		if err != nil {
			t.Fatal(err)
		}
		rows := int64(0)
		for id := range f.Trees {
			rows += max(1, g.seq[id])
			delete(g.over, id)
		}
		if len(f.Trees) > 0 { // faster, because most calls of the later passes delete nothing
			g.ids = slices.DeleteFunc(g.ids, func(id belay.ExecutionID) bool {
				_, felled := f.Trees[id]
				return felled
			})
		}
		if n := len(f.Trees); n > limit || rows > FellRows && n > 1 {
			t.Errorf("one call deletes %d executions with %d rows", n, rows)
		}
		gone += len(f.Trees)
		more = w.Went(s, &f)
	}
	return gone, calls
}

func (g *flatForest) add(n int, at machine.Time, over bool) {
	for range n {
		id := begunAt(at)
		binary.BigEndian.PutUint64(id[8:], uint64(len(g.ids)+1))
		g.ids = append(g.ids, id)
		if over {
			g.over[id] = true
		}
	}
	slices.SortFunc(g.ids, belay.ExecutionID.Compare)
}

// A pass finds all ended executions, however many other executions come before them, and each call
// reads and deletes a limited number of rows. In a large store a pass examines only a part of the
// executions whose ids have a later time than the retention limit.
func TestAPassFindsAllEndedExecutions(t *testing.T) {
	const second = machine.Time(1_000_000)
	before := 1000 * second
	g := &flatForest{over: make(map[belay.ExecutionID]bool), seq: make(map[belay.ExecutionID]int64)}
	g.add(120_000, 10*second, false)
	g.add(1000, 20*second, true)
	for id := range g.over {
		g.seq[id] = 30 // an execution with a longer history has more rows, so one call deletes fewer such executions
	}
	var w Walk
	if gone, calls := g.fell(t, &w, before, 200); gone != 1000 || calls > 20 {
		t.Errorf("%d deleted in %d calls, want 1000", gone, calls)
	}
	if !w.large {
		t.Error("the store does not count as large")
	}
	g.add(300_000, 2000*second, false) // executions that began after the retention limit
	g.add(500, 999*second, true)
	g.add(10, 3000*second, true) // ids with a wrong time: later than the execution's end
	if gone, calls := g.fell(t, &w, before, 200); gone != 500 || calls > 12 {
		t.Errorf("%d deleted in %d calls, want 500", gone, calls)
	}
	gone, passes := 0, 0
	for ; gone < 10 && passes < 400; passes++ {
		n, _ := g.fell(t, &w, before, 200)
		gone += n
	}
	if gone != 10 || passes < 100 {
		t.Errorf("%d executions with lying ids deleted in %d passes, want 10", gone, passes)
	}
	if g.read > stride {
		t.Errorf("one call read %d rows", g.read)
	}
}

// An execution with too many rows for one commit is not deleted before a Forget command names it,
// and does not delay the deletion of others.
func TestALargeExecutionDoesNotDelayOthers(t *testing.T) {
	g := &flatForest{over: make(map[belay.ExecutionID]bool), seq: make(map[belay.ExecutionID]int64)}
	g.add(3, 1000, true)
	g.seq[g.ids[1]] = FellRows + 1
	f, err := Fell(g, new(Walk).Next(2000), 10)
	if err != nil || len(f.Trees) != 2 || len(f.Large) != 1 || f.Large[0] != g.ids[1] || f.More {
		t.Errorf("%+v, %v", f, err)
	}
}

// A search for executions and a search for gates that both take several calls of Prune, and find
// nothing to delete, end together, whatever the numbers of their calls are.
func TestSearchesOfPruneEndTogether(t *testing.T) {
	for executions := range 4 {
		for gates := range 4 {
			var w Walk
			var g Gates
			forest := &flatForest{over: make(map[belay.ExecutionID]bool)}
			for i := range executions {
				id := belay.ExecutionID{15: byte(i + 1)}
				forest.ids, forest.over[id] = append(forest.ids, id), true
			}
			var list []*machine.Object
			for i := range gates {
				ref := machine.GateRef(belay.Gate(belay.GateLimit, string(rune('a'+i))))
				list = append(list, &machine.Object{ObjectRef: ref, Version: 1, Body: []byte("{}")})
			}
			rest := func() []*machine.Object {
				return slices.DeleteFunc(slices.Clone(list), func(o *machine.Object) bool {
					return o.Name <= g.After()
				})
			}
			g.Pick(rest(), 1, 1, 1) // so that the two searches do not begin at the same time
			calls := 0
			for more := true; more; calls++ {
				if calls > 100 {
					t.Fatalf("%d executions and %d gates: the searches do not end", executions, gates)
				}
				s := w.Next(1)
				f, err := Fell(forest, s, 1)
				if err != nil {
					t.Fatal(err)
				}
				_, moreGates := g.Pick(rest(), 1, 1, 1)
				more = w.Went(s, &f)
				g.Again(more)
				more = more || moreGates
			}
		}
	}
}

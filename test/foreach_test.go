package test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// stores are the kinds of servers on which the tests of large documents run: one server with SQLite, and three servers
// with one PostgreSQL database.
var stores = map[string]func(t *testing.T) *group{
	"sqlite": func(t *testing.T) *group {
		t.Helper()
		return newGroup(t, "", 1)
	},
	"postgres": func(t *testing.T) *group {
		t.Helper()
		return newGroup(t, pgtest.Start(t, pgtest.Options{}).Database(t), 3)
	},
}

// Rule: a foreach of very many items survives kills of servers and workers at random moments, a pause and a resume in
// its middle: every item is done, and no finished item is repeated. Another one is cancelled in its middle: its items
// end, and no further item begins.
func TestForeachOfVeryManyItems(t *testing.T) {
	t.Parallel()
	items, kills := 1000, 2
	if *long {
		items, kills = 10_000, 10
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := dice(t)
			f := open(t)
			w := f.members[0].items("item")
			began := time.Now()
			x := f.foreach("item", items, 20*time.Millisecond)
			for i, at := range marks(r, kills+1, items) {
				x.until(at)
				switch m := f.members[r.IntN(len(f.members))]; {
				case i == kills/2:
					x.pauses()
				case r.IntN(2) == 0:
					m.kill()
				default:
					w.signal(syscall.SIGKILL)
					w.wait(patience)
					w = m.items("item")
				}
			}
			x.ends(2 * patience)
			t.Logf("%d items in %s, %d kills", items, time.Since(began).Round(time.Millisecond), kills)
			x.repeated(kills * itemSlots)
			x.cancelled()
		})
	}
}

// marks returns random numbers of items, in order, at which something happens.
func marks(r *rand.Rand, n, items int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = items/20 + r.IntN(items*8/10)
	}
	slices.Sort(all)
	return all
}

// pauses pauses the execution, checks that no item begins meanwhile, and resumes it.
func (x *foreach) pauses() {
	x.t.Helper()
	x.act(belay.ActionPause)
	x.stops()
	before := x.begun(x.workflow)
	if before >= x.items {
		x.t.Errorf("all %d items have begun before the pause", before)
	}
	x.act(belay.ActionResume)
	x.until(before + 1)
}

// repeated checks that each item is done, that at most so many items have begun again, and that an item began again
// only after its run was lost.
func (x *foreach) repeated(most int) {
	x.t.Helper()
	begun, total := x.ledger(x.workflow), x.begun(x.workflow)
	if len(begun) != x.items || total > x.items+most {
		x.t.Errorf("%d of %d items have begun, %d again; at most %d may", len(begun), x.items, total-x.items, most)
	}
	all := x.children()
	if len(all) != x.items {
		x.t.Errorf("%d children for %d items", len(all), x.items)
	}
	for i := range all {
		c := &all[i]
		if c.State != belay.Succeeded || c.Generation != 1 {
			x.t.Fatalf("%s is %s in generation %d", c.ParentKey, c.State, c.Generation)
		}
	}
	again := 0
	for item, n := range begun {
		if n == 1 {
			continue
		}
		again++
		id := belay.ChildID(x.id, 1, fmt.Sprintf("each[%d]", item-1))
		history := events(x.t, x.members[0].client, id)
		wellFormed(x.t, history)
		if runs := count(history, "started"); n > runs {
			x.t.Errorf("item %d has begun %d times in %d runs\n%s", item, n, runs, show(history))
		}
	}
	x.t.Logf("%d items began again", again)
}

// cancelled cancels another foreach in its middle.
func (x *foreach) cancelled() {
	x.t.Helper()
	had := x.begun(x.workflow)
	y := x.group.foreach(x.workflow, x.items, 20*time.Millisecond)
	y.until(had + y.items/2)
	y.act(belay.ActionCancel)
	if e := y.awaited(patience); e.State != belay.Cancelled {
		x.t.Errorf("the cancelled document is %s", e.State)
	}
	y.stops()
	if n := y.begun(y.workflow) - had; n >= y.items {
		x.t.Errorf("all %d items have begun although the document was cancelled", n)
	}
	for _, c := range y.children() {
		if !c.State.Terminal() {
			x.t.Errorf("%s is %s after the document was cancelled", c.ParentKey, c.State)
		}
	}
}

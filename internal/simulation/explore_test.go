package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
)

// race has two concurrent calls and a condition. The condition must be true after the calls, in every
// order in which they are carried out and with every fault.
type race struct {
	// before prepares the simulation for the calls.
	before func(*rig)
	// calls are made at the same time. Each call is repeated until its outcome is known.
	calls [2]func(context.Context, *rig) error
	// after checks the condition, after both calls have been answered.
	after func(*rig)
}

// rig is a simulation of one node without faults of its own, in which a test makes every decision.
type rig struct {
	*world
	failed  []string
	links   map[string]*link
	worker  belay.WorkerID
	ops     uint64
	lease   belay.Lease
	child   belay.Lease
	id      belay.ExecutionID
	errs    [2]error
	won     []belay.Assignment
	repeats bool

	path   []int // the indices of the choices that the test will make
	sizes  []int // the number of options that each choice had
	faults int   // the number of faults that may still be chosen
	said   []string
}

// explore runs a race in every order of its calls and with every fate of each call (carried out,
// failed, or carried out with a lost answer), up to a number of faults.
func explore(t *testing.T, r race) {
	faults := 1
	if *forFlag > 0 || *seedsFlag > fewSeeds {
		faults = 2
	}
	n, failed := tryAll(t, nil, faults, r)
	t.Logf("%d orders, up to %d faults in each", n, faults)
	for _, f := range failed {
		t.Error(f)
	}
	if n < 10 {
		t.Errorf("only %d orders were tried", n)
	}
}

// tryAll runs a race in one order after another, until the race fails in one of them.
func tryAll(t *testing.T, m *mutant, faults int, r race) (orders int, failed []string) {
	for path := []int{}; path != nil && len(failed) == 0; orders++ {
		synctest.Test(t, func(*testing.T) {
			g := newRig(m, path, faults)
			g.run(r)
			path = following(path, g.sizes)
			if failed = g.failed; len(failed) > 0 {
				failed = append(failed, fmt.Sprintf("in order %d: %s", orders, strings.Join(g.said, "; ")))
			}
		})
	}
	return orders, failed
}

// following returns the path after the given path, or nil after the last path. A path has the option
// chosen at each decision; sizes has the number of options of each decision.
func following(path, sizes []int) []int {
	next := make([]int, len(sizes))
	copy(next, path)
	for i := len(next) - 1; i >= 0; i-- {
		if next[i]+1 < sizes[i] {
			next[i]++
			return next[:i+1]
		}
	}
	return nil
}

func newRig(m *mutant, path []int, faults int) *rig {
	w := newWorld(1, m, false)
	w.plan = plan{nodes: 1, slowPoll: time.Second, pace: time.Microsecond, safety: time.Hour}
	n := &node{w: w, name: "n0"}
	w.nodes = append(w.nodes, n)
	n.start()
	w.watches = newWatches(w)
	return &rig{world: w, links: make(map[string]*link), path: path, faults: faults}
}

func (g *rig) run(r race) {
	g.auto(func() { r.before(g) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		other := make(chan struct{})
		go func() {
			defer close(other)
			g.errs[1] = g.persist(func(ctx context.Context) error { return r.calls[1](ctx, g) })
		}()
		g.errs[0] = g.persist(func(ctx context.Context) error { return r.calls[0](ctx, g) })
		<-other
	}()
	g.decideAll(done)
	g.auto(func() { r.after(g) })
	g.healed = g.gate.now()
	g.stop()
	b := g.newBook()
	for _, f := range b.inspect() {
		for _, v := range f.Violated {
			g.fail("%s", v)
		}
	}
}

// link returns the connection of a worker or client to the node, and makes it at first use.
func (g *rig) link(who string) *link {
	if g.links[who] == nil {
		g.links[who] = g.newLink(who, 0)
	}
	return g.links[who]
}

func (g *rig) op() belay.OpID {
	g.ops++
	return belay.OpID(g.world.id("op", g.ops))
}

// persist repeats a call until its outcome is known.
func (g *rig) persist(call func(context.Context) error) error {
	for {
		err := call(context.Background())
		if belay.CodeOf(err) != belay.CodeUnavailable {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// auto calls the function act. Until act has returned, every call that act makes is carried out
// without a fault.
func (g *rig) auto(act func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		act()
	}()
	g.healing.Store(true)
	g.drainGate(done)
}

// decideAll chooses calls and decides whether each is carried out, one after another, until the two
// calls of the race have ended.
func (g *rig) decideAll(done <-chan struct{}) {
	g.healing.Store(false)
	for {
		synctest.Wait()
		select {
		case <-done:
			return
		default:
		}
		held := g.gate.those(g.free)
		if len(held) == 0 {
			g.idle(g.gate.now() + time.Second)
			continue
		}
		if t := service(held); t != nil {
			g.gate.let(t, goes)
			continue
		}
		g.choose(held)
	}
}

// service returns a waiting call that an engine makes by itself, or nil if there is none. The race
// does not depend on the order of such calls.
func service(held []*ticket) *ticket {
	for _, t := range held {
		if t.place == atStore && !strings.HasSuffix(t.name, " commit") {
			return t
		}
	}
	return nil
}

// choose selects the call that goes next and decides whether the call is carried out, fails, or loses
// its answer.
func (g *rig) choose(held []*ticket) {
	type choice struct {
		t *ticket
		f fate
	}
	var all []choice
	for _, t := range held {
		all = append(all, choice{t, goes})
		if g.faults > 0 && t.place != atBatch {
			all = append(all, choice{t, fails})
		}
		if g.faults > 0 && t.place == atStore {
			all = append(all, choice{t, unheard})
		}
	}
	n := 0
	if i := len(g.sizes); i < len(g.path) {
		n = g.path[i]
	}
	g.sizes = append(g.sizes, len(all))
	if n >= len(all) {
		g.fail("the same choices gave other options: choice %d of %d", n, len(all))
		n = 0
	}
	c := all[n]
	if c.f != goes {
		g.faults--
	}
	g.said = append(g.said, fmt.Sprintf("%s %s %s", c.t.place, c.t.name, c.f))
	if c.t.place == onRequest {
		c.t.life = g.nodes[0].life
	}
	g.gate.let(c.t, c.f)
}

func (g *rig) fail(format string, args ...any) {
	g.failed = append(g.failed, fmt.Sprintf(format, args...))
}

// The functions below make the calls of which races consist. Each fails the test if its call is
// refused.

func (g *rig) check(err error) {
	if err != nil {
		g.fail("%v", err)
	}
}

func (g *rig) open() {
	s, err := g.link("worker").OpenWorker(context.Background(), belay.WorkerSpec{
		ID: belay.WorkerID(g.world.id("worker", 1)), Name: "worker", Capacity: 4, TTL: belay.DefaultTTL,
		Workflows: []belay.Registration{{Workflow: "play"}},
	})
	g.check(err)
	g.worker = s.ID
}

func (g *rig) submit(parent *belay.Lease) belay.ExecutionID {
	s := belay.Submission{ID: belay.ExecutionID(g.op()), Workflow: "play", Parent: parent, Input: json.RawMessage("[]")}
	if parent != nil {
		s.ParentKey = "child"
		s.ID = belay.ChildID(parent.Execution, 1, "child")
	}
	_, err := g.link("client").Submit(context.Background(), s)
	g.check(err)
	return s.ID
}

// claim claims executions in the claim with the given number.
func (g *rig) claim(ctx context.Context, number int64, repeat bool) ([]belay.Assignment, error) {
	r, err := g.link("worker").Claim(ctx, belay.ClaimRequest{
		Worker: g.worker, Number: number, Slots: 1, Repeat: repeat,
	})
	if r.Attention { // the reply only tells the worker to send a heartbeat first, so the claim is repeated
		r, err = g.link("worker").Claim(ctx, belay.ClaimRequest{Worker: g.worker, Number: number, Slots: 1})
	}
	return r.Assignments, err
}

// mustClaim claims, and fails the test unless it gets exactly one execution.
func (g *rig) mustClaim(number int64) belay.Assignment {
	a, err := g.claim(context.Background(), number, false)
	g.check(err)
	if len(a) != 1 {
		g.fail("claim %d won %d executions", number, len(a))
		return belay.Assignment{}
	}
	return a[0]
}

func (g *rig) settle(ctx context.Context, l belay.Lease, op belay.OpID, o belay.Outcome) error {
	return g.link("worker").Settle(ctx, belay.Settlement{
		Lease: l, Op: op, Outcome: o, WaitText: signalName, Output: json.RawMessage("[]"),
	})
}

func (g *rig) state(id belay.ExecutionID) belay.Execution {
	x, err := g.link("client").Execution(context.Background(), id)
	g.check(err)
	return x
}

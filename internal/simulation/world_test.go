package simulation

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
)

// world is one simulation: nodes on one store, workers and clients that reach the nodes over a
// network, and a driver that decides what happens next.
type world struct {
	seed    uint64
	plan    plan
	mutant  *mutant
	rng     *rand.Rand // only the driver uses rng
	zero    time.Time  // the beginning of the simulation
	gate    *gate
	store   *memory.Store
	ahead   atomic.Int64 // how far the wall clock that the store follows is ahead of virtual time
	history *history
	trace   *trace

	nodes   []*node
	lives   []*life
	links   []*link
	workers []*workerSlot
	clients []*client
	watches *watches
	// operator changes gates; nil in plans without gates.
	operator *operator
	// steward changes targets of notifications; nil in plans without targets.
	steward *steward
	// planner changes schedules; nil in plans without schedules.
	planner *planner

	epoch             belay.Token
	pids              int
	healed, stoppedAt time.Duration // the times at which the last fault was over, and at which the nodes had stopped

	nemesis []nemesis
	healing atomic.Bool
	decided int
}

// newWorld builds the simulation of a seed. It must be called in a synctest bubble (with virtual
// time).
func newWorld(seed uint64, m *mutant, verbose bool) *world {
	w := &world{seed: seed, zero: time.Now(), gate: newGate(), trace: newTrace(verbose)}
	w.rng = w.random("driver")
	w.plan = newPlan(w.random("plan"))
	w.plan.schedules = w.random("schedules").IntN(2) == 0
	w.plan.notify = w.random("notify").IntN(2) == 0
	w.plan.targets = w.random("targets").IntN(3) == 0
	if m != nil && m.plan != nil {
		m.plan(&w.plan)
	}
	w.plan.targets = w.plan.targets && w.plan.workers > 0 // they carry out the deliveries
	w.history = newHistory(w.gate.now)
	steady := store.Steady()
	if m != nil && m.still {
		steady = nil
	}
	w.store = memory.New(w.clock, steady)
	w.mutant = m.copyFor(w)
	return w
}

// populate starts the nodes, workers and clients of the plan.
func (w *world) populate() {
	for i := range w.plan.nodes {
		n := &node{w: w, name: fmt.Sprintf("n%d", i)}
		w.nodes = append(w.nodes, n)
		n.start()
	}
	for i := range w.plan.workers {
		w.employ(fmt.Sprintf("w%d", i), startSDK)
	}
	for i := range w.plan.bare {
		w.employ(fmt.Sprintf("b%d", i), startBare)
	}
	for i := range w.plan.outside {
		w.employ(fmt.Sprintf("o%d", i), startOutside)
	}
	w.watches = newWatches(w)
	for i := range w.plan.clients {
		w.clients = append(w.clients, newClient(w, fmt.Sprintf("c%d", i)))
	}
	if w.plan.gates {
		w.operator = newOperator(w)
	}
	if w.plan.schedules {
		w.planner = newPlanner(w)
	}
	if w.plan.targets {
		w.steward = newSteward(w)
	}
	w.planNemesis()
}

// clock returns the time of the wall clock that the store follows.
func (w *world) clock() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

// setClock sets the wall clock that the store follows. If the wall clock is set back, the store's
// time does not go back.
func (w *world) setClock(by time.Duration) {
	w.store.Now()
	w.ahead.Store(int64(by))
	w.history.offsets = append(w.history.offsets, offset{w.gate.now(), by})
}

// random returns a separate source of random numbers for each name.
func (w *world) random(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// fill makes bytes that depend only on the seed, a name and a number.
func (w *world) fill(b []byte, name string, n uint64) {
	r := rand.NewPCG(w.seed^n*0x9e3779b97f4a7c15, digest(name)+n)
	for len(b) > 0 {
		var x [8]byte
		binary.LittleEndian.PutUint64(x[:], r.Uint64())
		b = b[copy(b, x[:]):]
	}
}

// id returns a UUIDv7 that depends only on the seed, the time, a name and a number.
func (w *world) id(name string, n uint64) (id [16]byte) {
	w.fill(id[:], name, n)
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli()))
	copy(id[:6], ms[2:])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

func digest(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

// short returns the short name that an execution has in the trace.
func (w *world) short(id belay.ExecutionID) string { return short(id) }

func short(id belay.ExecutionID) string {
	return "e" + hex.EncodeToString(id[4:6]) + hex.EncodeToString(id[12:16])
}

// unlike returns a duration close to d that no other timer has, so that no two timers fire at the
// same instant.
func (w *world) unlike(name string, d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	return d + time.Duration((digest(name)^w.seed^uint64(w.gate.now()))%1_000_003)
}

// livesOn decides whether a node still carries out a call after its caller has stopped waiting.
func (w *world) livesOn(name string) bool {
	return !w.healing.Load() && (digest(name)+uint64(w.gate.now()))%3 == 0
}

// step lets one call go. If no call may go yet, step lets virtual time pass until a call may go.
func (w *world) step(until time.Duration) {
	synctest.Wait()
	if !w.anybody() {
		w.idle(until)
		return
	}
	time.Sleep(1 + time.Duration(w.rng.Int64N(int64(w.plan.pace))))
	synctest.Wait()
	if t := w.choose(); t != nil {
		w.decide(t)
	}
}

// idle lets virtual time pass until a call arrives at the gate or a waiting call may go.
func (w *world) idle(until time.Duration) {
	now := w.gate.now()
	for _, t := range w.gate.those(func(t *ticket) bool { return t.until > now }) {
		until = min(until, t.until)
	}
	select {
	case <-w.gate.arrived:
		return
	default:
	}
	timer := time.NewTimer(max(until-now, 1))
	defer timer.Stop()
	select {
	case <-w.gate.arrived:
	case <-timer.C:
	}
}

// patience is how long a call may wait before the simulation lets it go ahead of newer calls.
const patience = 20 * time.Millisecond

func (w *world) free(t *ticket) bool {
	return t.until <= w.gate.now() && (t.link == nil || !t.link.frozen || t.onWire)
}

func (w *world) anybody() bool {
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	for _, t := range w.gate.held {
		if w.free(t) {
			return true
		}
	}
	return false
}

// choose picks the call that goes next: first the calls that have waited longer than patience.
func (w *world) choose() *ticket {
	free := w.gate.those(w.free)
	if len(free) == 0 {
		return nil
	}
	oldest := free[0]
	for _, t := range free {
		if max(t.since, t.until) < max(oldest.since, oldest.until) {
			oldest = t
		}
	}
	if w.gate.now()-max(oldest.since, oldest.until) > patience {
		return oldest
	}
	return free[w.rng.IntN(len(free))]
}

// decide lets a call that waits at the simulation's gate go and decides its fate (for example, that
// it fails), or makes the call wait longer.
func (w *world) decide(t *ticket) {
	w.decided++
	f, wait := w.judge(t)
	if wait > 0 {
		w.trace.add(w.gate.now(), t.place.String(), t.name, "waits for "+wait.String())
		t.until = w.gate.now() + wait
		return
	}
	w.trace.add(w.gate.now(), t.place.String(), t.name, f.String())
	w.gate.let(t, f)
}

// run continues the simulation until the given time.
func (w *world) run(until time.Duration) {
	for w.gate.now() < until {
		next := until
		if len(w.nemesis) > 0 && !w.healing.Load() {
			if at := w.nemesis[0].at; at <= w.gate.now() {
				x := w.nemesis[0]
				w.nemesis = w.nemesis[1:]
				synctest.Wait()
				x.act()
				continue
			}
			next = min(next, w.nemesis[0].at)
		}
		w.step(next)
	}
}

// simulate runs the whole simulation of a seed.
func simulate(t *testing.T, seed uint64, m *mutant, verbose bool) *result {
	var r *result
	synctest.Test(t, func(*testing.T) {
		defer func() {
			if v := recover(); v != nil {
				panic(fmt.Sprintf("seed %d: %v\n%s", seed, v, debug.Stack()))
			}
		}()
		w := newWorld(seed, m, verbose)
		w.populate()
		w.run(w.plan.safety)
		w.heal()
		open := w.openAtEnd()
		w.stop()
		r = w.judgeAll(open)
	})
	return r
}

// drainGate lets every call go until done closes.
func (w *world) drainGate(done <-chan struct{}) {
	for {
		synctest.Wait()
		select {
		case <-done:
			return
		default:
		}
		w.step(w.gate.now() + time.Second)
	}
}

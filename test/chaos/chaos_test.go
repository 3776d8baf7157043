package chaos

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Before any fault, the test submits root executions for the duration warming, and then measures
// the throughput for the duration measuring. A short run measures for less time.
const (
	warming   = 3 * time.Second
	measuring = 4 * time.Second
	inFlight  = 500 // the number of root executions at the same time during the measurement
	mostAsked = 400 // root executions a second under faults; more of them do not find more errors
	// fewAsked replaces mostAsked in a short run, because more root executions would only take
	// longer to settle, to read and to check.
	fewAsked = 150
)

// Rule: no acknowledged write is lost, no stale write is applied, no execution is left without an
// owner or a reason, and every other promise is kept, while servers, workers and their database are
// killed, cut off and restarted under load. Afterwards every execution ends.
func TestChaos(t *testing.T) {
	if *judgeFlag != "" {
		r, err := readRecord(*judgeFlag)
		if err != nil {
			t.Fatal(err)
		}
		reportVerdict(t, r, *judgeFlag)
		return
	}
	var together pace
	var beside []func()
	for store, length := range shares(*storeFlag, *forFlag) {
		m := together.join()
		world := func() {
			defer m.leave()
			t.Run(store, func(t *testing.T) { runWorld(t, store, length, m) })
		}
		if short() {
			beside = append(beside, world)
		} else {
			world()
		}
	}
	var all sync.WaitGroup
	for _, world := range beside {
		all.Go(world)
	}
	all.Wait()
}

// runWorld runs one world (processes on one store) and reports the verdict.
func runWorld(t *testing.T, store string, length time.Duration, m *member) {
	t.Helper()
	w := newWorld(t, store, *seedFlag)
	r := &record{Store: store, Servers: len(w.servers), Seed: *seedFlag, For: length}
	if store == onPostgres && w.disk == nil {
		r.Cannot = append(r.Cannot, "database's disk full")
	}
	if store == onPostgres && w.pooler == nil {
		r.Cannot = append(r.Cannot, "pooler killed")
	}
	w.run(t.Context(), r, m)
	reportVerdict(t, r, filepath.Join(w.dir, "history.json.gz"))
}

// shares divides the time between the stores: PostgreSQL gets twice as much time as SQLite, since
// the plan for PostgreSQL has more faults.
func shares(store string, all time.Duration) iter.Seq2[string, time.Duration] {
	return func(yield func(string, time.Duration) bool) {
		if store != "" {
			yield(store, all)
			return
		}
		_ = yield(onSQLite, all/3) && yield(onPostgres, all-all/3)
	}
}

// reportVerdict checks a history and reports the verdict. It keeps the file of a history that broke
// a promise.
func reportVerdict(t *testing.T, r *record, file string) {
	t.Helper()
	v := judge(r)
	fmt.Fprintf(os.Stdout, "\n%s\n", v)
	if v.word() == passed {
		return
	}
	shown := make(map[string]int) // the number of violations of each promise
	for _, s := range v.violated {
		promise, _, _ := strings.Cut(s, ":")
		if shown[promise]++; shown[promise] <= 10 {
			t.Error(s)
		}
	}
	for promise, n := range shown {
		if n > 10 {
			t.Logf("%s: … and %d more", promise, n-10)
		}
	}
	for _, s := range v.missing() {
		t.Errorf("never happened, or too seldom: %s", s)
	}
	if *judgeFlag == "" {
		if err := r.save(file); err != nil {
			t.Error(err)
		}
		t.Logf("check the history again with: go test ./test/chaos -run TestChaos -args -judge %s", file)
	}
}

// run carries out the whole run, in step with the runs on other stores, and reads the results into
// the record.
func (w *world) run(ctx context.Context, r *record, m *member) {
	w.t.Helper()
	took := stages{began: time.Now()}
	defer func() { w.t.Logf("%s took %s", w.store, took.text()) }()
	c := w.newCrowd()
	for i := range 3 {
		if err := w.jobs.begin(ctx, fmt.Sprint("command", i)); err != nil {
			w.t.Fatal(err)
		}
	}
	m.measure(func() {
		r.Load.Measured = c.measure(ctx, min(warming, r.For/15), min(measuring, r.For/10))
	})
	r.Load.Asked = min(r.Load.Measured/2, mostAsked)
	if short() {
		r.Load.Asked = min(r.Load.Asked, fewAsked)
	}
	p := newPlan(w.store, w.seed, r.For)
	w.t.Logf("%s, seed %d: %d faults in %s, %.0f executions a second of %.0f", w.store, w.seed, len(p), r.For,
		r.Load.Asked, r.Load.Measured)

	took.end("beginning and measurement")
	harmed, calm := context.WithCancel(ctx)
	healed, over := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { w.watchClock(healed) })
	beside := w.beside(harmed, healed, c, r.For)
	r.Began = time.Now()
	var loading sync.WaitGroup
	loading.Go(func() { c.load(harmed, healed, r.Load.Asked) })
	w.carryOut(ctx, p, c)
	_ = pause(ctx, time.Until(r.Began.Add(r.For)))
	calm()
	loading.Wait()
	w.heal()
	took.end("faults")
	r.Healed = time.Now()
	w.jobs.end()
	r.Open = w.settle(ctx)
	r.Settled = time.Now()
	took.end("settling")
	w.probe(ctx, r)
	took.end("probes")
	m.calm()
	took.end("wait for the other world")
	time.AfterFunc(settling/4, over) // after this time, every watcher must have received the end of its execution
	c.lives.Wait()
	beside.Wait()
	over()
	looking.Wait()
	took.end("watchers")
	w.stop(ctx)
	took.end("stop of the workers")
	if err := w.read(ctx, r); err != nil {
		w.t.Errorf("read the store: %v", err)
	}
	took.end("reading")
	if err := w.retire(ctx, r); err != nil {
		w.t.Errorf("delete ended executions: %v", err)
	}
	took.end("deletion")
	w.end()
	took.end("end")
}

// stages records how long the stages of a run took.
type stages struct {
	began time.Time // the start of the current stage
	all   []string
}

// end ends the current stage.
func (s *stages) end(name string) {
	now := time.Now()
	s.all = append(s.all, fmt.Sprintf("%s %.1f s", name, now.Sub(s.began).Seconds()))
	s.began = now
}

func (s *stages) text() string { return strings.Join(s.all, ", ") }

// beside starts everything that runs at the same time as the load.
func (w *world) beside(harmed, healed context.Context, c *crowd, length time.Duration) *sync.WaitGroup {
	var all sync.WaitGroup
	newest := func() (id belay.ExecutionID) {
		select {
		case id = <-c.newest:
		default:
		}
		return id
	}
	all.Go(func() { w.vandalize(harmed, newest) })
	all.Go(func() { w.watchOver(harmed) })
	all.Go(func() { c.retryFailed(harmed) })
	all.Go(func() { c.burden(harmed, healed) })
	all.Go(func() { c.gated(harmed) })
	all.Go(func() { c.budgeted(harmed, healed) })
	all.Go(func() { c.modal(harmed) })
	all.Go(func() { w.killSwappers(harmed) })
	for i := range 2 {
		g := &ghost{world: w, name: fmt.Sprint("ghost", i), r: dice(w.seed, fmt.Sprint("ghost", i))}
		all.Go(func() {
			g.openSessions(harmed)
			g.cancelLeftovers(healed)
		})
	}
	for i := range streams + polls {
		f := &follower{
			world: w, name: fmt.Sprint("watcher", i), r: dice(w.seed, fmt.Sprint("watcher", i)), poll: i >= streams,
		}
		all.Go(func() { f.follow(harmed, healed, c.newest) })
	}
	all.Go(func() {
		if pause(harmed, length/3) == nil && w.jobs.begin(harmed, "cancelled") == nil {
			_ = pause(harmed, length/6)
			w.jobs.cancel(healed)
		}
	})
	return &all
}

// heal ends all faults.
func (w *world) heal() {
	if w.line != nil {
		w.line.Heal()
	}
	for _, s := range w.workers {
		if s.proxy != nil {
			s.proxy.Heal()
		}
	}
}

// stop ends the workers gracefully, and waits until all remaining sessions have expired.
func (w *world) stop(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range w.workers {
		all.Go(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ended = true
			s.stop(30 * time.Second)
		})
	}
	all.Go(w.jobs.stop)
	all.Wait()
	for until := time.Now().Add(nearTTL + 2*promptly); time.Now().Before(until); _ = pause(ctx, 100*time.Millisecond) {
		all, err := w.servers[0].client.Workers(ctx)
		if err == nil && !slices.ContainsFunc(all, func(s belay.Worker) bool { return !s.State.Ended() }) {
			return
		}
	}
}

// watchClock records the periods in which the machine itself stood still, because no process can
// keep a time limit in such a period.
func (w *world) watchClock(ctx context.Context) {
	const tick = 50 * time.Millisecond
	for last := time.Now(); pause(ctx, tick) == nil; last = time.Now() {
		if late := time.Since(last) - tick; late > 100*time.Millisecond {
			w.troubled("machine", last)
		}
	}
}

// measure returns how many root executions end in a second without faults, while as many as
// possible are submitted.
func (c *crowd) measure(ctx context.Context, warming, measuring time.Duration) float64 {
	ctx, stop := context.WithCancel(ctx)
	var n atomic.Int64
	var all sync.WaitGroup
	for range inFlight {
		all.Go(func() {
			for ctx.Err() == nil {
				if c.calmLife(ctx) {
					n.Add(1)
				}
			}
		})
	}
	_ = pause(ctx, warming)
	before, from := n.Load(), time.Now()
	_ = pause(ctx, measuring)
	rate := float64(n.Load()-before) / time.Since(from).Seconds()
	stop()
	all.Wait()
	return rate
}

// calmLife submits a root execution and waits for its end.
func (c *crowd) calmLife(ctx context.Context) bool {
	r := c.dice()
	s, script := c.submission(r)
	b := c.patient(r, "measurer")
	if got, err := b.Submit(ctx, s); err != nil || got[0].Err != nil {
		return false
	}
	for i := range signals(script) {
		_ = b.Signal(ctx, belay.SignalRequest{
			Execution: s.ID, Name: signalName, Payload: fmt.Appendf(nil, `"sig %d of %s"`, i, s.ID), Op: newOp(),
		})
	}
	for ctx.Err() == nil {
		if x, err := b.Await(ctx, s.ID, 10*time.Second); err == nil && x.State.Terminal() {
			return true
		}
	}
	return false
}

// load submits root executions at the given rate until the context ctx ends. The clients of these
// roots continue until the context lives ends.
func (c *crowd) load(ctx, lives context.Context, rate float64) {
	began, n := time.Now(), 0
	for ; pause(ctx, time.Until(began.Add(time.Duration(float64(n)/rate*float64(time.Second))))) == nil; n++ {
		c.lives.Go(func() { c.live(lives) })
	}
}

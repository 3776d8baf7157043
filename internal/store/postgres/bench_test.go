package postgres_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
)

// load does the work of a client, a worker and an engine in one goroutine.
type load struct {
	tb      testing.TB
	store   *postgres.Store
	worker  belay.WorkerID
	lane    machine.Lane
	counter *atomic.Uint64
	claim   int64
}

// newLoads opens a store with n loads, each with a worker of its own.
func newLoads(tb testing.TB, n int) []*load {
	tb.Helper()
	s := open(tb, database(tb), postgres.Options{})
	loads := make([]*load, n)
	var counter atomic.Uint64
	for i := range loads {
		l := &load{
			tb: tb, store: s, worker: belay.WorkerID{byte(i + 1)}, counter: &counter, lane: machine.NewLane("default",
				"noop", "", 0, nil),
		}
		l.fold(&machine.Open{WorkerSpec: belay.WorkerSpec{
			ID: l.worker, Name: "bench", Workflows: []belay.Registration{{Workflow: "noop"}}, Capacity: 1000,
			TTL: belay.Duration(1 << 50),
		}})
		loads[i] = l
	}
	return loads
}

func (l *load) fold(commands ...machine.Command) []machine.Reply {
	l.tb.Helper()
	var need machine.Need
	for _, c := range commands {
		c.Need(&need)
	}
	var replies []machine.Reply
	err := l.store.Commit(context.Background(), need, func(rows *machine.Rows) *machine.Changes {
		var changes *machine.Changes
		changes, replies = machine.Fold(rows, commands)
		return changes
	})
	if err != nil {
		l.tb.Fatal(err)
	}
	for i, r := range replies {
		if r.Err != nil {
			l.tb.Fatalf("%T: %v", commands[i], r.Err)
		}
	}
	return replies
}

// unique makes 16 bytes that grow with each call, like a UUIDv7; the last eight bytes look random.
func (l *load) unique() (id [16]byte) {
	n := l.counter.Add(1)
	binary.BigEndian.PutUint64(id[:], n)
	binary.BigEndian.PutUint64(id[8:], n*0x9e3779b97f4a7c15)
	return id
}

var payload = []byte(`{"to":"somebody@example.org","subject":"a payload of about three hundred bytes","body":"` +
	`Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua. ` +
	`Ut enim ad minim veniam, quis nostrud exercitation ullamco laboris nisi ut aliquip."}`)

func (l *load) submits(n int) []machine.Command {
	commands := make([]machine.Command, n)
	for i := range commands {
		commands[i] = &machine.Submit{Submission: belay.Submission{ID: l.unique(), Workflow: "noop", Input: payload}}
	}
	return commands
}

func (l *load) claims(n int) machine.Command {
	l.claim++
	return &machine.Claim{
		ClaimRequest: belay.ClaimRequest{Worker: l.worker, Number: l.claim, Slots: n},
		Lanes:        []machine.Lane{l.lane}, Secrets: make([]belay.Secret, n),
	}
}

func lease(c machine.Claimed) belay.Lease {
	e := c.Execution
	return belay.Lease{Execution: e.ID, Worker: e.Worker, Token: e.Token, Secret: e.Secret}
}

func (l *load) settles(won []machine.Claimed) []machine.Command {
	commands := make([]machine.Command, len(won))
	for i, c := range won {
		commands[i] = &machine.Settle{Settlement: belay.Settlement{
			Lease: lease(c), Op: l.unique(), Outcome: belay.OutcomeSucceeded, Output: []byte(`"done"`),
		}}
	}
	return commands
}

func (l *load) saves(won []machine.Claimed, step int) []machine.Command {
	commands := make([]machine.Command, len(won))
	for i, c := range won {
		commands[i] = &machine.Save{Save: belay.Save{
			Lease: lease(c), Op: l.unique(), Kind: belay.KindStep, Key: fmt.Sprintf("step-%d", step), Data: payload,
		}}
	}
	return commands
}

var batches = []int{1, 250, 1000}

// each runs a benchmark with one connection and with two connections, in batches of several sizes.
// step does one round and returns the number of executions or steps in it.
func each(b *testing.B, unit string, step func(l *load, batch int) int) {
	for _, writers := range []int{1, 2} {
		for _, batch := range batches {
			b.Run(fmt.Sprintf("writers=%d/batch=%d", writers, batch), func(b *testing.B) {
				loads := newLoads(b, writers)
				var done, rounds atomic.Int64
				var wg sync.WaitGroup
				before := spent(b)
				b.ResetTimer()
				for _, l := range loads {
					wg.Go(func() {
						for rounds.Add(1) <= int64(b.N) {
							done.Add(int64(step(l, batch)))
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				before.report(b, done.Load())
				b.ReportMetric(float64(done.Load())/b.Elapsed().Seconds(), unit+"/s")
			})
		}
	}
}

// BenchmarkExecutions runs executions that do nothing, from submission to settlement, in three
// commits.
func BenchmarkExecutions(b *testing.B) {
	each(b, "executions", func(l *load, batch int) int {
		l.fold(l.submits(batch)...)
		won := l.fold(l.claims(batch))[0].Claims
		l.fold(l.settles(won)...)
		return len(won)
	})
}

// BenchmarkMixed runs executions that do nothing. Each commit submits n executions, claims n
// executions, and settles the executions that the previous commit has claimed.
func BenchmarkMixed(b *testing.B) {
	var mu sync.Mutex
	running := make(map[*load][]machine.Claimed)
	each(b, "executions", func(l *load, batch int) int {
		mu.Lock()
		won := running[l]
		mu.Unlock()
		commands := append(append(l.settles(won), l.submits(batch)...), l.claims(batch))
		replies := l.fold(commands...)
		mu.Lock()
		running[l] = replies[len(replies)-1].Claims
		mu.Unlock()
		return len(won)
	})
}

func BenchmarkSubmits(b *testing.B) {
	each(b, "submits", func(l *load, batch int) int {
		l.fold(l.submits(batch)...)
		return batch
	})
}

// BenchmarkSteps saves steps of executions with ten steps each.
func BenchmarkSteps(b *testing.B) {
	var mu sync.Mutex
	type progress struct {
		won  []machine.Claimed
		step int
	}
	running := make(map[*load]*progress)
	each(b, "steps", func(l *load, batch int) int {
		mu.Lock()
		r := running[l]
		if r == nil {
			r = &progress{}
			running[l] = r
		}
		mu.Unlock()
		if r.step%10 == 0 {
			l.fold(l.settles(r.won)...)
			l.fold(l.submits(batch)...)
			r.won = l.fold(l.claims(batch))[0].Claims
		}
		r.step++
		l.fold(l.saves(r.won, r.step)...)
		return len(r.won)
	})
}

// BenchmarkPrune deletes ended executions, as many in a commit as an engine deletes.
func BenchmarkPrune(b *testing.B) {
	l := newLoads(b, 1)[0]
	const batch = 200
	for range b.N {
		l.fold(l.submits(batch)...)
		won := l.fold(l.claims(batch))[0].Claims
		l.fold(l.settles(won)...)
	}
	before := spent(b)
	b.ResetTimer()
	done := 0
	for more := true; more; {
		p, err := l.store.Prune(b.Context(), store.Retention{Before: l.store.Now()}, batch)
		if err != nil {
			b.Fatal(err)
		}
		done, more = done+p.Executions, p.More
	}
	b.StopTimer()
	before.report(b, int64(done))
	b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "executions/s")
}

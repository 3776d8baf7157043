package engine_test

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

// BenchmarkEngine measures how much an execution that does nothing costs in the engine, from
// submission to end. It uses the memory store, which adds little.
func BenchmarkEngine(b *testing.B) { benchmark(b, 1, engine.Options{}) }

// BenchmarkWorkers measures the same while the claims of a hundred workers wait for work.
func BenchmarkWorkers(b *testing.B) { benchmark(b, 100, engine.Options{}) }

// benchmark runs executions on workers that have a thousand slots together.
func benchmark(b *testing.B, workers int, o engine.Options) {
	e := engine.New(memory.New(time.Now), o)
	defer e.Close()
	ctx := context.Background()
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	for range workers {
		s, err := e.OpenWorker(ctx, belay.WorkerSpec{
			Name: "w", Workflows: []belay.Registration{{Workflow: "noop"}}, Capacity: 1000 / workers,
			TTL: belay.Duration(time.Hour),
		})
		if err != nil {
			b.Fatal(err)
		}
		go work(b, e, s.ID, 1000/workers, func() {
			if left.Add(-1) == 0 {
				close(done)
			}
		})
	}
	input := json.RawMessage(`{"name":"world000","payload":"0123456789012345678901234567890123456789"}`)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 64 {
		wg.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if _, err := e.Submit(ctx, belay.Submission{Workflow: "noop", Input: input}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	<-done
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "executions/s")
}

// work runs a worker with the given number of slots. It ends each claimed run immediately.
func work(b *testing.B, e *engine.Engine, id belay.WorkerID, slots int, ended func()) {
	var free atomic.Int64
	free.Store(int64(slots))
	room := make(chan struct{}, 1)
	for n := int64(1); ; n++ {
		for free.Load() == 0 {
			<-room
		}
		r, err := e.Claim(context.Background(), belay.ClaimRequest{
			Worker: id, Number: n, Slots: int(free.Load()), Wait: time.Minute,
		})
		if err != nil {
			return
		}
		free.Add(-int64(len(r.Assignments)))
		for i := range r.Assignments {
			a := r.Assignments[i]
			go func() {
				if err := e.Settle(context.Background(), belay.Settlement{Lease: a.Lease,
					Op: belay.OpID(a.Lease.Secret), Outcome: belay.OutcomeSucceeded}); err != nil {
					b.Error(err)
				}
				ended()
				free.Add(1)
				select {
				case room <- struct{}{}:
				default:
				}
			}()
		}
	}
}

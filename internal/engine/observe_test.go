package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/memory"
)

// The observations contain every commit exactly once. If the store refuses one command and the
// engine halves the batch, the halves that are committed are observed, without the refused command.
func TestObservationsMatchCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memory.New(time.Now), hold: make(chan struct{}), refuse: func(c *machine.Changes) error {
			for _, e := range c.Executions {
				if e.Workflow == "poison" {
					return errors.New("constraint failed")
				}
			}
			return nil
		}}
		submitted, commands, batches := 0, 0, 0 // without a lock, because calls of Observe do not overlap
		e := engine.New(f, engine.Options{Observe: func(o *engine.Observation) {
			submitted += len(o.Submitted)
			commands += o.Commands
			if o.Wrote {
				batches++
			}
		}})
		var wg sync.WaitGroup
		for i := range 20 {
			workflow := "w"
			if i == 7 {
				workflow = "poison"
			}
			wg.Go(func() {
				out, err := e.Submit(t.Context(), belay.Submission{Workflow: workflow})
				if err != nil || (out[0].Err != nil) != (workflow == "poison") {
					t.Errorf("%s: %v, %v", workflow, out, err)
				}
			})
		}
		synctest.Wait()
		f.mu.Lock()
		hold := f.hold
		f.hold = nil
		f.mu.Unlock()
		close(hold)
		wg.Wait()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if submitted != 19 || commands < 19 || batches != len(f.batches) {
			t.Errorf("observed %d submissions in %d batches of %d commands; 19 were accepted in %d", submitted, batches,
				commands, len(f.batches))
		}
	})
}

// Rule: the time for which an execution waited at a gate that it names is not observed as a wait for a
// worker. A worker that waits for work claims the execution as soon as the gate lets it through.
func TestTheWaitAtAGateIsNotObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started []time.Duration
		e := engine.New(memory.New(time.Now), engine.Options{Observe: func(o *engine.Observation) {
			for _, s := range o.Started {
				started = append(started, s.Wait)
			}
		}})
		one := belay.Submission{Workflow: "w", Gates: belay.Gates{Concurrency: &belay.Concurrency{Name: "x", Max: 1}}}
		must[[]belay.Submitted](t)(e.Submit(t.Context(), one, one, one))
		ctx, cancel := context.WithCancel(t.Context())
		begun := make(chan belay.ExecutionID, 3)
		workThrough(ctx, t, e, 2, time.Hour, begun)
		for range 3 {
			<-begun
		}
		cancel()
		synctest.Wait()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if len(started) != 3 || max(started[0], started[1], started[2]) > 10*time.Millisecond {
			t.Errorf("waits for a worker: %v", started)
		}
	})
}

// The time for which an execution was due, and the time until a dead worker was noticed, are
// measured by the store's clock.
func TestWaitsAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started, detected, late []time.Duration
		e := engine.New(memory.New(time.Now), engine.Options{Observe: func(o *engine.Observation) {
			for _, s := range o.Started {
				started = append(started, s.Wait)
			}
			detected = append(detected, o.Detected...)
			late = append(late, o.Late...)
		}})
		due := time.Now().Add(2 * time.Second)
		for _, s := range []belay.Submission{{Workflow: "w", DueAt: due}, {Workflow: "w"}} {
			if _, err := e.Submit(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		w, err := e.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "w", Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 9,
			TTL: belay.Duration(3 * time.Second),
		})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := e.Claim(t.Context(), belay.ClaimRequest{Worker: w.ID, Number: 1, Slots: 9}); err != nil ||
			len(r.Assignments) != 2 {
			t.Fatalf("%+v, %v", r, err)
		}
		time.Sleep(10 * time.Second)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if len(started) != 2 || started[0]+started[1] != 8*time.Second || len(detected) != 1 ||
			detected[0] < 3*time.Second || detected[0] > 4*time.Second {
			t.Errorf("due for %v, detected after %v", started, detected)
		}
		if len(late) != 1 || late[0] != detected[0]-3*time.Second {
			t.Errorf("detected after %v, and %v after the end of the lease", detected, late)
		}
	})
}

package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

// workThrough opens a worker that claims executions and ends each run successfully when it has
// lasted as long as work says. It sends the id of each execution that begins to the channel begun.
func workThrough(ctx context.Context, t *testing.T, e *engine.Engine, slots int, work time.Duration,
	begun chan<- belay.ExecutionID) {

	s := must[belay.Session](t)(e.OpenWorker(ctx, belay.WorkerSpec{
		Name: "w", Workflows: noop, Capacity: slots, TTL: belay.MaxTTL,
	}))
	free := make(chan struct{}, slots)
	for range slots {
		free <- struct{}{}
	}
	go func() {
		for n := int64(1); ctx.Err() == nil; n++ {
			select {
			case <-free:
			case <-ctx.Done():
				return
			}
			r, err := e.Claim(ctx, belay.ClaimRequest{Worker: s.ID, Number: n, Slots: 1, Wait: time.Minute})
			if err != nil {
				return
			}
			if len(r.Assignments) == 0 {
				free <- struct{}{}
				continue
			}
			a := r.Assignments[0]
			begun <- a.Lease.Execution
			go func() {
				select {
				case <-time.After(work):
				case <-ctx.Done():
					return
				}
				_ = e.Settle(ctx, belay.Settlement{Lease: a.Lease, Outcome: belay.OutcomeSucceeded})
				free <- struct{}{}
			}()
		}
	}()
}

// Rule: a hundred executions under a limit of two run two at a time. The next execution starts as
// soon as a run ends, and the engine makes no needless commits.
func TestALimitKeepsItsPlacesBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		const all = 100
		begun := make(chan belay.ExecutionID, all)
		workThrough(ctx, t, e, 10, time.Second, begun)
		subs := make([]belay.Submission, all)
		for i := range subs {
			limit := belay.Concurrency{Name: "x", Max: 2}
			subs[i] = belay.Submission{Workflow: "w", Gates: belay.Gates{Concurrency: &limit}}
		}
		began := time.Now()
		for _, s := range must[[]belay.Submitted](t)(e.Submit(ctx, subs...)) {
			if s.Err != nil {
				t.Fatal(s.Err)
			}
		}
		for range all {
			<-begun
		}
		if took := time.Since(began); took < 49*time.Second || took > 50*time.Second {
			t.Errorf("two at a time took %s to begin a hundred of a second each", took)
		}
		if n := e.Stats().Commits; n > 6*all {
			t.Errorf("%d commits for %d executions", n, all)
		}
		stop()
		synctest.Wait()
	})
}

// Rule: a paused queue or workflow starts no run and costs the engine hardly any commands. Its
// executions start as soon as an operator resumes it or the time of the pause is over.
func TestAPauseCostsNothingAndEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		begun := make(chan belay.ExecutionID, 9)
		workThrough(ctx, t, e, 3, time.Second, begun)
		change := func(a belay.GateAction, with ...func(*belay.GateChange)) {
			t.Helper()
			c := belay.GateChange{Gate: "queue:default", Action: a, Actor: "ann", Reason: "a deploy"}
			for _, w := range with {
				w(&c)
			}
			must[belay.GateDetail](t)(e.ChangeGate(ctx, c))
		}
		change(belay.GatePause)
		submit(t, e)
		synctest.Wait()
		before := e.Stats()
		time.Sleep(10 * time.Minute)
		// The engine may commit marks of life (times that show that it runs) and rare checks of the
		// gate, nothing else.
		if after := e.Stats(); after.Commands-before.Commands > 10*60+100 {
			t.Errorf("%d commands in ten minutes of a pause", after.Commands-before.Commands)
		}
		if len(begun) > 0 {
			t.Fatal("it started")
		}
		at := time.Now()
		change(belay.GateResume)
		<-begun
		if took := time.Since(at); took > time.Millisecond {
			t.Errorf("it started %s after the pause", took)
		}
		change(belay.GatePause, func(c *belay.GateChange) { c.Until = time.Now().Add(time.Hour) })
		submit(t, e)
		at = time.Now()
		<-begun
		if took := time.Since(at); took < time.Hour || took > time.Hour+time.Millisecond {
			t.Errorf("it started after %s of a pause of an hour", took)
		}
		stop()
		synctest.Wait()
	})
}

// Rule: an operator's limit on a workflow limits how many of its executions run at the same time.
// When a run ends, the next execution starts at once.
func TestALimitOfAWorkflowKeepsItsPlacesBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		const all = 40
		begun := make(chan belay.ExecutionID, all)
		four := belay.GateChange{Gate: "workflow:w", Action: belay.GateSetLimit, Max: 4}
		must[belay.GateDetail](t)(e.ChangeGate(ctx, four))
		workThrough(ctx, t, e, 10, time.Second, begun)
		began := time.Now()
		for range all {
			submit(t, e)
		}
		for range all {
			<-begun
		}
		if took := time.Since(began); took < 9*time.Second || took > 10*time.Second {
			t.Errorf("four at a time took %s to begin %d of a second each", took, all)
		}
		stop()
		synctest.Wait()
	})
}

// Rule: executions that wait for a rate start as fast as the rate allows, and not faster.
func TestARateIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		const all = 300
		begun := make(chan belay.ExecutionID, all)
		workThrough(ctx, t, e, 10, time.Millisecond, begun)
		subs := make([]belay.Submission, all)
		for i := range subs {
			subs[i] = belay.Submission{
				Workflow: "w", IdempotencyKey: fmt.Sprint(i),
				Gates: belay.Gates{Rate: &belay.Rate{Name: "r", Max: 10, Per: belay.Duration(time.Second)}},
			}
		}
		began := time.Now()
		must[[]belay.Submitted](t)(e.Submit(ctx, subs...))
		for range all {
			<-begun
		}
		if took := time.Since(began); took < 29*time.Second || took > 32*time.Second {
			t.Errorf("ten a second took %s to begin %d", took, all)
		}
		stop()
		synctest.Wait()
	})
}

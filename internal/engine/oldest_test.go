package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

// waits is an engine for tests of oldestDue, the longest wait of a due execution for a worker.
type waits struct {
	*engine.Engine
	t *testing.T
	w belay.WorkerID
	n int64
}

// oldest checks that the longest wait of an execution for a worker is between low and high.
func (e *waits) oldest(low, high time.Duration) {
	e.t.Helper()
	tally := must[engine.Tally](e.t)(e.Tally(e.t.Context()))
	if tally.OldestDue < low || tally.OldestDue > high {
		e.t.Errorf("the longest wait is %s, want %s to %s", tally.OldestDue, low, high)
	}
}

func (e *waits) gate(c belay.GateChange) {
	e.t.Helper()
	must[belay.GateDetail](e.t)(e.ChangeGate(e.t.Context(), c))
}

// claim wins as many executions as it can, up to slots.
func (e *waits) claim(slots, want int) []belay.Assignment {
	e.t.Helper()
	var r belay.ClaimReply
	for r.Attention = true; r.Attention && len(r.Assignments) == 0; { // a reply may only ask for a heartbeat
		e.n++
		r = must[belay.ClaimReply](e.t)(e.Claim(e.t.Context(), belay.ClaimRequest{
			Worker: e.w, Number: e.n, Slots: slots,
		}))
	}
	if len(r.Assignments) != want {
		e.t.Fatalf("claimed %d, want %d", len(r.Assignments), want)
	}
	return r.Assignments
}

func (e *waits) end(all ...belay.Assignment) {
	e.t.Helper()
	for _, a := range all {
		s := belay.Settlement{Lease: a.Lease, Outcome: belay.OutcomeSucceeded}
		if err := e.Settle(e.t.Context(), s); err != nil {
			e.t.Fatal(err)
		}
	}
}

// later lets the duration pass, and measures the longest wait every ten seconds, as Prometheus
// does.
func (e *waits) later(d time.Duration) {
	for range d / (10 * time.Second) {
		time.Sleep(10 * time.Second)
		must[engine.Tally](e.t)(e.Tally(e.t.Context()))
	}
}

func measure(t *testing.T, test func(t *testing.T, e *waits)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		w := must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "w", Workflows: noop, Capacity: 100, TTL: belay.MaxTTL,
		}))
		test(t, &waits{Engine: e, t: t, w: w.ID})
	})
}

// Rule: the longest wait is that of the execution that has been due for longest and that no worker
// has claimed. Executions that are not due, are running or paused, or have ended do not wait for a
// worker.
func TestTheLongestWaitIsThatOfADueExecution(t *testing.T) {
	measure(t, func(t *testing.T, e *waits) {
		e.oldest(0, 0)
		must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{
			Workflow: "w", DueAt: time.Now().Add(10 * time.Minute),
		}, belay.Submission{Workflow: "w", External: true}))
		e.later(9 * time.Minute)
		e.oldest(0, 0)
		e.later(2 * time.Minute)
		e.oldest(time.Minute, time.Minute)
		submit(t, e.Engine)
		e.later(time.Minute)
		e.oldest(2*time.Minute, 2*time.Minute)
		e.claim(1, 1)
		e.oldest(time.Minute, time.Minute)
		e.claim(1, 1)
		e.later(time.Minute)
		e.oldest(0, 0)
		paused := submit(t, e.Engine)
		must[belay.Execution](t)(e.Control(t.Context(), belay.Control{Execution: paused, Action: belay.ActionPause}))
		e.later(time.Minute)
		e.oldest(0, 0)
	})
}

// Rule: the time for which an execution waited at a gate that it names does not count as a wait for a
// worker, not even after the gate has let the execution through.
func TestTheWaitAtAGateIsNotCounted(t *testing.T) {
	measure(t, func(t *testing.T, e *waits) {
		one := belay.Submission{Workflow: "w", Gates: belay.Gates{Concurrency: &belay.Concurrency{Name: "x", Max: 1}}}
		must[[]belay.Submitted](t)(e.Submit(t.Context(), one, one))
		run := e.claim(2, 1)
		e.later(10 * time.Minute)
		e.oldest(0, 0)
		e.end(run...)
		synctest.Wait()
		e.oldest(0, 0) // the gate has let the execution through, and a worker has two seconds to claim it
		e.later(time.Minute)
		e.oldest(50*time.Second, time.Minute)
		e.claim(1, 1)
		e.oldest(0, 0)
	})
}

// Rule: the time for which a queue or a workflow is paused is no wait for a worker. During the
// pause, executions of other queues and workflows are counted.
func TestAPauseOfAQueueIsNotCounted(t *testing.T) {
	for _, gate := range []belay.GateID{"queue:default", "workflow:w"} {
		measure(t, func(t *testing.T, e *waits) {
			submit(t, e.Engine)
			e.gate(belay.GateChange{Gate: gate, Action: belay.GatePause})
			e.later(10 * time.Minute)
			e.oldest(0, 0)
			must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{Workflow: "v", Queue: "q"}))
			e.later(time.Minute)
			e.oldest(time.Minute, time.Minute)
			e.gate(belay.GateChange{Gate: gate, Action: belay.GateResume})
			e.oldest(time.Minute, time.Minute)
			submit(t, e.Engine)
			e.later(6 * time.Minute)
			e.oldest(7*time.Minute, 7*time.Minute)
			e.gate(belay.GateChange{Gate: "queue:q", Action: belay.GatePause})
			e.oldest(6*time.Minute, 6*time.Minute)
			e.claim(2, 2)
			e.oldest(0, 0)
		})
	}
}

// Rule: if an operator has limited a queue, its executions do not wait for a worker while the limit
// is full, and not while executions start as fast as the limit allows. If the limit has room and no
// execution starts, they wait for a worker.
func TestALimitOfAQueueIsNotCounted(t *testing.T) {
	measure(t, func(t *testing.T, e *waits) {
		e.gate(belay.GateChange{Gate: "queue:default", Action: belay.GateSetLimit, Max: 2})
		all := make([]belay.Submission, 40) // all of these executions are due at the same time
		for i := range all {
			all[i].Workflow = "w"
		}
		must[[]belay.Submitted](t)(e.Submit(t.Context(), all...))
		run := e.claim(2, 2)
		e.later(10 * time.Minute)
		e.oldest(0, 0)
		for range 36 { // each measure finds the limit with room, because the run has ended
			e.end(run[0])
			time.Sleep(10 * time.Second)
			e.oldest(0, 10*time.Second)
			run = append(run[1:], e.claim(1, 1)...)
		}
		e.end(run...)
		e.oldest(0, 10*time.Second)
		e.later(6 * time.Minute)
		e.oldest(6*time.Minute, 6*time.Minute+10*time.Second)
		e.claim(2, 2)
		e.oldest(0, 0)
	})
}

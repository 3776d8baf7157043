package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

// choosy submits an execution that fails if no connected worker can take it.
func choosy(t *testing.T, e *engine.Engine, s belay.Submission) belay.ExecutionID {
	t.Helper()
	s.Workflow, s.Policy.OnNoWorker = "w", belay.FailNoWorker
	out := must[[]belay.Submitted](t)(e.Submit(t.Context(), s))
	if out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	time.Sleep(2 * time.Millisecond) // two sweeps are at least a millisecond apart
	synctest.Wait()
	return out[0].ID
}

func opened(t *testing.T, e *engine.Engine, s belay.WorkerSpec) belay.WorkerID {
	t.Helper()
	s.Name, s.Capacity = "w", 1
	if s.Workflows == nil {
		s.Workflows = noop
	}
	return must[belay.Session](t)(e.OpenWorker(t.Context(), s)).ID
}

// An execution with on_no_worker "fail" ends at once if no connected worker can take it: because no
// worker is connected, or because the connected workers have other workflows, queues or labels or
// are draining. If a busy worker could take the execution later, the execution waits. If the last
// worker that could take it ends or is lost, it fails at that moment. Executions without this
// policy wait.
func TestAnExecutionFailsIfNoConnectedWorkerCanTakeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		is := func(id belay.ExecutionID, want belay.State) {
			t.Helper()
			x := must[belay.Execution](t)(e.Execution(t.Context(), id))
			if x.State != want {
				t.Fatalf("it is %s, want %s", x.State, want)
			}
			if want == belay.Failed && (x.Error.Message != "no workers available" ||
				x.Error.FailedBy != belay.FailedByDispatcher) {
				t.Errorf("it failed with %+v", x.Error)
			}
		}
		synctest.Wait()
		began := time.Now()
		is(choosy(t, e, belay.Submission{}), belay.Failed)
		waits := submit(t, e)
		delayed := choosy(t, e, belay.Submission{DueAt: time.Now().Add(time.Hour)})
		is(delayed, belay.Pending)

		opened(t, e, belay.WorkerSpec{Workflows: []belay.Registration{{Workflow: "other"}}, TTL: belay.MaxTTL})
		opened(t, e, belay.WorkerSpec{Queues: []string{"other"}, TTL: belay.MaxTTL})
		gpu := belay.Submission{WorkerLabels: map[string]string{"gpu": "yes"}}
		is(choosy(t, e, belay.Submission{}), belay.Failed)

		able := opened(t, e, belay.WorkerSpec{})
		first := choosy(t, e, belay.Submission{})
		is(first, belay.Pending)
		is(choosy(t, e, gpu), belay.Failed)
		is(waits, belay.Pending)
		r := must[belay.ClaimReply](t)(e.Claim(t.Context(), belay.ClaimRequest{Worker: able, Number: 1, Slots: 2}))
		if len(r.Assignments) != 2 {
			t.Fatalf("claimed %d", len(r.Assignments))
		}
		second := choosy(t, e, belay.Submission{}) // the worker is busy
		is(second, belay.Pending)
		if took := time.Since(began); took > time.Second {
			t.Errorf("that took %s", took)
		}
		time.Sleep(15*time.Second + time.Second) // the worker sends no heartbeat, so its session expires
		synctest.Wait()
		is(first, belay.Failed)
		is(second, belay.Failed)
		is(waits, belay.Pending)

		drained := opened(t, e, belay.WorkerSpec{TTL: belay.MaxTTL})
		third := choosy(t, e, belay.Submission{})
		is(third, belay.Pending)
		if err := e.Drain(t.Context(), drained); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		is(third, belay.Failed)
		is(delayed, belay.Pending)
		time.Sleep(time.Hour)
		synctest.Wait()
		is(delayed, belay.Failed)
	})
}

// An engine that starts also watches the executions with on_no_worker "fail" that an earlier engine
// has accepted: it makes such an execution fail if no connected worker can take it.
func TestAnEngineThatStartsLooksForWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(time.Now)
		here := engine.New(m, engine.Options{})
		w := opened(t, here, belay.WorkerSpec{})
		id := choosy(t, here, belay.Submission{})
		if got := state(t, here, id); got != belay.Pending {
			t.Fatalf("it is %s", got)
		}
		if err := here.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		there := engine.New(m, engine.Options{})
		defer there.Close()
		if err := there.CloseWorker(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := state(t, there, id); got != belay.Failed {
			t.Errorf("it is %s", got)
		}
	})
}

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// The cases of this group have the names of the tests that the specification of the workflow engine
// lists for leases, retries and circuit breakers. They use the numbers of the specification's
// configuration: leases of two minutes with a heartbeat every two seconds; three attempts, and a
// backoff from one second up to 30 seconds; circuit breakers that open after 5 failures, for 30
// seconds, and close after 2 successes. The specification's chaos test "database connection
// failure" is TestAnOutageOfTheDatabaseCostsNoLease in internal/engine; it needs a database that
// can be stopped.
const (
	runnerLease     = 2 * time.Minute
	runnerHeartbeat = 2 * time.Second
)

func leased(o *worker.Options) { o.TTL, o.Heartbeat = runnerLease, runnerHeartbeat }

// runner opens a session of a worker that makes its calls itself, and never sends a heartbeat.
func (e *env) runner(name string, capacity int) belay.WorkerID {
	e.Helper()
	s, err := e.b.OpenWorker(e.ctx, belay.WorkerSpec{
		Name: name, Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: capacity,
		TTL: belay.Duration(runnerLease), Heartbeat: belay.Duration(runnerHeartbeat),
	})
	e.must(err)
	return s.ID
}

// acquire claims executions for a worker that the function runner has opened.
func (e *env) acquire(w belay.WorkerID, number int64, slots int) []belay.Assignment {
	e.Helper()
	r, err := e.b.Claim(e.ctx, belay.ClaimRequest{Worker: w, Number: number, Slots: slots, Wait: time.Second})
	e.must(err)
	return r.Assignments
}

// effects counts, for each idempotency key, how often a service was called.
type effects struct {
	mu    sync.Mutex
	calls map[string]int
}

func (f *effects) call(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = make(map[string]int)
	}
	f.calls[workflow.IdempotencyKey(ctx)]++
}

var services = []testCase{
	{"RunServiceTest: requests with the same idempotency key are one run", func(e *env) {
		var runs atomic.Int64
		count := func(_ context.Context, in int) (int64, error) { return runs.Add(int64(in)), nil }
		e.hire(register("w", count), leased)
		ids := make([]belay.ExecutionID, 20)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() { ids[i] = e.start(1, belay.IdempotencyKey("invoice 7")) })
		}
		all.Wait()
		want(e, ids[0], int64(1))
		again := e.start(1, belay.IdempotencyKey("invoice 7")) // the same key, after the first execution has ended
		for _, id := range ids {
			if id != ids[0] || again != ids[0] {
				e.Errorf("a second execution: %s and %s beside %s", id, again, ids[0])
			}
		}
		if n := runs.Load(); n != 1 || e.count(ids[0], "started") != 1 {
			e.Errorf("%d runs\n%s", n, e.history(ids[0]))
		}
		_, err := workflow.Start[int](e.ctx, e.b, "w", 2, belay.IdempotencyKey("invoice 7"))
		e.refused("another input", err, belay.CodeIdempotencyMismatch, "")
	}},

	{"RunServiceTest: one runner acquires the lease of a run, and only that runner writes", func(e *env) {
		id := e.start(nil)
		var leases []belay.Lease
		var mu sync.Mutex
		var all sync.WaitGroup
		for n := range 10 {
			all.Go(func() {
				for _, a := range e.acquire(e.runner(fmt.Sprintf("runner-%d", n), 1), 1, 1) {
					mu.Lock()
					leases = append(leases, a.Lease)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if len(leases) != 1 || leases[0].Execution != id {
			e.Fatalf("leases of one run: %+v", leases)
		}
		e.act(id, belay.ActionSteal)
		next := e.acquire(e.runner("next", 1), 1, 1)
		if len(next) != 1 || next[0].Lease.Token <= leases[0].Token {
			e.Fatalf("after the steal: %+v", next)
		}
		for what, err := range e.everything(leases[0]) {
			e.refused(what, err, belay.CodeLeaseLost, belay.CauseReassigned)
		}
		for what, err := range e.everything(next[0].Lease) {
			if err != nil {
				e.Errorf("%s of the holder: %v", what, err)
			}
		}
		e.wantState(id, belay.Succeeded)
	}},

	{"RunServiceTest: a heartbeat renews the lease", func(e *env) {
		id, w := e.start(nil), e.runner("runner", 1)
		l := e.acquire(w, 1, 1)[0].Lease
		for range 5 {
			e.sleep(runnerLease - time.Second)
			_, err := e.b.Heartbeat(e.ctx, belay.Heartbeat{
				Worker: w, ClaimSeen: 1, Holds: []belay.Held{{Execution: id, Token: l.Token}},
			})
			e.must(err)
		}
		e.wantState(id, belay.Running)
		e.must(e.b.Settle(e.ctx, belay.Settlement{Lease: l, Op: e.op(), Outcome: belay.OutcomeSucceeded}))
		if e.count(id, "started") != 1 || e.count(id, "lost") != 0 {
			e.Error(e.history(id))
		}
	}},

	{"RunServiceTest: retries wait for the exponential backoff", func(e *env) {
		var at []time.Time
		e.hire(register("w", func(context.Context, any) (int, error) {
			at = append(at, time.Now())
			return 0, errors.New("connection refused")
		}), leased)
		waits := func(id belay.ExecutionID, seconds ...int) {
			e.Helper()
			ended := wantEnd(e, id, belay.Failed, "connection refused")
			if ended.Failure == nil || ended.Failure.Class != belay.ClassTransient || len(at) != len(seconds)+1 {
				e.Fatalf("%d runs, and it ended with %+v", len(at), ended.Failure)
			}
			for i, s := range seconds { // each wait has its backoff, plus at most a quarter as jitter
				least := time.Duration(s) * time.Second
				e.within(fmt.Sprintf("wait %d", i+1), at[i+1].Sub(at[i]), least, least+least/4+100*time.Millisecond)
			}
			at = nil
		}
		waits(e.start(nil), 1, 2)
		out, err := e.b.Submit(e.ctx, belay.Submission{Workflow: "w", Policy: belay.Policy{MaxAttempts: 8}})
		e.must(err)
		waits(out[0].ID, 1, 2, 4, 8, 16, 30, 30)
	}},

	{"RunServiceTest: a permanent error is not retried", func(e *env) {
		var runs atomic.Int64
		e.hire(register("w", func(context.Context, any) (int, error) {
			runs.Add(1)
			return 0, belay.Permanent(errors.New("no such customer"))
		}), leased)
		if ended := wantEnd(e, e.start(nil), belay.Failed, "no such customer"); runs.Load() != 1 ||
			ended.Failure.Class != belay.ClassPermanent {
			e.Errorf("%d runs, %+v", runs.Load(), ended.Failure)
		}
	}},

	{"LeaseRecoveryTest: another runner continues the run of a crashed runner", func(e *env) {
		first := e.hire(register("w", threeSteps), leased)
		id := e.start(nil)
		e.sleep(90 * time.Second)
		first.crash()
		crashed := time.Now()
		e.hire(register("w", threeSteps), leased)
		for e.count(id, "lost") == 0 {
			if e.sleep(time.Second); time.Since(crashed) > 2*runnerLease {
				e.Fatalf("the loss was not noticed\n%s", e.history(id))
			}
		}
		e.within("reclaim of the lease", time.Since(crashed), runnerLease-2*runnerHeartbeat, runnerLease+2*time.Second)
		want(e, id, "done")
		e.wantKinds(id, "submitted", "started", "step:step 0", "lost", "started", "step:step 1", "step:step 2",
			"succeeded")
		if x := e.get(id); x.Attempt != 1 {
			e.Errorf("the loss was charged as an attempt: %+v", x)
		}
	}},

	{"zombie reaper test: runs whose leases have expired are requeued", func(e *env) {
		const many = 20
		ids := make(map[belay.ExecutionID]belay.Lease)
		for range many {
			e.start(nil)
		}
		w := e.runner("zombie", many)
		for number := int64(1); len(ids) < many; number++ {
			for _, a := range e.acquire(w, number, many-len(ids)) {
				ids[a.Lease.Execution] = a.Lease
			}
		}
		e.sleep(runnerLease - 2*time.Second)
		for id := range ids {
			e.wantState(id, belay.Running)
		}
		e.sleep(4 * time.Second)
		for id, l := range ids {
			if x := e.wantState(id, belay.Pending); x.Reason == nil || x.Reason.Code != "lost" || x.Attempt != 1 {
				e.Errorf("requeued as %+v because of %+v", x, x.Reason)
			}
			_, err := e.b.Save(e.ctx, belay.Save{Lease: l, Op: e.op(), Kind: belay.KindState, Key: "late"})
			e.refused("a late write", err, belay.CodeLeaseLost, belay.CauseExpired)
		}
		_, err := e.b.Heartbeat(e.ctx, belay.Heartbeat{Worker: w})
		e.refused("a late heartbeat", err, belay.CodeLeaseLost, belay.CauseExpired)
		e.hire(register("w", func(context.Context, any) (string, error) { return "done", nil }), leased)
		for id := range ids {
			want(e, id, "done")
		}
	}},

	{"kill runner test: a step that was saved has no second side effect, and another repeats its key", func(e *env) {
		var service effects
		charges := register("w", func(ctx context.Context, _ any) (string, error) {
			for _, name := range []string{"reserve", "charge", "mail"} {
				_, err := workflow.Step(ctx, name, func(ctx context.Context) (int, error) {
					service.call(ctx)
					return 0, busy(ctx, time.Minute)
				})
				if err != nil {
					return "", err
				}
			}
			return "done", nil
		})
		first := e.hire(charges, leased)
		id := e.start(nil)
		e.sleep(90 * time.Second) // the second step has called the service and has not ended
		first.crash()
		e.hire(charges, leased)
		want(e, id, "done")
		service.mu.Lock()
		defer service.mu.Unlock()
		if len(service.calls) != 3 {
			e.Errorf("a service that knows keys sees more than three requests: %v", service.calls)
		}
		calls := make(map[int]int)
		for _, n := range service.calls {
			calls[n]++
		}
		if calls[1] != 2 || calls[2] != 1 {
			e.Errorf("want two steps called once, and the interrupted step twice: %v", service.calls)
		}
	}},

	{"CircuitBreakerState: closed, open, half-open and closed again", func(e *env) {
		const gate = belay.GateID("target:payments:charge")
		var down atomic.Bool
		var calls atomic.Int64
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			if err := busy(ctx, 5*time.Second); err != nil {
				return "", err
			}
			if calls.Add(1); down.Load() {
				return "", errors.New("connection refused")
			}
			return "done", nil
		}), leased, func(o *worker.Options) { o.Concurrency = 1 })
		state := func() belay.Breaker {
			e.Helper()
			g, err := e.b.Gate(e.ctx, gate)
			e.must(err)
			if g.Breaker == nil {
				return belay.Breaker{State: "closed"}
			}
			return *g.Breaker
		}
		until := func(what string, ok func(belay.Breaker) bool) belay.Breaker {
			e.Helper()
			for range 300 {
				if b := state(); ok(b) {
					return b
				}
				e.sleep(time.Second)
			}
			e.Fatalf("the circuit breaker is never %s: %+v", what, state())
			return belay.Breaker{}
		}
		calling := belay.Gates{Target: "payments:charge"}
		down.Store(true)
		for i := range 5 {
			if b := state(); b.State != "closed" || b.FailureCount != i {
				e.Errorf("after %d failures it is %+v", i, b)
			}
			once := belay.Policy{MaxAttempts: 1}
			out, err := e.b.Submit(e.ctx, belay.Submission{Workflow: "w", Gates: calling, Policy: once})
			e.must(err)
			wantEnd(e, out[0].ID, belay.Failed, "connection refused")
			e.settle()
		}
		b := state()
		if b.State != "open" || b.FailureCount != 5 || b.OpenedAt.IsZero() || b.WindowStart.IsZero() ||
			!b.LastFailedAt.Equal(b.OpenedAt) || b.NextRetryAt.Sub(b.OpenedAt) != 30*time.Second {
			e.Errorf("after 5 failures it is %+v", b)
		}
		waiting := []belay.ExecutionID{e.gated(calling), e.gated(calling), e.gated(calling)}
		e.sleep(25 * time.Second)
		for _, id := range waiting {
			if x := e.wantState(id, belay.Pending); x.Token != 0 || x.Attempt != 1 || calls.Load() != 5 {
				e.Errorf("while the circuit breaker was open, %d calls were made, and it is %+v", calls.Load(), x)
			}
		}
		until("half-open", func(b belay.Breaker) bool { return b.State == "half_open" })
		again := until("open again after a failed probe", func(b belay.Breaker) bool { return b.State == "open" })
		if !again.OpenedAt.After(b.OpenedAt) || again.NextRetryAt.Sub(again.OpenedAt) != time.Minute {
			e.Errorf("opened again as %+v", again)
		}
		down.Store(false)
		one := until("half-open with one success", func(b belay.Breaker) bool { return b.SuccessCount == 1 })
		if one.State != "half_open" {
			e.Errorf("after one success it is %+v", one)
		}
		if b := until("closed", func(b belay.Breaker) bool { return b.State == "closed" }); b.FailureCount != 0 ||
			!b.OpenedAt.IsZero() || !b.NextRetryAt.IsZero() || b.LastFailedAt.IsZero() {
			e.Errorf("closed again as %+v", b)
		}
		for _, id := range waiting {
			want(e, id, "done")
		}
	}},

	{"CircuitBreakerState: an error of the class circuit_open uses up no attempt", func(e *env) {
		var runs atomic.Int64
		id := e.start(nil)
		w := e.runner("runner", 1)
		for number := int64(1); number <= 5; number++ {
			won := e.acquire(w, number, 1)
			for len(won) == 0 {
				number++
				won = e.acquire(w, number, 1)
			}
			runs.Add(1)
			e.must(e.b.Settle(e.ctx, belay.Settlement{
				Lease: won[0].Lease, Op: e.op(), Outcome: belay.OutcomeFailed,
				Failure: &belay.Failure{Class: belay.ClassCircuitOpen, Message: "payments is down"},
			}))
			if x := e.wantState(id, belay.Pending); x.Attempt != 1 {
				e.Fatalf("run %d was charged: %+v", runs.Load(), x)
			}
		}
	}},

	{"CircuitBreakerState: the state that an operator sets stays", func(e *env) {
		var calls atomic.Int64
		e.hire(register("w", func(context.Context, any) (string, error) {
			calls.Add(1)
			return "", errors.New("connection refused")
		}), leased)
		e.changed("target:t", belay.GateForceClosed)
		out, err := e.b.Submit(e.ctx, belay.Submission{
			Workflow: "w", Gates: belay.Gates{Target: "t"}, Policy: belay.Policy{MaxAttempts: 8},
		})
		e.must(err)
		wantEnd(e, out[0].ID, belay.Failed, "connection refused")
		g, err := e.b.Gate(e.ctx, "target:t")
		e.must(err)
		if !g.Open || g.Breaker == nil || g.Breaker.State != "closed" || !g.Breaker.Forced || calls.Load() != 8 {
			e.Errorf("after %d failures the forced circuit breaker is %+v", calls.Load(), g.Breaker)
		}
		e.changed("target:t", belay.GateForceOpen)
		id := e.gated(belay.Gates{Target: "t"})
		e.sleep(10 * time.Minute)
		if x := e.wantState(id, belay.Pending); x.Token != 0 || calls.Load() != 8 {
			e.Errorf("an open circuit breaker let %+v through", x)
		}
	}},
}

// busy works for a while, unless its run ends.
func busy(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

package engine_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
)

var noop = []belay.Registration{{Workflow: "w"}}

// worker opens a session and claims one execution that it submits.
func worker(t *testing.T, e *engine.Engine, ttl time.Duration) (belay.Session, belay.Assignment) {
	t.Helper()
	s := must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{
		Name: "w", Workflows: noop, Capacity: 1, TTL: belay.Duration(ttl),
	}))
	submit(t, e)
	r := must[belay.ClaimReply](t)(e.Claim(t.Context(), belay.ClaimRequest{
		Worker: s.ID, Number: 1, Slots: 1, Wait: time.Minute,
	}))
	if len(r.Assignments) != 1 {
		t.Fatalf("claimed %d executions", len(r.Assignments))
	}
	return s, r.Assignments[0]
}

func submit(t *testing.T, e *engine.Engine) belay.ExecutionID {
	t.Helper()
	out := must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{Workflow: "w"}))
	if out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	return out[0].ID
}

func state(t *testing.T, e *engine.Engine, id belay.ExecutionID) belay.State {
	t.Helper()
	return must[belay.Execution](t)(e.Execution(t.Context(), id)).State
}

// Guarantee G6 (losses are detected in time): the session of a worker without heartbeats ends in
// [TTL, TTL + 1 s], never earlier.
func TestASessionWithoutHeartbeatsEndsAtItsTTL(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 15 * time.Second, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			e := engine.New(memory.New(time.Now), engine.Options{})
			defer e.Close()
			_, a := worker(t, e, ttl)
			start := time.Now()
			id := a.Lease.Execution
			time.Sleep(ttl - time.Millisecond)
			synctest.Wait()
			if got := state(t, e, id); got != belay.Running {
				t.Fatalf("TTL %s: it is %s a millisecond before its time", ttl, got)
			}
			events := must[[]belay.Event](t)(e.Events(t.Context(), belay.EventQuery{
				Execution: id, After: 2, Wait: time.Minute,
			}))
			if len(events) != 1 || events[0].Kind != "lost" {
				t.Fatalf("TTL %s: events %+v", ttl, events)
			}
			if late := time.Since(start) - ttl; late > time.Second {
				t.Errorf("TTL %s: noticed %s too late", ttl, late)
			}
		})
	}
}

// Heartbeats keep a session alive as long as they arrive in time; each writes one row. A heartbeat
// that arrives too late is refused.
func TestHeartbeatsKeepASessionAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		s, a := worker(t, e, 3*time.Second)
		hb := belay.Heartbeat{
			Worker: s.ID, ClaimSeen: 1, Holds: []belay.Held{{Execution: a.Lease.Execution, Token: a.Lease.Token}},
		}
		for range 20 {
			time.Sleep(2 * time.Second)
			if r := must[belay.HeartbeatReply](t)(e.Heartbeat(t.Context(), hb)); len(r.Revoked) > 0 {
				t.Fatalf("revoked %+v", r.Revoked)
			}
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if _, err := e.Heartbeat(t.Context(), hb); belay.CodeOf(err) != belay.CodeLeaseLost {
			t.Errorf("a late heartbeat got %v", err)
		}
	})
}

// If the reply to a claim is lost, the execution waits only until the worker's next heartbeat, and
// not until the TTL is over: the heartbeat does not name the execution, so the engine releases it
// at once.
func TestALostClaimReplyCostsAHeartbeatNotTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		s, a := worker(t, e, 15*time.Second)
		if _, err := e.Heartbeat(t.Context(), belay.Heartbeat{Worker: s.ID, ClaimSeen: 1}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := state(t, e, a.Lease.Execution); got != belay.Pending {
			t.Fatalf("it is %s", got)
		}
		again := belay.ClaimRequest{Worker: s.ID, Number: 2, Slots: 1}
		r := must[belay.ClaimReply](t)(e.Claim(t.Context(), again))
		if r.Attention { // the first reply may only request a heartbeat, because an execution was taken from the worker
			r = must[belay.ClaimReply](t)(e.Claim(t.Context(), again))
		}
		if len(r.Assignments) != 1 || r.Assignments[0].Lease.Token <= a.Lease.Token {
			t.Errorf("claimed %+v", r.Assignments)
		}
	})
}

// A claim that is repeated with the same number gets the executions that its first try has won.
func TestARepeatedClaimGetsItsExecutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		s, a := worker(t, e, 15*time.Second)
		r := must[belay.ClaimReply](t)(e.Claim(t.Context(), belay.ClaimRequest{
			Worker: s.ID, Number: 1, Slots: 1, Repeat: true,
		}))
		if len(r.Assignments) != 1 || r.Assignments[0].Lease != a.Lease {
			t.Errorf("asked again: %+v, first: %+v", r.Assignments, a.Lease)
		}
	})
}

// A cancel reaches the owner at once, through its waiting claim and its next heartbeat. When the
// grace period is over, the execution ends by force (guarantee G7).
func TestACancelReachesTheOwnerAndEndsByForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		s, a := worker(t, e, time.Minute)
		id := a.Lease.Execution
		told := make(chan belay.ClaimReply, 1)
		go func() {
			r, err := e.Claim(t.Context(), belay.ClaimRequest{Worker: s.ID, Number: 2, Wait: time.Hour})
			if err != nil {
				t.Error(err)
			}
			told <- r
		}()
		synctest.Wait()
		start := time.Now()
		must[belay.Execution](t)(e.Control(t.Context(), belay.Control{Execution: id, Action: belay.ActionCancel}))
		if r := <-told; !r.Attention || time.Since(start) > 0 {
			t.Errorf("the claim returned %+v after %s", r, time.Since(start))
		}
		hb := must[belay.HeartbeatReply](t)(e.Heartbeat(t.Context(), belay.Heartbeat{
			Worker: s.ID, ClaimSeen: 1, Holds: []belay.Held{{Execution: id, Token: a.Lease.Token}},
		}))
		if len(hb.Cancel) != 1 || hb.Cancel[0].Within != 10*time.Second {
			t.Errorf("the heartbeat returned the cancels %+v", hb.Cancel)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if got := state(t, e, id); got != belay.Cancelled {
			t.Errorf("it is %s after its grace", got)
		}
	})
}

// After a stall of the only server no live worker loses its session, because all sessions are
// extended. A dead worker loses its session (guarantee G6).
func TestAfterAStallNoLiveSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(time.Now)
		e := engine.New(m, engine.Options{})
		s1, a1 := worker(t, e, 15*time.Second)
		_, a2 := worker(t, e, 15*time.Second)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // no engine runs, so no heartbeat can be accepted
		e = engine.New(m, engine.Options{})
		defer e.Close()
		start := time.Now()
		time.Sleep(14 * time.Second)
		synctest.Wait()
		if got := state(t, e, a1.Lease.Execution); got != belay.Running {
			t.Fatalf("%s after the restart it is %s", time.Since(start), got)
		}
		hb := belay.Heartbeat{
			Worker: s1.ID, ClaimSeen: 1, Holds: []belay.Held{{Execution: a1.Lease.Execution, Token: a1.Lease.Token}},
		}
		if r := must[belay.HeartbeatReply](t)(e.Heartbeat(t.Context(), hb)); len(r.Revoked) != 0 {
			t.Errorf("revoked %+v", r.Revoked)
		}
		time.Sleep(14 * time.Second)
		synctest.Wait()
		if got := state(t, e, a1.Lease.Execution); got != belay.Running {
			t.Errorf("the live one is %s", got)
		}
		if got := state(t, e, a2.Lease.Execution); got == belay.Running {
			t.Error("the silent one still runs")
		}
	})
}

// If a worker's process is dead, and the engine can prove this on the worker's host, the engine first
// ends the child processes that the worker has left behind, and then at once the worker's session.
func TestAProvenDeathEndsASessionAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(time.Now)
		e := engine.New(m, engine.Options{})
		s := must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "w", Workflows: noop, Capacity: 1, TTL: belay.Duration(time.Hour), Process: belay.Process{PID: 7,
				Start: 1},
		}))
		id := submit(t, e)
		must[belay.ClaimReply](t)(e.Claim(t.Context(), belay.ClaimRequest{Worker: s.ID, Number: 1, Slots: 1}))
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		var buried []belay.WorkerID
		e = engine.New(m, engine.Options{
			Dead: func(p belay.Process) (string, bool) { return "gone", p.PID == 7 },
			Bury: func(_ context.Context, _ belay.Client, w belay.Worker) error {
				buried = append(buried, w.ID)
				return nil
			},
			CleanUp: func(ctx context.Context) { <-ctx.Done() }, // no command waits for the end of CleanUp
		})
		defer e.Close()
		synctest.Wait()
		if len(buried) != 1 || buried[0] != s.ID {
			t.Errorf("buried %v", buried)
		}
		if got := state(t, e, id); got != belay.Pending {
			t.Errorf("it is %s", got)
		}
	})
}

// While the engine ends the child processes of a dead worker, which may take long, it still ends
// other sessions whose leases expire, and their executions continue.
func TestOtherSessionsEndWhileADeadWorkerIsBuried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, buried := memory.New(time.Now), make(chan struct{})
		e := engine.New(m, engine.Options{
			Dead: func(p belay.Process) (string, bool) { return "gone", p.PID == 7 },
			Bury: func(context.Context, belay.Client, belay.Worker) error {
				<-buried
				return nil
			},
		})
		defer e.Close()
		must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "dead", Workflows: noop, Capacity: 1, TTL: belay.Duration(time.Hour),
			Process: belay.Process{PID: 7, Start: 1},
		}))
		silent := must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "silent", Workflows: noop, Capacity: 1, TTL: belay.Duration(10 * time.Second),
		}))
		id := submit(t, e)
		must[belay.ClaimReply](t)(e.Claim(t.Context(), belay.ClaimRequest{Worker: silent.ID, Number: 1, Slots: 1}))
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if got := state(t, e, id); got != belay.Pending {
			t.Errorf("a second after the lease has expired, the execution is %s", got)
		}
		close(buried)
	})
}

// An engine that stops while it ends the child processes of a dead worker logs no warning, because
// the next engine ends these processes.
func TestAnEngineThatStopsLeavesTheBurialToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		began := make(chan struct{})
		e := engine.New(memory.New(time.Now), engine.Options{
			Log:  slog.New(slog.NewTextHandler(&logged, nil)),
			Dead: func(p belay.Process) (string, bool) { return "gone", p.PID == 7 },
			Bury: func(ctx context.Context, _ belay.Client, _ belay.Worker) error {
				close(began)
				<-ctx.Done()
				return context.Cause(ctx)
			},
		})
		must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "dead", Workflows: noop, Capacity: 1, TTL: belay.Duration(time.Hour),
			Process: belay.Process{PID: 7, Start: 1},
		}))
		<-began
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(logged.String(), "left behind") {
			t.Errorf("logged: %s", &logged)
		}
	})
}

// If the claim of a draining worker is refused, the next claim of another worker finds the
// execution at once, and not only after the slow poll.
func TestARefusedClaimDoesNotHideAnExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		s := must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "w", Workflows: noop, Capacity: 1,
		}))
		submit(t, e)
		if err := e.Drain(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
		for n := range int64(2) { // the first reply only reports the drain
			if r := must[belay.ClaimReply](t)(e.Claim(t.Context(), belay.ClaimRequest{Worker: s.ID, Number: n + 1,
				Slots: 1})); len(r.Assignments) > 0 {
				t.Fatal("a draining worker won something")
			}
		}
		s = must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "other", Workflows: noop, Capacity: 1,
		}))
		start := time.Now()
		r := must[belay.ClaimReply](t)(e.Claim(t.Context(), belay.ClaimRequest{
			Worker: s.ID, Number: 1, Slots: 1, Wait: time.Minute,
		}))
		if len(r.Assignments) != 1 || time.Since(start) > 0 {
			t.Errorf("won %d after %s", len(r.Assignments), time.Since(start))
		}
	})
}

// If a worker was drained through another server, its claim at this server wins nothing and returns
// at once. The engine does not try the claim repeatedly.
func TestAClaimOfAWorkerDrainedAtAnotherServerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(time.Now)
		here, there := engine.New(m, engine.Options{}), engine.New(m, engine.Options{})
		defer here.Close()
		defer there.Close()
		s := must[belay.Session](t)(here.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "w", Workflows: noop, Capacity: 1,
		}))
		if err := there.Drain(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
		submit(t, here)
		start := time.Now()
		r := must[belay.ClaimReply](t)(here.Claim(t.Context(), belay.ClaimRequest{
			Worker: s.ID, Number: 1, Slots: 1, Wait: 9 * time.Second,
		}))
		if len(r.Assignments) != 0 || !r.Attention || time.Since(start) > 0 {
			t.Errorf("answered %+v after %s", r, time.Since(start))
		}
		r = must[belay.ClaimReply](t)(here.Claim(t.Context(), belay.ClaimRequest{
			Worker: s.ID, Number: 1, Slots: 1, Wait: 9 * time.Second,
		}))
		if len(r.Assignments) != 0 || r.Attention || time.Since(start) != 9*time.Second {
			t.Errorf("then answered %+v after %s", r, time.Since(start))
		}
	})
}

// A repeated claim gets the executions that its first try has won, even if the worker should send a
// heartbeat at once. If the reply only requested the heartbeat, the worker would conclude that the
// claim has won nothing.
func TestARepeatedClaimIsAnsweredBeforeNews(t *testing.T) {
	e, ctx := open(t), t.Context()
	s := must[belay.Session](t)(e.OpenWorker(ctx, belay.WorkerSpec{Name: "w", Workflows: noop, Capacity: 1}))
	id := submit(t, e)
	c := belay.ClaimRequest{Worker: s.ID, Number: 1, Slots: 1}
	must[belay.ClaimReply](t)(e.Claim(ctx, c))
	must[belay.Execution](t)(e.Control(ctx, belay.Control{Execution: id, Action: belay.ActionPause}))
	c.Repeat = true
	if r := must[belay.ClaimReply](t)(e.Claim(ctx, c)); len(r.Assignments) != 1 {
		t.Errorf("asked again, the claim was answered %+v", r)
	}
	if r := must[belay.ClaimReply](t)(e.Claim(ctx, belay.ClaimRequest{Worker: s.ID, Number: 2,
		Slots: 1})); !r.Attention {
		t.Errorf("the next was answered %+v", r)
	}
}

// slowDue is a store whose reads of due work take a while.
type slowDue struct {
	store.Store
	looked chan struct{} // gets a value from each read
	answer chan struct{} // each read waits for a value
}

func (s *slowDue) Due(ctx context.Context, limit int) (store.Due, error) {
	due, err := s.Store.Due(ctx, limit)
	s.looked <- struct{}{}
	<-s.answer
	return due, err
}

// Guarantee G6 (losses are detected in time): a session that is opened while the sweeper reads the
// store ends within a second after its TTL is over, like any other session.
func TestASessionOpenedDuringASweepEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowDue{Store: memory.New(time.Now), looked: make(chan struct{}, 100), answer: make(chan struct{})}
		e := engine.New(s, engine.Options{})
		<-s.looked
		w := must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "w", Workflows: noop, Capacity: 1, TTL: belay.Duration(time.Second),
		}))
		close(s.answer)
		time.Sleep(2 * time.Second)
		for _, x := range must[[]belay.Worker](t)(e.Workers(t.Context())) {
			if x.ID != w.ID || x.State != belay.WorkerLost {
				t.Errorf("2 s after it was opened with a TTL of 1 s it is %s", x.State)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A caller that waits for the end of an execution gets the complete execution if another server has
// ended it, even if the first change that this server notices is a fork of the execution.
func TestAwaitGetsAnEndWrittenByAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(time.Now)
		here, there := engine.New(m, engine.Options{}), engine.New(m, engine.Options{SlowPoll: time.Second})
		defer here.Close()
		defer there.Close()
		id := submit(t, here)
		shown := make(chan belay.Execution, 1)
		go func() {
			x, err := here.Await(t.Context(), id, time.Minute)
			if err != nil {
				t.Error(err)
			}
			shown <- x
		}()
		s := must[belay.Session](t)(there.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "w", Workflows: noop, Capacity: 1,
		}))
		r := must[belay.ClaimReply](t)(there.Claim(t.Context(), belay.ClaimRequest{
			Worker: s.ID, Number: 1, Slots: 1, Wait: time.Minute,
		}))
		if err := there.Settle(t.Context(), belay.Settlement{
			Lease: r.Assignments[0].Lease, Op: belay.OpID{1}, Outcome: belay.OutcomeSucceeded, Output: []byte(`"done"`),
		}); err != nil {
			t.Fatal(err)
		}
		must[belay.Execution](t)(here.Control(t.Context(), belay.Control{Execution: id, Action: belay.ActionFork}))
		if x := <-shown; string(x.Output) != `"done"` {
			t.Errorf("shown %+v", x)
		}
	})
}

// A session that this engine does not know is found in the store, however many other sessions are
// open, so that after a restart the engine refuses no worker whose session is open.
func TestASessionIsFoundAmongManyOthers(t *testing.T) {
	s := memory.New(time.Now)
	first := engine.New(s, engine.Options{})
	w := must[belay.Session](t)(first.OpenWorker(t.Context(), belay.WorkerSpec{
		Name: "first", Workflows: noop, Capacity: 1, TTL: belay.Duration(time.Hour),
	}))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	others := make([]*machine.Worker, 10_001)
	for i := range others {
		id := w.ID
		binary.BigEndian.PutUint32(id[8:], binary.BigEndian.Uint32(id[8:])+uint32(i)+1)
		others[i] = &machine.Worker{
			ID: id, Spec: belay.WorkerSpec{
				ID: id, Name: "other", TTL: belay.Duration(time.Hour),
			}, State: belay.WorkerOpen,
			ExpiresAt: machine.At(time.Now().Add(time.Hour)), New: true,
		}
	}
	err := s.Commit(t.Context(), machine.Need{}, func(*machine.Rows) *machine.Changes {
		return &machine.Changes{Workers: others}
	})
	if err != nil {
		t.Fatal(err)
	}
	next := engine.New(s, engine.Options{})
	defer next.Close()
	if _, err := next.Claim(t.Context(), belay.ClaimRequest{Worker: w.ID, Number: 1, Slots: 1}); err != nil {
		t.Errorf("a claim of a living session after a restart: %v", err)
	}
	if _, err := next.Claim(t.Context(), belay.ClaimRequest{Worker: belay.WorkerID{1}, Number: 1,
		Slots: 1}); belay.CodeOf(err) != belay.CodeLeaseLost {
		t.Errorf("a claim of no session: %v", err)
	}
}

// If the clock was set forwards, a batch that makes work due wakes the sweeper at once. The sweeper
// does not sleep until the time that it planned before the clock was set.
func TestTheSweeperIsWokenAfterTheClockWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		m := memory.New(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
		e := engine.New(m, engine.Options{})
		defer e.Close()
		s, a := worker(t, e, time.Hour)
		synctest.Wait()
		ahead.Store(int64(time.Minute))
		if err := e.CloseWorker(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := state(t, e, a.Lease.Execution); got != belay.Pending {
			t.Errorf("a second after its worker was closed it is %s", got)
		}
	})
}

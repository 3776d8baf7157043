package engine_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

func external(t *testing.T, e *engine.Engine, p belay.Policy) belay.ExecutionID {
	t.Helper()
	out := must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{
		Workflow: "w", External: true, Input: json.RawMessage(`{"n":1}`), Policy: p,
	}))
	if out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	return out[0].ID
}

func refusal(t *testing.T, err error, code belay.Code, cause belay.Cause) *belay.Error {
	t.Helper()
	var e *belay.Error
	if !errors.As(err, &e) || e.Code != code || e.Cause != cause {
		t.Fatalf("refused with %v, want %s %s", err, code, cause)
	}
	return e
}

// A single call gives an external owner the lease, the execution with its input, and the last
// checkpoint. A second caller is refused with the name of the owner and the time until the lock
// expires. After a suspension the next owner can continue from the checkpoint at once.
func TestALockGivesTheExecutionAndItsCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		ctx := t.Context()
		id := external(t, e, belay.Policy{})
		a := must[belay.Lock](t)(e.Lock(ctx, belay.LockRequest{Execution: id, Owner: "ann"}))
		if a.ExpiresIn != 30*time.Second || a.Heartbeat != 10*time.Second || string(a.Execution.Input) != `{"n":1}` ||
			a.Execution.State != belay.Running {
			t.Fatalf("lock %+v", a)
		}
		again := must[belay.Lock](t)(e.Lock(ctx, belay.LockRequest{ID: a.Lease.Worker, Execution: id, Owner: "ann"}))
		if !again.Replayed || again.Lease != a.Lease {
			t.Errorf("asked again: %+v, want the lease %+v", again, a.Lease)
		}
		_, err := e.Lock(ctx, belay.LockRequest{Execution: id, Owner: "bob"})
		held := refusal(t, err, belay.CodeLeaseHeld, "")
		if h := held.Holder; h == nil || h.Owner != "ann" || h.Token != a.Lease.Token ||
			h.ExpiresIn != 30*time.Second || held.RetryAfter != h.ExpiresIn {
			t.Errorf("the refusal of a locked execution is %+v", held)
		}
		must[int64](t)(e.Save(ctx, belay.Save{
			Lease: a.Lease, Kind: belay.KindState, Key: "state", Data: json.RawMessage(`"so far"`),
		}))
		if err := e.Settle(ctx, belay.Settlement{Lease: a.Lease, Outcome: belay.OutcomeSuspended}); err != nil {
			t.Fatal(err)
		}
		b := must[belay.Lock](t)(e.Lock(ctx, belay.LockRequest{Execution: id, Owner: "bob"}))
		if b.Lease.Token <= a.Lease.Token || len(b.Checkpoints) != 1 || string(b.Checkpoints[0].Data) != `"so far"` {
			t.Errorf("the next lock %+v", b)
		}
		_, err = e.Renew(ctx, a.Lease)
		refusal(t, err, belay.CodeLeaseLost, belay.CauseReassigned)
		runs := must[[]belay.RunRecord](t)(e.Runs(ctx, id))
		if len(runs) != 2 || runs[0].Token != b.Lease.Token || runs[1].Outcome != belay.OutcomeSuspended {
			t.Errorf("runs %+v", runs)
		}
	})
}

// Guarantee G6 (losses are detected in time): the lock of an external owner without heartbeats ends
// in [TTL, TTL + 1 s]. The execution fails and names the lost owner, unless its policy is to
// requeue it. A watcher sees the end at once, and the owner's writes are refused.
func TestALockWithoutHeartbeatsEnds(t *testing.T) {
	for _, p := range []belay.Policy{{}, {OnLost: belay.Requeue}} {
		synctest.Test(t, func(t *testing.T) {
			e := engine.New(memory.New(time.Now), engine.Options{})
			defer e.Close()
			ctx := t.Context()
			l := must[belay.Lock](t)(e.Lock(ctx, belay.LockRequest{
				Execution: external(t, e, p), Owner: "ann", TTL: belay.Duration(10 * time.Second),
			}))
			for range 3 {
				time.Sleep(9 * time.Second)
				byItsSecret := l.Lease
				byItsSecret.Token = 0
				must[belay.HeartbeatReply](t)(e.Renew(ctx, byItsSecret))
			}
			start := time.Now()
			must[[]belay.Event](t)(e.Events(ctx, belay.EventQuery{
				Execution: l.Lease.Execution, After: l.Execution.Seq, Wait: time.Minute,
			}))
			if took := time.Since(start); took < 10*time.Second || took > 11*time.Second {
				t.Errorf("given up after %s", took)
			}
			x := must[belay.Execution](t)(e.Execution(ctx, l.Lease.Execution))
			_, err := e.Save(ctx, belay.Save{Lease: l.Lease, Kind: belay.KindState, Key: "late"})
			if p.OnLost == belay.Requeue {
				refusal(t, err, belay.CodeLeaseLost, belay.CauseExpired)
				if x.State != belay.Pending || !x.External {
					t.Errorf("the execution is %+v", x)
				}
				next := must[belay.Lock](t)(e.Lock(ctx, belay.LockRequest{Execution: x.ID, Owner: "bob"}))
				_, err = e.Renew(ctx, l.Lease)
				refusal(t, err, belay.CodeLeaseLost, belay.CauseReassigned)
				must[belay.HeartbeatReply](t)(e.Renew(ctx, next.Lease))
				return
			}
			refusal(t, err, belay.CodeLeaseLost, belay.CauseFinished)
			if x.State != belay.Failed || x.Error == nil || x.Error.Class != belay.ClassLost ||
				!strings.Contains(x.Error.Message, "ann") {
				t.Errorf("the execution is %+v, error %+v", x, x.Error)
			}
			_, err = e.Lock(ctx, belay.LockRequest{Execution: x.ID, Owner: "bob"})
			refusal(t, err, belay.CodeConflict, "")
			next := must[belay.Lock](t)(e.Lock(ctx, belay.LockRequest{Execution: x.ID, Owner: "bob", Reopen: true}))
			if next.Execution.Generation != 2 || next.Lease.Token <= l.Lease.Token {
				t.Errorf("reopened as %+v", next)
			}
		})
	}
}

// For an external execution, Explain says for which owner the execution waits, when it may be
// locked, and the consequence if its owner is lost.
func TestExplainKnowsOwnersFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New(time.Now), engine.Options{})
		defer e.Close()
		ctx := t.Context()
		id := external(t, e, belay.Policy{BackoffBase: belay.Duration(8 * time.Second)})
		says := func(words ...string) {
			t.Helper()
			x := must[belay.Explanation](t)(e.Explain(ctx, id))
			text := x.Summary + " " + strings.Join(x.Facts, "; ")
			for _, w := range words {
				if !strings.Contains(text, w) {
					t.Errorf("%q does not say %q", text, w)
				}
			}
		}
		says("an owner from outside", "may be locked now")
		l := must[belay.Lock](t)(e.Lock(ctx, belay.LockRequest{Execution: id, Owner: "ann"}))
		time.Sleep(time.Second)
		says("ann", "declared lost in 29s, and the execution fails")
		fails := belay.Settlement{Lease: l.Lease, Outcome: belay.OutcomeFailed, Failure: &belay.Failure{
			Class: belay.ClassTransient, Message: "no net",
		}}
		if err := e.Settle(ctx, fails); err != nil {
			t.Fatal(err)
		}
		says("an owner from outside", "no net", "may be locked in")
	})
}

// Stealing a lock ends its session, and the next owner may lock at once.
func TestAStolenLockIsGone(t *testing.T) {
	e, ctx := open(t), t.Context()
	l := must[belay.Lock](t)(e.Lock(ctx, belay.LockRequest{Execution: external(t, e, belay.Policy{}), Owner: "ann"}))
	must[belay.Execution](t)(e.Control(ctx, belay.Control{
		Execution: l.Lease.Execution, Action: belay.ActionSteal, Actor: "op", Reason: "stuck",
	}))
	_, err := e.Renew(ctx, l.Lease)
	refusal(t, err, belay.CodeLeaseLost, belay.CauseExpired)
	must[belay.Lock](t)(e.Lock(ctx, belay.LockRequest{Execution: l.Lease.Execution, Owner: "bob"}))
	for _, w := range must[[]belay.Worker](t)(e.Workers(ctx)) {
		if w.Name == "ann" && (!w.State.Ended() || w.Running != 0) {
			t.Errorf("the session of the lock that was stolen: %+v", w)
		}
	}
	_, err = e.Lock(ctx, belay.LockRequest{ID: l.Lease.Worker, Execution: l.Lease.Execution, Owner: "ann"})
	refusal(t, err, belay.CodeLeaseLost, belay.CauseExpired)
}

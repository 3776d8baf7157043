package sdktest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

const lockTTL = 10 * time.Second

// external submits an external execution, which workers do not claim.
func (e *env) external(p belay.Policy) belay.ExecutionID {
	e.Helper()
	out, err := e.b.Submit(e.ctx, belay.Submission{
		Workflow: "w", External: true, Input: json.RawMessage(`{"task":"<b>"}`), Policy: p,
	})
	if err != nil || out[0].Err != nil {
		e.Fatal(err, out)
	}
	return out[0].ID
}

func (e *env) lock(id belay.ExecutionID, owner string, change ...func(*belay.LockRequest)) belay.Lock {
	e.Helper()
	r := belay.LockRequest{Execution: id, Owner: owner, TTL: belay.Duration(lockTTL)}
	for _, f := range change {
		f(&r)
	}
	l, err := e.b.Lock(e.ctx, r)
	if err != nil {
		e.Fatalf("lock for %s: %v\n%s", owner, err, e.history(id))
	}
	return l
}

// op returns a new operation id.
func (e *env) op() belay.OpID {
	e.ops++
	return belay.OpID{0xed, byte(e.ops), byte(e.ops >> 8)}
}

// refused checks the code and the cause of a refusal.
func (e *env) refused(what string, err error, code belay.Code, cause belay.Cause) *belay.Error {
	e.Helper()
	var r *belay.Error
	if !errors.As(err, &r) || r.Code != code || r.Cause != cause {
		e.Fatalf("%s: %v, want %s %s", what, err, code, cause)
	}
	return r
}

// everything makes one write of each kind that a lease allows, and returns the error of each write.
func (e *env) everything(l belay.Lease) map[string]error {
	_, renewed := e.b.Renew(e.ctx, l)
	_, saved := e.b.Save(e.ctx, belay.Save{
		Lease: l, Op: e.op(), Kind: belay.KindState, Key: "state", Data: json.RawMessage(`"late"`),
	})
	return map[string]error{
		"renew": renewed, "save": saved,
		"append": e.b.Append(e.ctx, belay.Chunk{Lease: l, Name: "late", Data: []byte("late")}),
		"settle": e.b.Settle(e.ctx, belay.Settlement{Lease: l, Op: e.op(), Outcome: belay.OutcomeSucceeded}),
	}
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

var owners = []testCase{
	{"the answer to a lock has the lease, the execution and the last checkpoint", func(e *env) {
		id := e.external(belay.Policy{})
		ann := e.lock(id, "ann")
		if ann.ExpiresIn != lockTTL || ann.Heartbeat <= 0 || ann.Heartbeat > lockTTL/3 || ann.Replayed ||
			len(ann.Checkpoints) > 0 {
			e.Errorf("lock %+v", ann)
		}
		if x := ann.Execution; x.ID != id || x.State != belay.Running || string(x.Input) != `{"task":"<b>"}` ||
			x.Token != ann.Lease.Token {
			e.Errorf("execution %+v", x)
		}
		again := e.lock(id, "ann", func(r *belay.LockRequest) { r.ID = ann.Lease.Worker })
		if !again.Replayed || again.Lease != ann.Lease {
			e.Errorf("locked again with the same id: %+v", again)
		}
		seq, err := e.b.Save(e.ctx, belay.Save{Lease: ann.Lease, Op: e.op(), Kind: belay.KindState, Key: "state",
			Data: json.RawMessage(`{"turn":3}`), CostTokens: belay.CostOf(12)})
		e.must(err)
		e.must(e.b.Append(e.ctx, belay.Chunk{Lease: ann.Lease, Name: "a log/of steps", Data: []byte("line\n")}))
		e.must(e.b.Settle(e.ctx, belay.Settlement{
			Lease: ann.Lease, Op: e.op(), Outcome: belay.OutcomeSuspended, WaitText: "a person",
		}))
		e.wantState(id, belay.Waiting)
		e.signal(id, "answer", "yes")
		bob := e.lock(id, "bob")
		if len(bob.Checkpoints) != 1 || bob.Checkpoints[0].Seq != seq ||
			string(bob.Checkpoints[0].Data) != `{"turn":3}` {
			e.Errorf("continues from %+v", bob.Checkpoints)
		}
		if bob.Lease.Token <= ann.Lease.Token || len(bob.Signals) != 1 || bob.Signals[0].Name != "answer" {
			e.Errorf("token %d after %d, signals %+v", bob.Lease.Token, ann.Lease.Token, bob.Signals)
		}
		e.must(e.b.Settle(e.ctx, belay.Settlement{
			Lease: bob.Lease, Op: e.op(), Outcome: belay.OutcomeSucceeded, Output: json.RawMessage(`"done"`),
		}))
		want(e, id, "done")
		chunks, err := e.b.Chunks(e.ctx, belay.ChunkQuery{Execution: id, Name: "a log/of steps"})
		if err != nil || len(chunks) != 1 || string(chunks[0].Data) != "line\n" {
			e.Errorf("log %+v, %v", chunks, err)
		}
		e.wantKinds(id, "submitted", "started", "state:state", "suspended", "signal:answer", "started", "succeeded")
	}},

	{"the error of a lock that another owner has names the owner and the remaining time", func(e *env) {
		id := e.external(belay.Policy{})
		ann := e.lock(id, "ann")
		e.sleep(4 * time.Second)
		_, err := e.b.Lock(e.ctx, belay.LockRequest{Execution: id, Owner: "bob"})
		held := e.refused("bob's lock", err, belay.CodeLeaseHeld, "")
		if h := held.Holder; h == nil || h.Owner != "ann" || h.Worker != ann.Lease.Worker ||
			h.Token != ann.Lease.Token || h.ExpiresIn != 6*time.Second {
			e.Errorf("the holder is %+v", h)
		}
		if held.RetryAfter <= 0 {
			e.Error("it does not say when to try again")
		}
	}},

	{"a lock is valid as long as heartbeats arrive, and declared lost within a second after its TTL", func(e *env) {
		id := e.external(belay.Policy{})
		ann := e.lock(id, "ann")
		for range 5 {
			e.sleep(lockTTL - time.Second)
			r, err := e.b.Renew(e.ctx, ann.Lease)
			if err != nil || r.ExpiresIn != lockTTL {
				e.Fatalf("renew: %+v, %v", r, err)
			}
		}
		silent := time.Now()
		events, err := e.b.Events(e.ctx, belay.EventQuery{Execution: id, After: 2, Wait: time.Hour})
		if err != nil || len(events) == 0 || events[0].Kind != "lost" {
			e.Fatalf("watched %+v, %v", events, err)
		}
		e.within("until a watcher knows", time.Since(silent), lockTTL, lockTTL+time.Second)
		x := e.wantState(id, belay.Failed)
		if x.Error == nil || x.Error.Class != belay.ClassLost || !strings.Contains(x.Error.Message, "ann") {
			e.Errorf("the error has no reason: %+v", x.Error)
		}
		for what, err := range e.everything(ann.Lease) {
			e.refused(what, err, belay.CodeLeaseLost, belay.CauseFinished)
		}
	}},

	{"an owner that only sends heartbeats loses its lock at the idle timeout, one that saves keeps it", func(e *env) {
		idle := belay.Policy{IdleTimeout: belay.Duration(time.Minute), MaxAttempts: 1}
		stuck, works := e.external(idle), e.external(idle)
		ann, bob := e.lock(stuck, "ann"), e.lock(works, "bob")
		lost := error(nil)
		for n := 0; lost == nil && n < 100; n++ {
			e.sleep(2 * time.Second)
			_, lost = e.b.Renew(e.ctx, ann.Lease)
			_, err := e.b.Renew(e.ctx, bob.Lease)
			e.must(err)
			if n%20 == 19 {
				_, err := e.b.Save(e.ctx, belay.Save{
					Lease: bob.Lease, Op: e.op(), Kind: belay.KindState, Key: "state", Data: json.RawMessage(`1`),
				})
				e.must(err)
			}
		}
		e.within("until the lock is lost", time.Since(e.began), time.Minute, time.Minute+15*time.Second)
		for what, err := range e.everything(ann.Lease) {
			e.refused(what, err, belay.CodeLeaseLost, belay.CauseFinished)
		}
		if x := e.wantState(stuck, belay.Failed); x.Error == nil || !strings.Contains(x.Error.Message, "idle timeout") {
			e.Errorf("the error is %+v", x.Error)
		}
		for range 30 {
			e.sleep(2 * time.Second)
			_, err := e.b.Renew(e.ctx, bob.Lease)
			e.must(err)
			_, err = e.b.Save(e.ctx, belay.Save{
				Lease: bob.Lease, Op: e.op(), Kind: belay.KindState, Key: "state", Data: json.RawMessage(`1`),
			})
			e.must(err)
		}
		e.wantState(works, belay.Running)
	}},

	{"with OnLost requeue the next owner continues, and all writes of the last owner are refused", func(e *env) {
		id := e.external(belay.Policy{OnLost: belay.Requeue})
		ann := e.lock(id, "ann")
		_, err := e.b.Save(e.ctx, belay.Save{
			Lease: ann.Lease, Op: e.op(), Kind: belay.KindState, Key: "state", Data: json.RawMessage(`1`),
		})
		e.must(err)
		e.sleep(lockTTL + time.Second)
		e.wantState(id, belay.Pending)
		bob := e.lock(id, "bob")
		if len(bob.Checkpoints) != 1 || string(bob.Checkpoints[0].Data) != `1` {
			e.Errorf("continues from %+v", bob.Checkpoints)
		}
		before := len(e.kinds(id))
		for what, err := range e.everything(ann.Lease) {
			e.refused(what, err, belay.CodeLeaseLost, belay.CauseReassigned)
		}
		if after := len(e.kinds(id)); after != before {
			e.Errorf("%d events became %d by refused writes\n%s", before, after, e.history(id))
		}
		for what, err := range e.everything(bob.Lease) {
			if err != nil {
				e.Errorf("bob's %s: %v", what, err)
			}
		}
		e.wantState(id, belay.Succeeded)
	}},

	{"workers do not claim external executions", func(e *env) {
		e.hire(register("w", sleeper))
		id := e.external(belay.Policy{})
		e.sleep(time.Minute)
		if e.count(id, "started") != 0 {
			e.Error(e.history(id))
		}
		e.lock(id, "ann")
	}},

	{"a lock takes an execution that waits for a worker, and a worker claims it after the release", func(e *env) {
		id := e.start(time.Millisecond)
		ann := e.lock(id, "ann")
		e.hire(register("w", sleeper))
		e.sleep(time.Second)
		e.must(e.b.Settle(e.ctx, belay.Settlement{Lease: ann.Lease, Op: e.op(), Outcome: belay.OutcomeReleased}))
		want(e, id, "rested")
	}},

	{"the reply to the next heartbeat of a lock reports a cancel", func(e *env) {
		id := e.external(belay.Policy{})
		ann := e.lock(id, "ann")
		e.act(id, belay.ActionCancel)
		r, err := e.b.Renew(e.ctx, ann.Lease)
		if err != nil || len(r.Cancel) != 1 || r.Cancel[0].Execution != id || r.Cancel[0].Within <= 0 {
			e.Errorf("renew: %+v, %v", r, err)
		}
		e.must(e.b.Settle(e.ctx, belay.Settlement{Lease: ann.Lease, Op: e.op(), Outcome: belay.OutcomeCancelled}))
		e.wantState(id, belay.Cancelled)
	}},

	{"a lock can be stolen, and the history names the actor", func(e *env) {
		id := e.external(belay.Policy{OnLost: belay.Requeue})
		ann := e.lock(id, "ann")
		_, err := e.b.Control(e.ctx, belay.Control{
			Execution: id, Action: belay.ActionSteal, Actor: "eve", Reason: "ann is on holiday",
		})
		e.must(err)
		for what, err := range e.everything(ann.Lease) {
			if belay.CodeOf(err) != belay.CodeLeaseLost {
				e.Errorf("%s after the theft: %v", what, err)
			}
		}
		e.lock(id, "eve")
		if h := e.history(id); !strings.Contains(h, "ann is on holiday") {
			e.Error(h)
		}
	}},

	{"a failed execution can be locked only with Reopen", func(e *env) {
		id := e.external(belay.Policy{MaxAttempts: 1})
		ann := e.lock(id, "ann")
		e.must(e.b.Settle(e.ctx, belay.Settlement{
			Lease: ann.Lease, Op: e.op(), Outcome: belay.OutcomeFailed, Failure: &belay.Failure{
				Class: belay.ClassTransient, Message: "no luck",
			},
		}))
		_, err := e.b.Lock(e.ctx, belay.LockRequest{Execution: id, Owner: "bob"})
		e.refused("lock", err, belay.CodeConflict, "")
		bob := e.lock(id, "bob", func(r *belay.LockRequest) { r.Reopen = true })
		if bob.Execution.Generation != 2 || bob.Lease.Token <= ann.Lease.Token {
			e.Errorf("reopened as %+v", bob.Execution)
		}
	}},

	{"runs are the attempts, the newest first", func(e *env) {
		e.hire(func(w *worker.Worker) {
			worker.Register(w, "w", threeTries)
		})
		id := e.start(nil)
		want(e, id, "at last")
		runs, err := e.b.Runs(e.ctx, id)
		if err != nil || len(runs) != 3 {
			e.Fatalf("runs %+v, %v", runs, err)
		}
		for i, r := range runs {
			if r.Execution != id || r.Attempt != 3-i || r.ID.Token != r.Token || r.StartedAt.IsZero() ||
				r.EndedAt.Before(r.StartedAt) {
				e.Errorf("run %d: %+v", i, r)
			}
		}
		if runs[0].Outcome != belay.OutcomeSucceeded || runs[1].Error == nil || runs[1].Error.Message != "again" ||
			runs[0].Token <= runs[1].Token {
			e.Errorf("runs %+v", runs)
		}
		_, err = e.b.Runs(e.ctx, belay.ExecutionID{1})
		e.refused("runs of nothing", err, belay.CodeNotFound, "")
	}},
}

// threeTries is a workflow that fails twice and then succeeds.
func threeTries(ctx context.Context, _ any) (string, error) {
	if workflow.Attempt(ctx) < 3 {
		return "", errors.New("again")
	}
	return "at last", nil
}

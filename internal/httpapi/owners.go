package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

type lockRequest struct {
	ID   belay.ExecutionID `path:"id"`
	Key  string            `header:"Idempotency-Key" maxLength:"200" doc:"Names the lock, if the body gives no id: repeated, the lock is found."`
	Body wire.Lock
}

type lockReply struct {
	Status   int
	Location string      `header:"Location" doc:"Where the lock is renewed."`
	LeaseID  string      `header:"Lease-Id" doc:"For every write of the owner."`
	Token    belay.Token `header:"Lease-Token" doc:"For every write of the owner."`
	Replayed string      `header:"Idempotency-Replayed" doc:"true, if the lock was there before."`
	Body     wire.LockReply
}

type renewRequest struct {
	ID   belay.ExecutionID `path:"id"`
	Lock wire.LeaseID      `path:"lock_id" doc:"The lock's id: lock_id of the answer to the lock."`
}

type renewalReply struct{ Body wire.Renewal }

type releaseRequest struct {
	ID    belay.ExecutionID `path:"id"`
	Lock  wire.LeaseID      `path:"lock_id" doc:"The lock's id: lock_id of the answer to the lock."`
	Token belay.Token       `header:"Lease-Token" doc:"If it is given, it must be the lock's."`
	Key   string            `header:"Idempotency-Key" maxLength:"200" doc:"Names the release: repeated, it is answered as the first time."`
	Body  wire.Release
}

type checkpointRequest struct {
	ID    belay.ExecutionID `path:"id"`
	Lease wire.LeaseID      `header:"Lease-Id" doc:"lease_id of the claim, or lock_id of the lock. Without it: 428."`
	Token belay.Token       `header:"Lease-Token" doc:"The fencing token. Without it: 428."`
	Key   string            `header:"Idempotency-Key" maxLength:"200" doc:"Names the write: repeated, it is written once."`
	Body  wire.Progress
}

type savedReply struct {
	Replayed string `header:"Idempotency-Replayed" doc:"true, if it was written before."`
	Body     wire.Saved
}

type tokenRequest struct {
	ID   belay.ExecutionID `path:"id"`
	Have string            `header:"If-None-Match" doc:"The ETag that is known; 304 if it is still so."`
}

type tokenReply struct {
	Status int
	ETag   string `header:"ETag"`
	Body   *wire.Token
}

func (a *api) owners() {
	worker := []belay.Scope{belay.ScopeWorker}
	lost := []int{http.StatusPreconditionFailed}
	add(a, route{
		id: "lock", method: http.MethodPost, path: "/v1/executions/{id}/lock", tag: "owners",
		summary: "Own one execution from outside",
		doc: "One request answers with the lease, the execution and its newest checkpoint. It takes an execution " +
			"that is due, or that waits, " +
			"and that nobody owns; while somebody does, 409 names the holder and when it is given up. Heartbeats " +
			"keep the lock.",
		example: `{"owner": "my laptop", "ttl": "30s"}`,
		scopes:  worker, status: http.StatusCreated, also: []int{http.StatusOK}, body: true, errors: []int{
			http.StatusConflict, http.StatusPreconditionFailed,
		},
	}, a.lock)
	add(a, route{
		id: "renewLock", method: http.MethodPut, path: "/v1/executions/{id}/lock/{lock_id}", tag: "owners",
		summary: "Renew a lock: its heartbeat",
		doc:     "It needs neither header nor body.", scopes: worker, errors: lost,
	}, func(ctx context.Context, in *renewRequest) (*renewalReply, error) {
		return a.renew(ctx, belay.Lease{Execution: in.ID, Worker: in.Lock.Worker, Secret: in.Lock.Secret})
	})
	add(a, route{
		id: "releaseLock", method: http.MethodPost, path: "/v1/executions/{id}/lock/{lock_id}/release", tag: "owners",
		summary: "Give a lock back with what became of it", example: `{"outcome": "complete", "output": {"turns": 3}}`,
		scopes: worker, body: true, errors: lost,
	}, a.release)
	add(a, route{
		id: "saveCheckpoint", method: http.MethodPut, path: "/v1/executions/{id}/checkpoint", tag: "owners",
		summary: "Save a checkpoint as the owner",
		doc:     "The next owner goes on from it.", example: `{"data": {"turn": 3}}`, scopes: worker, body: true,
		errors: []int{http.StatusPreconditionFailed, http.StatusPreconditionRequired},
	}, a.checkpoint)
	add(a, route{
		id: "readCheckpoints", method: http.MethodGet, path: "/v1/executions/{id}/checkpoints", tag: "owners",
		summary: "Read what an owner goes on from",
		doc: "Input, checkpoints and signals, some megabytes of them at most. The answer to a claim or a lock " +
			"that had no room for all of them says more; " +
			"this reads the rest, after the highest seq that the owner has.",
		scopes: worker, errors: []int{http.StatusPreconditionFailed, http.StatusPreconditionRequired},
	}, a.resume)
	add(a, route{
		id: "getToken", method: http.MethodGet, path: "/v1/executions/{id}/token", tag: "owners",
		summary: "Read the newest token, to refuse a stale owner", scopes: []belay.Scope{belay.ScopeRead},
		also: []int{http.StatusNotModified},
	}, a.token)
}

type resumeRequest struct {
	ID    belay.ExecutionID `path:"id"`
	Lease wire.LeaseID      `header:"Lease-Id" doc:"lock_id of the lock or lease_id of the claim. Without it: 428."`
	Token belay.Token       `header:"Lease-Token" doc:"The lock's or the run's token. Without it: 428."`
	After int64             `query:"after" minimum:"0" doc:"The highest seq that the owner has; 0 for all, with the input."`
}

func (a *api) resume(ctx context.Context, in *resumeRequest) (*struct{ Body wire.Resumed }, error) {
	l, err := lease{in.Lease, in.Token}.of(in.ID)
	if err != nil {
		return nil, err
	}
	r, err := a.b.Resume(ctx, belay.ResumeQuery{Lease: l, After: in.After})
	return &struct{ Body wire.Resumed }{wire.ResumedOf(r)}, err
}

func (a *api) lock(ctx context.Context, in *lockRequest) (*lockReply, error) {
	r := belay.LockRequest{
		ID: in.Body.ID, Execution: in.ID, Owner: in.Body.Owner, TTL: in.Body.TTL, Reopen: in.Body.Reopen,
	}
	if r.ID.IsZero() && in.Key != "" {
		r.ID = belay.WorkerID(wire.OpOf("lock " + in.ID.String() + " " + in.Key))
	}
	l, err := a.b.Lock(ctx, r)
	if err != nil {
		return nil, err
	}
	id := wire.LeaseID{Worker: l.Lease.Worker, Secret: l.Lease.Secret}
	out := &lockReply{
		Status: http.StatusCreated, Location: executionPath(in.ID) + "/lock/" + id.String(),
		LeaseID: id.String(), Token: l.Lease.Token, Body: wire.LockReplyOf(l),
	}
	if l.Replayed {
		out.Status, out.Replayed = http.StatusOK, "true"
	}
	return out, nil
}

func (a *api) renew(ctx context.Context, l belay.Lease) (*renewalReply, error) {
	r, err := a.b.Renew(ctx, l)
	return &renewalReply{wire.RenewalOf(r)}, err
}

func (a *api) release(ctx context.Context, in *releaseRequest) (*executionReply, error) {
	l := belay.Lease{Execution: in.ID, Worker: in.Lock.Worker, Secret: in.Lock.Secret, Token: in.Token}
	if l.Token == 0 {
		x, err := a.b.Execution(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		// The lock's own token, if it holds; the secret decides that. Somebody
		// else's would make the refusal say the wrong thing.
		if x.Worker == l.Worker || x.Worker.IsZero() {
			l.Token = x.Token
		}
	}
	s := in.Body.Settlement(l, settleOp(in.Key, l, &in.Body))
	if s.Outcome == belay.OutcomeFailed && s.Failure == nil {
		return nil, invalid("body.error", "say what went wrong")
	}
	return a.settle(ctx, s, in.Key)
}

// settle ends a run, and answers with the execution as it is then. Under an operation
// id it may have ended before.
func (a *api) settle(ctx context.Context, s belay.Settlement, key string) (*executionReply, error) {
	s.Repeat = key != ""
	ctx, replayed := belay.WithReplay(ctx)
	if err := a.b.Settle(ctx, s); err != nil {
		return nil, err
	}
	x, err := a.b.Execution(ctx, s.Lease.Execution)
	return &executionReply{Status: http.StatusOK, Replayed: yes(replayed), Body: x}, err
}

// yes is what a header says of a write that was a repetition.
func yes(replayed func() bool) string {
	if replayed() {
		return "true"
	}
	return ""
}

func (a *api) checkpoint(ctx context.Context, in *checkpointRequest) (*savedReply, error) {
	l, err := lease{in.Lease, in.Token}.of(in.ID)
	if err != nil {
		return nil, err
	}
	return a.save(ctx, l, in.Key, &in.Body)
}

// save writes a checkpoint. Under an operation id it may have been written
// before.
func (a *api) save(ctx context.Context, l belay.Lease, key string, body *wire.Progress) (*savedReply, error) {
	s := body.Save(l, saveOp(key))
	s.Repeat = key != ""
	ctx, replayed := belay.WithReplay(ctx)
	seq, err := a.b.Save(ctx, s)
	return &savedReply{Replayed: yes(replayed), Body: wire.Saved{Seq: seq}}, err
}

func (a *api) token(ctx context.Context, in *tokenRequest) (*tokenReply, error) {
	x, err := a.b.Execution(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	t := wire.TokenOf(&x)
	out := &tokenReply{Status: http.StatusOK, ETag: fmt.Sprintf(`"%d-%s"`, t.Token, t.State), Body: &t}
	if matches(in.Have, out.ETag) {
		return &tokenReply{Status: http.StatusNotModified, ETag: out.ETag}, nil
	}
	return out, nil
}

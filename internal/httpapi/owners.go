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
	Key  string            `header:"Idempotency-Key" maxLength:"200" doc:"Names the lock, if the body has no id: a repeat with the same key finds the lock."`
	Body wire.Lock
}

type lockReply struct {
	Status   int
	Location string      `header:"Location" doc:"The path of the lock, by which it is renewed."`
	LeaseID  string      `header:"Lease-Id" doc:"The owner sends this header with every write."`
	Token    belay.Token `header:"Lease-Token" doc:"The owner sends this header with every write."`
	Replayed string      `header:"Idempotency-Replayed" doc:"true, if the lock was there before."`
	Body     wire.LockReply
}

type renewRequest struct {
	ID   belay.ExecutionID `path:"id"`
	Lock wire.LeaseID      `path:"lock_id" doc:"The field lock_id of the answer to the lock."`
}

type renewalReply struct{ Body wire.Renewal }

type releaseRequest struct {
	ID    belay.ExecutionID `path:"id"`
	Lock  wire.LeaseID      `path:"lock_id" doc:"The field lock_id of the answer to the lock."`
	Token belay.Token       `header:"Lease-Token" doc:"The token of the lock; it may be left out."`
	Key   string            `header:"Idempotency-Key" maxLength:"200" doc:"Names the release: a repeat with the same key is answered like the first request."`
	Body  wire.Release
}

type checkpointRequest struct {
	ID    belay.ExecutionID `path:"id"`
	Lease wire.LeaseID      `header:"Lease-Id" doc:"The field lease_id of the claim, or lock_id of the lock. Without the header the status is 428."`
	Token belay.Token       `header:"Lease-Token" doc:"The fencing token. Without the header the status is 428."`
	Key   string            `header:"Idempotency-Key" maxLength:"200" doc:"Names the write: a repeat with the same key writes nothing more."`
	Body  wire.Progress
}

type savedReply struct {
	Replayed string `header:"Idempotency-Replayed" doc:"true, if the checkpoint was written before."`
	Body     wire.Saved
}

type tokenRequest struct {
	ID   belay.ExecutionID `path:"id"`
	Have string            `header:"If-None-Match" doc:"The ETag of an answer that the caller has; the server answers 304 if the answer is still the same."`
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
		doc: "The answer has the lease, the execution and its newest checkpoint. The execution must be due or waiting, " +
			"and must have no owner; otherwise 409 names the owner and says when its lease expires. Heartbeats " +
			"keep the lock.",
		example: `{"owner": "my laptop", "ttl": "30s"}`,
		scopes:  worker, status: http.StatusCreated, also: []int{http.StatusOK}, body: true, errors: []int{
			http.StatusConflict, http.StatusPreconditionFailed,
		},
	}, a.lock)
	add(a, route{
		id: "renewLock", method: http.MethodPut, path: "/v1/executions/{id}/lock/{lock_id}", tag: "owners",
		summary: "Renew a lock: its heartbeat",
		doc:     "The request needs neither a header nor a body.", scopes: worker, errors: lost,
	}, func(ctx context.Context, in *renewRequest) (*renewalReply, error) {
		return a.renew(ctx, belay.Lease{Execution: in.ID, Worker: in.Lock.Worker, Secret: in.Lock.Secret})
	})
	add(a, route{
		id: "releaseLock", method: http.MethodPost, path: "/v1/executions/{id}/lock/{lock_id}/release", tag: "owners",
		summary: "Give a lock back and say how the run ended", example: `{"outcome": "complete", "output": {"turns": 3}}`,
		scopes: worker, body: true, errors: lost,
	}, a.release)
	add(a, route{
		id: "saveCheckpoint", method: http.MethodPut, path: "/v1/executions/{id}/checkpoint", tag: "owners",
		summary: "Save a checkpoint as the owner",
		doc:     "The next owner continues from the checkpoint.", example: `{"data": {"turn": 3}}`, scopes: worker, body: true,
		errors: []int{http.StatusPreconditionFailed, http.StatusPreconditionRequired},
	}, a.checkpoint)
	add(a, route{
		id: "readCheckpoints", method: http.MethodGet, path: "/v1/executions/{id}/checkpoints", tag: "owners",
		summary: "Read what an owner needs to continue",
		doc: "The input, checkpoints and signals, some megabytes at most. The answer to a claim or a lock " +
			"that had no room for all of them has the field more; " +
			"this request reads the rest, after the highest seq that the owner has.",
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
	Lease wire.LeaseID      `header:"Lease-Id" doc:"The field lock_id of the lock, or lease_id of the claim. Without the header the status is 428."`
	Token belay.Token       `header:"Lease-Token" doc:"The token of the lock or of the run. Without the header the status is 428."`
	After int64             `query:"after" minimum:"0" doc:"The highest seq that the owner has; 0 reads everything, with the input."`
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
	r, err := in.Body.Request(in.ID)
	if err != nil {
		return nil, err
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
		// If the request has no token, the execution's token is used, provided that the session of
		// the lock owns the execution or that the execution has no owner; Settle then checks the
		// secret. The token of another owner would lead to a refusal with a wrong reason.
		if x.Worker == l.Worker || x.Worker.IsZero() {
			l.Token = x.Token
		}
	}
	s, err := in.Body.Settlement(l, settleOp(in.Key, l, &in.Body))
	if err != nil {
		return nil, err
	}
	if s.Outcome == belay.OutcomeFailed && s.Failure == nil {
		return nil, invalid("body.error", "say what went wrong")
	}
	return a.settle(ctx, s, in.Key)
}

// settle ends a run, and returns the execution as it is afterwards. A request with an
// Idempotency-Key may be a repeat: if an earlier request with this key has ended the run, settle
// succeeds and changes nothing.
func (a *api) settle(ctx context.Context, s belay.Settlement, key string) (*executionReply, error) {
	s.Repeat = key != ""
	ctx, replayed := belay.WithReplay(ctx)
	if err := a.b.Settle(ctx, s); err != nil {
		return nil, err
	}
	x, err := a.b.Execution(ctx, s.Lease.Execution)
	return &executionReply{Status: http.StatusOK, Replayed: yes(replayed), Body: x}, err
}

// yes is the value of the header Idempotency-Replayed: "true" for a repeat, and else "".
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

// save writes a checkpoint. A request with an Idempotency-Key may be a repeat: if an earlier
// request with this key has written the checkpoint, save returns the seq of that checkpoint and
// writes nothing.
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

package httpapi

import (
	"context"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

type workerAt struct {
	ID belay.WorkerID `path:"id"`
}

type cordonRequest struct {
	ID   belay.WorkerID `path:"id"`
	Body *wire.WorkerCordon
}

type openRequest struct {
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"Names the session, if the body has no id: a repeat with the same key finds the session."`
	Body wire.WorkerSpec
}

type sessionReply struct {
	Status   int
	Location string `header:"Location"`
	Replayed string `header:"Idempotency-Replayed" doc:"true, if the session was there before."`
	Body     belay.Session
}

func (a *api) workers() {
	worker := []belay.Scope{belay.ScopeWorker}
	add(a, route{
		id: "openWorker", method: http.MethodPost, path: "/v1/workers", tag: "workers",
		summary: "Open a worker's session",
		doc:     "A repeat with the same id finds the session. The session lives as long as the server receives its heartbeats.",
		example: `{"name": "builder-1", "workflows": [{"workflow": "build"}], "capacity": 10, "ttl": "15s", "heartbeat": "5s"}`,
		scopes:  worker, status: http.StatusCreated, also: []int{http.StatusOK}, body: true,
		errors: []int{http.StatusConflict, http.StatusPreconditionFailed},
	}, a.openWorker)
	add(a, route{
		id: "listWorkers", method: http.MethodGet, path: "/v1/workers", tag: "workers",
		summary: "List the sessions, the living first, newest first", scopes: []belay.Scope{belay.ScopeRead},
	}, func(ctx context.Context, _ *struct{}) (*struct{ Body wire.Workers }, error) {
		list, err := a.b.Workers(ctx)
		if list == nil {
			list = []belay.Worker{}
		}
		for i := range list {
			if list[i].Workflows == nil { // the session of an outside owner has no workflows
				list[i].Workflows = []belay.Registration{}
			}
		}
		return &struct{ Body wire.Workers }{wire.Workers{Workers: list}}, err
	})
	add(a, route{
		id: "drainWorker", method: http.MethodPost, path: "/v1/workers/{id}/drain", tag: "workers",
		summary: "Let a worker claim nothing more",
		doc:     "The reply to the worker's next heartbeat says so. The worker should end when it owns no execution.",
		scopes:  []belay.Scope{belay.ScopeWorker, belay.ScopeOperate},
		status:  http.StatusNoContent, errors: []int{http.StatusPreconditionFailed},
	}, func(ctx context.Context, in *workerAt) (*struct{}, error) { return nil, a.b.Drain(ctx, in.ID) })
	a.cordons()
	add(a, route{
		id: "closeWorker", method: http.MethodDelete, path: "/v1/workers/{id}", tag: "workers",
		summary: "End a session in order",
		doc:     "The executions that the worker still owns are released at once.", scopes: worker,
		status: http.StatusNoContent,
		errors: []int{http.StatusPreconditionFailed},
	}, func(ctx context.Context, in *workerAt) (*struct{}, error) { return nil, a.b.CloseWorker(ctx, in.ID) })
	a.mailboxes()
	hot(a, route{
		id: "accept", method: http.MethodPost, path: "/v1/workers/{id}/accept", tag: "workers",
		summary: "Begin the runs of executions that are scheduled to the worker",
		doc: "The worker learns of the executions from messages of a broker, and acknowledges the messages after the " +
			"answer. A repeat gets the same leases. An offer that is out of date is not in the answer: forget it. " +
			"If the answer has exactly one run, the headers Lease-Id, Lease-Token and Location are those of the run.",
		example: `{"number": 1, "offers": [{"execution": "ex_01m7w13wbkep9rfsn7shzr3mtm", "token": 4294967297}]}`,
		headers: []string{"Lease-Id", "Lease-Token", "Location"}, scopes: worker, body: true,
		errors: []int{http.StatusPreconditionFailed},
	}, a.accept)
	hot(a, route{
		id: "claim", method: http.MethodPost, path: "/v1/workers/{id}/claim", tag: "workers",
		summary: "Win executions for free slots",
		doc: "Waits while no execution is due, and answers 204 if none became due. A claim whose reply was lost is repeated " +
			"with its number. " +
			"If it won exactly one, the headers Lease-Id, Lease-Token and Location are those of its run.",
		example: `{"number": 1, "slots": 10, "wait_ms": 20000}`, headers: []string{"Lease-Id", "Lease-Token",
			"Location"},
		scopes: worker, also: []int{http.StatusNoContent}, body: true, errors: []int{
			http.StatusConflict, http.StatusPreconditionFailed,
		},
	}, a.claim)
	hot(a, route{
		id: "heartbeat", method: http.MethodPost, path: "/v1/workers/{id}/heartbeat", tag: "workers",
		summary: "Renew a session and all leases under it",
		doc:     "The reply says which runs to end, pause or give back, and which have new signals.",
		example: `{"holds": [{"execution": "ex_01m7w13wbkep9rfsn7shzr3mtm", "token": 1}], "claim_seen": 1}`,
		scopes:  worker, body: true, alive: true, errors: []int{http.StatusPreconditionFailed},
	}, a.heartbeat)
}

// cordons adds the routes that stop the claims of a worker for a while.
func (a *api) cordons() {
	cordon := route{
		id: "cordonWorker", method: http.MethodPost, path: "/v1/workers/{id}/cordon", tag: "workers",
		summary: "Let a worker claim nothing for now",
		doc: "The worker keeps its runs. The cordon ends with the session, or when it is lifted; restarts of the " +
			"server do not end it. A repeat replaces the reason and the actor. A worker that is draining cannot be " +
			"cordoned (409).",
		example: `{"reason": "its disk is failing"}`, scopes: []belay.Scope{belay.ScopeOperate},
		status: http.StatusNoContent, body: true,
		errors: []int{http.StatusConflict, http.StatusPreconditionFailed},
	}
	add(a, cordon, func(ctx context.Context, in *cordonRequest) (*struct{}, error) {
		body := in.Body
		if body == nil {
			body = new(wire.WorkerCordon)
		}
		return nil, a.b.Cordon(ctx, belay.Cordon{
			Worker: in.ID, Actor: callerOf(ctx).actor(body.Actor), Reason: body.Reason,
		})
	})
	add(a, route{
		id: "uncordonWorker", method: http.MethodPost, path: "/v1/workers/{id}/uncordon", tag: "workers",
		summary: "Let a cordoned worker claim again",
		doc:     "It claims again at once. A worker that is draining stays so (409).",
		scopes:  []belay.Scope{belay.ScopeOperate}, status: http.StatusNoContent,
		errors: []int{http.StatusConflict, http.StatusPreconditionFailed},
	}, func(ctx context.Context, in *workerAt) (*struct{}, error) {
		return nil, a.b.Cordon(ctx, belay.Cordon{Worker: in.ID, Off: true})
	})
}

// mailboxes adds the routes for the queues in the message broker from which workers get messages.
func (a *api) mailboxes() {
	worker := []belay.Scope{belay.ScopeWorker}
	add(a, route{
		id: "openMailbox", method: http.MethodPost, path: "/v1/workers/{id}/mailbox", tag: "workers",
		summary: "Make the queue in RabbitMQ from which a worker gets its messages",
		doc: "From then on the server schedules executions to the worker and sends it messages; see accept. A worker " +
			"whose queue is missing repeats the request. The status 404 says that the server has no broker: claim.",
		scopes: worker, errors: []int{http.StatusNotFound, http.StatusPreconditionFailed},
	}, func(ctx context.Context, in *workerAt) (*struct{ Body belay.Mailbox }, error) {
		m, err := a.b.OpenMailbox(ctx, in.ID)
		return &struct{ Body belay.Mailbox }{m}, err
	})
	add(a, route{
		id: "closeMailbox", method: http.MethodDelete, path: "/v1/workers/{id}/mailbox", tag: "workers",
		summary: "End the messages to a worker",
		doc:     "The executions that are scheduled to the worker are due again. From then on the worker claims them.",
		scopes:  worker, status: http.StatusNoContent, errors: []int{http.StatusPreconditionFailed},
	}, func(ctx context.Context, in *workerAt) (*struct{}, error) { return nil, a.b.CloseMailbox(ctx, in.ID) })
}

func (a *api) openWorker(ctx context.Context, in *openRequest) (*sessionReply, error) {
	if in.Body.ID.IsZero() && in.Key != "" {
		in.Body.ID = belay.WorkerID(wire.OpOf("open " + in.Key))
	}
	spec, err := in.Body.Spec()
	if err != nil {
		return nil, err
	}
	if hire := a.gate.hire; hire != nil && callerOf(ctx).open && !socketed(ctx) {
		if err := hire(&spec); err != nil {
			return nil, err
		}
	}
	ctx, replayed := belay.WithReplay(ctx)
	s, err := a.b.OpenWorker(ctx, spec)
	if err == nil {
		a.heard(ctx, s.ID)
		s.Warning = a.warning(ctx, spec.Health, s.Warning)
	}
	out := &sessionReply{
		Status: http.StatusCreated, Location: "/v1/workers/" + s.ID.String(), Replayed: yes(replayed), Body: s,
	}
	if replayed() {
		out.Status = http.StatusOK
	}
	return out, err
}

// maxWon is the maximum number of executions that one claim wins. The answer has the input of each
// execution, which may be a megabyte, and must not grow too large. The next claim wins the rest.
const maxWon = 128

// workerOf is the worker in the path of a request.
func workerOf(r *http.Request) (belay.WorkerID, error) { return belay.ParseWorkerID(r.PathValue("id")) }

func (a *api) claim(ctx context.Context, r *http.Request, body *wire.Claim, out http.Header) (*wire.ClaimReply, error) {
	id, err := workerOf(r)
	if err != nil {
		return nil, err
	}
	for _, err := range []error{
		bounded("number", body.Number, 1, 1<<53-1), bounded("slots", int64(body.Slots), 0, 10_000),
		bounded("wait_ms", body.WaitMS, 0, maxMillis),
	} {
		if err != nil {
			return nil, err
		}
	}
	ctx, done := a.waiting(ctx)
	defer done()
	reply, err := a.b.Claim(ctx, belay.ClaimRequest{
		Worker: id, Number: body.Number, Slots: min(body.Slots, maxWon), Wait: waitOf(body.WaitMS).Duration,
		Repeat: body.Repeat, Messages: body.Messages,
	})
	if err != nil || len(reply.Assignments) == 0 && !reply.Attention {
		return nil, err
	}
	if len(reply.Assignments) == 1 {
		runHeaders(out, reply.Assignments[0].Lease)
	}
	w := wire.ClaimReplyOf(reply)
	return &w, nil
}

func (a *api) accept(ctx context.Context, r *http.Request, body *wire.Accept, out http.Header) (*wire.AcceptReply,
	error) {
	id, err := workerOf(r)
	if err != nil {
		return nil, err
	}
	for _, err := range []error{
		bounded("number", body.Number, 1, 1<<53-1),
		bounded("the number of offers", int64(len(body.Offers)), 1, belay.MaxOffers),
	} {
		if err != nil {
			return nil, err
		}
	}
	reply, err := a.b.Accept(ctx, body.Accept(id))
	if err != nil {
		return nil, err
	}
	if len(reply.Assignments) == 1 {
		runHeaders(out, reply.Assignments[0].Lease)
	}
	w := wire.AcceptReplyOf(reply)
	return &w, nil
}

// runHeaders sets the headers of an answer with one run.
func runHeaders(out http.Header, l belay.Lease) {
	leaseHeaders(out, l)
	out.Set("Location", "/v1/runs/"+l.Run().String())
}

func (a *api) heartbeat(ctx context.Context, r *http.Request, body *wire.Heartbeat,
	_ http.Header) (*wire.HeartbeatReply, error) {
	id, err := workerOf(r)
	if err != nil {
		return nil, err
	}
	for _, err := range []error{
		bounded("claim_seen", body.ClaimSeen, 0, 1<<53-1), bounded("accept_seen", body.AcceptSeen, 0, 1<<53-1),
	} {
		if err != nil {
			return nil, err
		}
	}
	reply, err := a.b.Heartbeat(ctx, body.Heartbeat(id))
	if err != nil {
		return nil, err
	}
	a.heard(ctx, id)
	w := wire.HeartbeatReplyOf(reply)
	return &w, nil
}

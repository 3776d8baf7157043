package httpapi

import (
	"context"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

type gateAt struct {
	ID belay.GateID `path:"id" doc:"The kind of the gate, a colon and its name."`
}

type gatesRequest struct {
	Kind   string `query:"kind" enum:"limit,rate,target,queue,workflow,resource" doc:"Only gates of this kind."`
	Cursor string `query:"cursor" maxLength:"300" doc:"The field next of the previous page."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"100, unless said otherwise."`
}

// changeGate is a request that changes a gate.
type changeGate[B any] struct {
	ID   belay.GateID `path:"id" doc:"The kind of the gate, a colon and its name."`
	Key  string       `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	Body B
}

// unsetGate is a request that removes a part of a gate.
type unsetGate struct {
	ID     belay.GateID `path:"id" doc:"The kind of the gate, a colon and its name."`
	Key    string       `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	Reason string       `query:"reason" maxLength:"200" doc:"The reason, which the audit keeps."`
	Actor  string       `query:"actor" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
}

type gateReply struct {
	Replayed string `header:"Idempotency-Replayed" doc:"true, if the gate was so before."`
	Body     belay.GateDetail
}

// gates adds the routes of limits, rates, circuit breakers and pauses.
func (a *api) gates() {
	read := []belay.Scope{belay.ScopeRead}
	add(a, route{
		id: "listGates", method: http.MethodGet, path: "/v1/gates", tag: "gates",
		summary: "List the gates that an operator has set or that executions have named", scopes: read,
		errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *gatesRequest) (*struct{ Body belay.GatePage }, error) {
		page, err := a.b.Gates(ctx, belay.GateFilter{Kind: in.Kind, Cursor: in.Cursor, Limit: in.Limit})
		if page.Gates == nil {
			page.Gates = []belay.GateInfo{}
		}
		return &struct{ Body belay.GatePage }{page}, err
	})
	add(a, route{
		id: "getGate", method: http.MethodGet, path: "/v1/gates/{id}", tag: "gates",
		summary: "Read a gate, with the executions that have a place and those that wait for one",
		doc: "A gate that no operator has set and no execution has named is open. Encode a slash of the name as %2F. " +
			"A hundred executions of each kind are named at most.",
		scopes: read, errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *gateAt) (*struct{ Body belay.GateDetail }, error) {
		g, err := a.b.Gate(ctx, in.ID)
		return &struct{ Body belay.GateDetail }{g}, err
	})
	a.pauses()
	a.gateParts()
	a.breakers()
}

// change carries out a change of a gate. key is the Idempotency-Key of the request.
func (a *api) change(ctx context.Context, key string, by wire.By, c belay.GateChange) (*gateReply, error) {
	c.Op, c.Actor, c.Reason = wire.OpOf(key), callerOf(ctx).actor(by.Actor), by.Reason
	ctx, replayed := belay.WithReplay(ctx)
	g, err := a.b.ChangeGate(ctx, c)
	return &gateReply{yes(replayed), g}, err
}

// pauses adds the routes that pause and resume a gate of any kind, and the shorter routes for
// queues and workflows.
func (a *api) pauses() {
	const (
		pausing = "Work that runs goes on; nothing new starts until the pause ends. A repeat of a pause changes its end " +
			"and its reason."
		until = `{"until": "2030-01-01T08:00:00Z", "reason": "the database is moved"}`
		done  = `{"reason": "the database has moved"}`
	)
	operate := []belay.Scope{belay.ScopeOperate}
	add(a, route{
		id: "pauseGate", method: http.MethodPost, path: "/v1/gates/{id}/pause", tag: "gates",
		summary: "Pause a gate, until a time or until it is resumed", doc: pausing, example: until, scopes: operate,
		body: true,
	}, func(ctx context.Context, in *changeGate[*wire.GatePause]) (*gateReply, error) {
		return a.pauseGate(ctx, in.ID, in.Key, in.Body)
	})
	add(a, route{
		id: "resumeGate", method: http.MethodPost, path: "/v1/gates/{id}/resume", tag: "gates",
		summary: "End the pause of a gate", example: done, scopes: operate, body: true,
	}, func(ctx context.Context, in *changeGate[*wire.GateResume]) (*gateReply, error) {
		return a.resumeGate(ctx, in.ID, in.Key, in.Body)
	})
	for _, of := range []struct{ kind, path, word string }{
		{belay.GateQueue, "/v1/queues/{name}", "Queue"}, {belay.GateWorkflow, "/v1/workflows/{name}", "Workflow"},
	} {
		add(a, route{
			id: "pause" + of.word, method: http.MethodPost, path: of.path + "/pause", tag: "gates",
			summary: "Pause a " + of.kind + ", until a time or until it is resumed", doc: pausing, example: until,
			scopes: operate, body: true,
		}, func(ctx context.Context, in *pauseNamed[*wire.GatePause]) (*gateReply, error) {
			return a.pauseGate(ctx, belay.Gate(of.kind, in.Name), in.Key, in.Body)
		})
		add(a, route{
			id: "resume" + of.word, method: http.MethodPost, path: of.path + "/resume", tag: "gates",
			summary: "End the pause of a " + of.kind, example: done, scopes: operate, body: true,
		}, func(ctx context.Context, in *pauseNamed[*wire.GateResume]) (*gateReply, error) {
			return a.resumeGate(ctx, belay.Gate(of.kind, in.Name), in.Key, in.Body)
		})
	}
}

// pauseNamed is a request that pauses or resumes a queue or a workflow.
type pauseNamed[B any] struct {
	Name string `path:"name" maxLength:"200"`
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	Body B
}

func (a *api) pauseGate(ctx context.Context, id belay.GateID, key string, body *wire.GatePause) (*gateReply, error) {
	if body == nil {
		body = new(wire.GatePause)
	}
	return a.change(ctx, key, body.By, belay.GateChange{Gate: id, Action: belay.GatePause, Until: body.Until})
}

func (a *api) resumeGate(ctx context.Context, id belay.GateID, key string, body *wire.GateResume) (*gateReply, error) {
	if body == nil {
		body = new(wire.GateResume)
	}
	return a.change(ctx, key, body.By, belay.GateChange{Gate: id, Action: belay.GateResume})
}

// gateParts adds the routes that set limits, rates and circuit breakers.
func (a *api) gateParts() {
	operate := []belay.Scope{belay.ScopeOperate}
	add(a, route{
		id: "setLimit", method: http.MethodPut, path: "/v1/gates/{id}/limit", tag: "gates",
		summary: "Set the limit of a limit, queue or workflow",
		doc: "The limit of an operator counts before the one that executions name. A limit of a queue or a workflow " +
			"counts runs.",
		example: `{"max": 5, "reason": "the crawler is too eager"}`, scopes: operate, body: true,
	}, func(ctx context.Context, in *changeGate[wire.GateLimit]) (*gateReply, error) {
		return a.change(ctx, in.Key, in.Body.By, belay.GateChange{
			Gate: in.ID, Action: belay.GateSetLimit, Max: in.Body.Max,
		})
	})
	add(a, route{
		id: "setRate", method: http.MethodPut, path: "/v1/gates/{id}/rate", tag: "gates",
		summary: "Set the rate of a rate, queue or workflow",
		doc:     "The rate of an operator counts before the one that executions name.",
		example: `{"max": 10, "per": "1s", "reason": "the provider allows ten a second"}`, scopes: operate, body: true,
	}, func(ctx context.Context, in *changeGate[wire.GateRate]) (*gateReply, error) {
		per, err := in.Body.Time()
		if err != nil {
			return nil, err
		}
		return a.change(ctx, in.Key, in.Body.By, belay.GateChange{
			Gate: in.ID, Action: belay.GateSetRate, Max: in.Body.Max, Per: per,
		})
	})
	add(a, route{
		id: "setBreaker", method: http.MethodPut, path: "/v1/gates/{id}/breaker", tag: "gates",
		summary: "Force the circuit breaker of a target open or closed, or let it work by itself",
		example: `{"state": "open", "reason": "the provider is down"}`, scopes: operate, body: true,
	}, func(ctx context.Context, in *changeGate[wire.GateBreaker]) (*gateReply, error) {
		return a.change(ctx, in.Key, in.Body.By, belay.GateChange{Gate: in.ID, Action: in.Body.State.Action()})
	})
	add(a, route{
		id: "setResource", method: http.MethodPut, path: "/v1/gates/{id}/resource", tag: "gates",
		summary: "Set the terms of a resource: its residency, its longest wait, and the workflow that changes its mode",
		doc: "Replaces all terms. If the last change of the mode has failed, the next change begins at once. A change " +
			"that is under way goes on.",
		example: `{"min_residency": "30s", "max_wait": "5m", "swap": {"workflow": "load-model", "queue": "gpu-1"}, ` +
			`"reason": "one GPU"}`,
		scopes: operate, body: true,
	}, func(ctx context.Context, in *changeGate[wire.GateResource]) (*gateReply, error) {
		terms, err := in.Body.Terms()
		if err != nil {
			return nil, err
		}
		return a.change(ctx, in.Key, in.Body.By, belay.GateChange{
			Gate: in.ID, Action: belay.GateSetResource, Resource: terms,
		})
	})
	add(a, route{
		id: "unsetResource", method: http.MethodDelete, path: "/v1/gates/{id}/resource", tag: "gates",
		summary: "Remove the terms of a resource that an operator has set",
		doc:     "Its modes still exclude each other; the mode changes at once, after a longest wait of a minute.",
		scopes:  operate, errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *unsetGate) (*gateReply, error) {
		return a.change(ctx, in.Key, wire.By{Reason: in.Reason, Actor: in.Actor}, belay.GateChange{
			Gate: in.ID, Action: belay.GateUnsetResource,
		})
	})
	for _, of := range []struct {
		id, part string
		action   belay.GateAction
	}{{"unsetLimit", "limit", belay.GateUnsetLimit}, {"unsetRate", "rate", belay.GateUnsetRate}} {
		add(a, route{
			id: of.id, method: http.MethodDelete, path: "/v1/gates/{id}/" + of.part, tag: "gates",
			summary: "Remove the " + of.part + " that an operator has set",
			doc:     "The " + of.part + " that executions name, if there is one, counts again.", scopes: operate,
			errors: []int{http.StatusUnprocessableEntity},
		}, func(ctx context.Context, in *unsetGate) (*gateReply, error) {
			return a.change(ctx, in.Key, wire.By{Reason: in.Reason, Actor: in.Actor}, belay.GateChange{
				Gate: in.ID, Action: of.action,
			})
		})
	}
}

// breakers adds the routes that show circuit breakers.
func (a *api) breakers() {
	read := []belay.Scope{belay.ScopeRead}
	add(a, route{
		id: "listCircuitBreakers", method: http.MethodGet, path: "/v1/circuit-breakers", tag: "gates",
		summary: "List the circuit breakers of targets",
		doc:     "The same as /v1/gates?kind=target, without what is not a circuit breaker.", scopes: read,
	}, func(ctx context.Context, in *breakersRequest) (*struct{ Body wire.CircuitBreakers }, error) {
		page, err := a.b.Gates(ctx, belay.GateFilter{Kind: belay.GateTarget, Cursor: in.Cursor, Limit: in.Limit})
		list := wire.CircuitBreakers{CircuitBreakers: make([]wire.CircuitBreaker, len(page.Gates)), Next: page.Next}
		for i := range page.Gates {
			list.CircuitBreakers[i] = wire.CircuitBreakerOf(&page.Gates[i])
		}
		return &struct{ Body wire.CircuitBreakers }{list}, err
	})
	add(a, route{
		id: "getCircuitBreaker", method: http.MethodGet, path: "/v1/circuit-breakers/{target}", tag: "gates",
		summary: "Read the circuit breaker of a target",
		doc:     "A target that never failed has a closed one. Encode a slash of the target as %2F.", scopes: read,
		errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *breakerAt) (*struct{ Body wire.CircuitBreaker }, error) {
		g, err := a.b.Gate(ctx, belay.Gate(belay.GateTarget, in.Target))
		return &struct{ Body wire.CircuitBreaker }{wire.CircuitBreakerOf(&g.GateInfo)}, err
	})
}

type breakersRequest struct {
	Cursor string `query:"cursor" maxLength:"300" doc:"The field next of the previous page."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"100, unless said otherwise."`
}

type breakerAt struct {
	Target string `path:"target" maxLength:"200"`
}

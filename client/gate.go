package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Gates lists gates.
func (c *Client) Gates(ctx context.Context, f belay.GateFilter) (belay.GatePage, error) {
	q := url.Values{}
	set(q, "kind", f.Kind)
	set(q, "cursor", f.Cursor)
	number(q, "limit", int64(f.Limit))
	return get[belay.GatePage](ctx, c, "list gates", "/v1/gates", q)
}

// Gate reads one gate.
func (c *Client) Gate(ctx context.Context, id belay.GateID) (belay.GateDetail, error) {
	return get[belay.GateDetail](ctx, c, "read gate "+string(id), gatePath(id), nil)
}

// ChangeGate changes a gate. It makes an operation id if the change has none.
func (c *Client) ChangeGate(ctx context.Context, g belay.GateChange) (belay.GateDetail, error) {
	if g.Op.IsZero() {
		g.Op = belay.OpID(c.set.ids())
	}
	var d belay.GateDetail
	r := &request{op: string(g.Action) + " gate " + string(g.Gate), reply: &d, header: idempotent(g.Op)}
	r.method, r.path = http.MethodPut, gatePath(g.Gate)
	by := wire.By{Reason: g.Reason, Actor: g.Actor}
	var v any
	switch g.Action {
	case belay.GatePause:
		r.method, r.path, v = http.MethodPost, r.path+"/pause", wire.GatePause{Until: g.Until, By: by}
	case belay.GateResume:
		r.method, r.path, v = http.MethodPost, r.path+"/resume", wire.GateResume{By: by}
	case belay.GateSetLimit:
		r.path, v = r.path+"/limit", wire.GateLimit{Max: g.Max, By: by}
	case belay.GateSetRate:
		r.path, v = r.path+"/rate", wire.GateRate{Max: g.Max, Per: g.Per, By: by}
	case belay.GateForceOpen, belay.GateForceClosed, belay.GateAutomatic:
		r.path, v = r.path+"/breaker", wire.GateBreaker{State: wire.BreakerStateOf(g.Action), By: by}
	case belay.GateUnsetLimit, belay.GateUnsetRate:
		part := map[belay.GateAction]string{belay.GateUnsetLimit: "/limit", belay.GateUnsetRate: "/rate"}[g.Action]
		r.method, r.path, r.query = http.MethodDelete, r.path+part, url.Values{}
		set(r.query, "reason", g.Reason)
		set(r.query, "actor", g.Actor)
	default:
		return d, &belay.Error{
			Code: belay.CodeInvalid, Op: r.op, Message: "there is no action " + string(g.Action) + " on a gate",
		}
	}
	if v != nil {
		var err error
		if r.body, err = body(r.op, v); err != nil {
			return d, err
		}
	}
	err := c.retry(ctx, r)
	return d, err
}

func gatePath(id belay.GateID) string { return "/v1/gates/" + url.PathEscape(string(id)) }

package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// gateKinds are the kinds of gates.
var gateKinds = []string{
	belay.GateLimit, belay.GateRate, belay.GateTarget, belay.GateQueue, belay.GateWorkflow, belay.GateResource,
}

// checkGate refuses an id that no gate can have, as an engine in this process does. In a URL path
// such an id could lead to another route.
func checkGate(op string, id belay.GateID) error {
	name := id.Name()
	if slices.Contains(gateKinds, id.Kind()) && name != "" && len(name) <= belay.MaxName && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, unicode.IsControl) {
		return nil
	}
	return &belay.Error{Code: belay.CodeInvalid, Op: op, Message: fmt.Sprintf("%q is not the id of a gate: an id is a "+
		"kind (%s), a colon and a name of at most %d bytes without control characters", id,
		strings.Join(gateKinds, ", "), belay.MaxName)}
}

// Gates lists gates.
func (c *Client) Gates(ctx context.Context, f belay.GateFilter) (belay.GatePage, error) {
	if f.Kind != "" && !slices.Contains(gateKinds, f.Kind) {
		return belay.GatePage{}, &belay.Error{
			Code: belay.CodeInvalid, Op: "list gates", Message: fmt.Sprintf(
				"there is no kind %q of gates; the kinds are %s", f.Kind, strings.Join(gateKinds, ", ")),
		}
	}
	f.Limit = min(max(f.Limit, 0), 1000)
	q := url.Values{}
	set(q, "kind", f.Kind)
	set(q, "cursor", f.Cursor)
	number(q, "limit", int64(f.Limit))
	return get[belay.GatePage](ctx, c, "list gates", "/v1/gates", q)
}

// Gate reads one gate.
func (c *Client) Gate(ctx context.Context, id belay.GateID) (belay.GateDetail, error) {
	if err := checkGate("read gate", id); err != nil {
		return belay.GateDetail{}, err
	}
	return get[belay.GateDetail](ctx, c, "read gate "+string(id), gatePath(id), nil)
}

// ChangeGate changes a gate. It makes an operation id if the change has none.
func (c *Client) ChangeGate(ctx context.Context, g belay.GateChange) (belay.GateDetail, error) {
	if err := checkGate(string(g.Action)+" gate", g.Gate); err != nil {
		return belay.GateDetail{}, err
	}
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
	case belay.GateSetResource:
		r.path, v = r.path+"/resource", wire.GateResourceOf(g.Resource, by)
	case belay.GateUnsetLimit, belay.GateUnsetRate, belay.GateUnsetResource:
		part := map[belay.GateAction]string{
			belay.GateUnsetLimit: "/limit", belay.GateUnsetRate: "/rate", belay.GateUnsetResource: "/resource",
		}[g.Action]
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

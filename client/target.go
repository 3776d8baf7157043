package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// NotificationTargets lists the targets of notifications.
func (c *Client) NotificationTargets(ctx context.Context) ([]belay.NotificationTargetInfo, error) {
	all, err := get[wire.Targets](ctx, c, "list notification targets", "/v1/notification-targets", nil)
	out := make([]belay.NotificationTargetInfo, len(all.Targets))
	for i := range all.Targets {
		if err == nil {
			out[i], err = all.Targets[i].Info()
		}
	}
	return out, err
}

// NotificationTarget reads one target of notifications.
func (c *Client) NotificationTarget(ctx context.Context, name string) (belay.NotificationTargetInfo, error) {
	op := "read notification target " + name
	if err := belay.CheckTargetName(op, name); err != nil {
		return belay.NotificationTargetInfo{}, err
	}
	t, err := get[wire.Target](ctx, c, op, wire.TargetPath(name), nil)
	if err != nil {
		return belay.NotificationTargetInfo{}, err
	}
	return t.Info()
}

// PutNotificationTarget creates a target of notifications or changes its terms. It makes an operation id if the request
// has none.
func (c *Client) PutNotificationTarget(
	ctx context.Context, p belay.NotificationTargetPut,
) (belay.NotificationTargetPutResult, error) {
	var out belay.NotificationTargetPutResult
	op := "put notification target " + p.Name
	if err := belay.CheckTargetName(op, p.Name); err != nil {
		return out, err
	}
	var reply wire.Target
	replayed, err := c.put(ctx, &request{op: op, path: wire.TargetPath(p.Name), reply: &reply}, edition{
		p.Op, p.IfVersion, p.IfNew,
	}, wire.PutTarget{
		TargetTerms: wire.TargetTermsOf(&p.NotificationTarget), By: wire.By{Reason: p.Reason, Actor: p.Actor},
	})
	if err != nil {
		return out, err
	}
	out.NotificationTargetInfo, err = reply.Info()
	out.Changed = !replayed
	out.Created = out.Changed && out.Version == 1
	return out, err
}

// ChangeNotificationTarget carries out an action on a target of notifications. It makes an operation id if the change
// has none.
func (c *Client) ChangeNotificationTarget(
	ctx context.Context, d belay.NotificationTargetChange,
) (belay.NotificationTargetInfo, error) {
	op := fmt.Sprintf("%s notification target %s", d.Action, d.Name)
	if err := belay.CheckTargetName(op, d.Name); err != nil {
		return belay.NotificationTargetInfo{}, err
	}
	if d.Op.IsZero() {
		d.Op = belay.OpID(c.set.ids())
	}
	r := &request{op: op, method: http.MethodPost, path: wire.TargetPath(d.Name), header: idempotent(d.Op)}
	ifNewest(r.header, d.IfVersion)
	switch d.Action {
	case belay.NotificationTargetRemove:
		r.method, r.query = http.MethodDelete, url.Values{}
		set(r.query, "reason", d.Reason)
		set(r.query, "actor", d.Actor)
		var gone belay.NotificationTargetInfo
		gone.Name = d.Name
		return gone, c.retry(ctx, r)
	case belay.NotificationTargetPause, belay.NotificationTargetResume:
	default:
		return belay.NotificationTargetInfo{}, &belay.Error{
			Code: belay.CodeInvalid, Op: op, Message: "there is no action " + string(d.Action) + " on a target",
		}
	}
	var reply wire.Target
	r.path, r.reply = r.path+"/"+string(d.Action), &reply
	var err error
	if r.body, err = body(op, wire.ChangeTarget{By: wire.By{Reason: d.Reason, Actor: d.Actor}}); err != nil {
		return belay.NotificationTargetInfo{}, err
	}
	if err := c.retry(ctx, r); err != nil {
		return belay.NotificationTargetInfo{}, err
	}
	return reply.Info()
}

// TestNotificationTarget sends a test to a target of notifications, and returns the delivery. It makes an operation id
// if the request has none.
func (c *Client) TestNotificationTarget(
	ctx context.Context, t belay.NotificationTargetTest,
) (belay.ExecutionID, error) {
	op := "test notification target " + t.Name
	if err := belay.CheckTargetName(op, t.Name); err != nil {
		return belay.ExecutionID{}, err
	}
	if t.Op.IsZero() {
		t.Op = belay.OpID(c.set.ids())
	}
	var reply wire.TargetTested
	r := &request{
		op: op, method: http.MethodPost, path: wire.TargetPath(t.Name) + "/test", header: idempotent(t.Op),
		reply: &reply,
	}
	var err error
	if r.body, err = body(op, wire.TestTarget{Actor: t.Actor}); err != nil {
		return belay.ExecutionID{}, err
	}
	err = c.retry(ctx, r)
	return reply.Execution, err
}

package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Webhooks lists webhooks without their newest deliveries.
func (c *Client) Webhooks(ctx context.Context, f belay.WebhookFilter) (belay.WebhookPage, error) {
	q := url.Values{}
	set(q, "cursor", f.Cursor)
	number(q, "limit", int64(min(max(f.Limit, 0), 1000)))
	page, err := get[wire.Webhooks](ctx, c, "list webhooks", "/v1/webhooks", q)
	out := belay.WebhookPage{Webhooks: make([]belay.WebhookInfo, len(page.Webhooks)), Next: page.Next}
	for i := range page.Webhooks {
		if err == nil {
			out.Webhooks[i], err = page.Webhooks[i].Info()
		}
	}
	return out, err
}

// Webhook reads one webhook.
func (c *Client) Webhook(ctx context.Context, name string) (belay.WebhookInfo, error) {
	op := "read webhook " + name
	if err := belay.CheckWebhookName(op, name); err != nil {
		return belay.WebhookInfo{}, err
	}
	h, err := get[wire.Webhook](ctx, c, op, wire.WebhookPath(name), nil)
	if err != nil {
		return belay.WebhookInfo{}, err
	}
	return h.Info()
}

// PutWebhook creates a webhook or changes its terms. It makes an operation id if the request has none.
func (c *Client) PutWebhook(ctx context.Context, p belay.WebhookPut) (belay.WebhookPutResult, error) {
	var out belay.WebhookPutResult
	op := "put webhook " + p.Name
	if err := belay.CheckWebhookName(op, p.Name); err != nil {
		return out, err
	}
	var reply wire.Webhook
	replayed, err := c.put(ctx, &request{op: op, path: wire.WebhookPath(p.Name), reply: &reply}, edition{
		p.Op, p.IfVersion, p.IfNew,
	}, wire.PutWebhook{
		WebhookTerms: wire.WebhookTermsOf(&p.Webhook), By: wire.By{Reason: p.Reason, Actor: p.Actor},
	})
	if err != nil {
		return out, err
	}
	out.WebhookInfo, err = reply.Info()
	out.Changed = !replayed
	out.Created = out.Changed && out.Version == 1
	return out, err
}

// edition says which change of a schedule or webhook this is, and which version it must have before.
type edition struct {
	op      belay.OpID
	version int
	none    bool
}

// put sends the terms of a schedule or webhook, and reports whether nothing was changed.
func (c *Client) put(ctx context.Context, r *request, e edition, terms any) (replayed bool, err error) {
	if e.version < 0 || e.version > 0 && e.none {
		return false, &belay.Error{
			Code: belay.CodeInvalid, Op: r.op, Message: "if_version is a version from 1, and excludes if_new",
		}
	}
	if e.op.IsZero() {
		e.op = belay.OpID(c.set.ids())
	}
	r.method, r.header = http.MethodPut, idempotent(e.op)
	ifNewest(r.header, e.version)
	if e.none {
		r.header.Set("If-None-Match", "*")
	}
	if r.body, err = body(r.op, terms); err != nil {
		return false, err
	}
	ctx, same := belay.WithReplay(ctx)
	err = c.retry(ctx, r)
	return same(), err
}

// ChangeWebhook carries out an action on a webhook. It makes an operation id if the change has none.
func (c *Client) ChangeWebhook(ctx context.Context, d belay.WebhookChange) (belay.WebhookInfo, error) {
	op := fmt.Sprintf("%s webhook %s", d.Action, d.Name)
	if err := belay.CheckWebhookName(op, d.Name); err != nil {
		return belay.WebhookInfo{}, err
	}
	if d.Op.IsZero() {
		d.Op = belay.OpID(c.set.ids())
	}
	r := &request{op: op, method: http.MethodPost, path: wire.WebhookPath(d.Name), header: idempotent(d.Op)}
	ifNewest(r.header, d.IfVersion)
	switch d.Action {
	case belay.WebhookRemove:
		r.method, r.query = http.MethodDelete, url.Values{}
		set(r.query, "reason", d.Reason)
		set(r.query, "actor", d.Actor)
		return belay.WebhookInfo{Webhook: belay.Webhook{Name: d.Name}}, c.retry(ctx, r)
	case belay.WebhookPauseAction, belay.WebhookResume:
	default:
		return belay.WebhookInfo{}, &belay.Error{
			Code: belay.CodeInvalid, Op: op, Message: "there is no action " + string(d.Action) + " on a webhook",
		}
	}
	var reply wire.Webhook
	r.path, r.reply = r.path+"/"+string(d.Action), &reply
	var err error
	if r.body, err = body(op, wire.ChangeWebhook{By: wire.By{Reason: d.Reason, Actor: d.Actor}}); err != nil {
		return belay.WebhookInfo{}, err
	}
	if err := c.retry(ctx, r); err != nil {
		return belay.WebhookInfo{}, err
	}
	return reply.Info()
}

// Deliver makes a test delivery: only a signed request to /hooks makes another one.
func (c *Client) Deliver(ctx context.Context, d belay.WebhookEvent) (belay.WebhookDelivery, error) {
	var out belay.WebhookDelivery
	op := "deliver to webhook " + d.Webhook
	if err := belay.CheckWebhookName(op, d.Webhook); err != nil {
		return out, err
	}
	if d.By != "test" {
		return out, &belay.Error{
			Code: belay.CodeInvalid, Op: op, Message: `a client makes test deliveries only: set By to "test"`,
		}
	}
	r := &request{
		op: op, method: http.MethodPost, path: wire.WebhookPath(d.Webhook) + "/deliveries", header: http.Header{},
		reply: &out,
	}
	ifNewest(r.header, d.IfVersion)
	var err error
	r.body, err = body(op, wire.TestDelivery{ID: d.ID, Type: d.Type, Headers: d.Headers, Data: d.Data, Actor: d.Actor})
	if err != nil {
		return out, err
	}
	return out, c.retry(ctx, r)
}

// WebhookDelivery reads one of the newest deliveries with its data.
func (c *Client) WebhookDelivery(ctx context.Context, webhook, id string) (belay.WebhookDeliveryData, error) {
	op := "read delivery " + id
	if err := checkDelivery(op, webhook, id); err != nil {
		return belay.WebhookDeliveryData{}, err
	}
	return get[belay.WebhookDeliveryData](ctx, c, op, wire.DeliveryPath(webhook, id), nil)
}

// ReplayDelivery starts another execution of a remembered delivery. It makes an operation id if the request has none.
func (c *Client) ReplayDelivery(ctx context.Context, p belay.WebhookReplay) (belay.WebhookDelivery, error) {
	var out belay.WebhookDelivery
	op := "replay delivery " + p.ID
	if err := checkDelivery(op, p.Webhook, p.ID); err != nil {
		return out, err
	}
	if p.Op.IsZero() {
		p.Op = belay.OpID(c.set.ids())
	}
	r := &request{
		op: op, method: http.MethodPost, path: wire.DeliveryPath(p.Webhook, p.ID) + "/replay",
		header: idempotent(p.Op), reply: &out,
	}
	var err error
	if r.body, err = body(op, wire.ReplayDelivery{Actor: p.Actor}); err != nil {
		return out, err
	}
	return out, c.retry(ctx, r)
}

func checkDelivery(op, webhook, id string) error {
	if err := belay.CheckWebhookName(op, webhook); err != nil {
		return err
	}
	if id == "" || id == "." || id == ".." {
		return &belay.Error{Code: belay.CodeInvalid, Op: op, Message: fmt.Sprintf("%q is no id of a delivery", id)}
	}
	return nil
}

// Publish delivers CloudEvents to the webhooks that want them.
func (c *Client) Publish(ctx context.Context, p belay.CloudEventPublish) ([]belay.CloudEventResult, error) {
	const op = "publish"
	batch := make([]map[string]any, len(p.Events))
	for i := range p.Events {
		batch[i] = wire.StructuredEvent(&p.Events[i])
	}
	var reply wire.Published
	r := &request{op: op, method: http.MethodPost, path: "/v1/cloudevents", header: http.Header{}, reply: &reply}
	r.header.Set("Content-Type", wire.CloudEventBatch)
	var err error
	if r.body, err = body(op, batch); err != nil {
		return nil, err
	}
	err = c.retry(ctx, r)
	return reply.Events, err
}

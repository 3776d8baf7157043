package httpapi

import (
	"context"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

type webhookAt struct {
	Name string `path:"name" maxLength:"100" doc:"The name of the webhook."`
}

type webhooksRequest struct {
	Cursor string `query:"cursor" maxLength:"300" doc:"The field next of the previous page."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"100, unless said otherwise."`
}

type putWebhookRequest struct {
	Name        string `path:"name" maxLength:"100" doc:"The name of the webhook."`
	Key         string `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	IfMatch     string `header:"If-Match" maxLength:"100" doc:"The ETag of the version that the webhook must have; otherwise 412."`
	IfNoneMatch string `header:"If-None-Match" maxLength:"100" doc:"An asterisk: there must be no such webhook; otherwise 412."`
	Body        wire.PutWebhook
}

type putWebhookReply struct {
	Status   int
	ETag     string `header:"ETag" doc:"Names the version, for If-Match."`
	Location string `header:"Location"`
	Replayed string `header:"Idempotency-Replayed" doc:"true, if nothing was changed."`
	Body     wire.Webhook
}

type webhookReply struct {
	ETag string `header:"ETag" doc:"Names the version, for If-Match."`
	Body wire.Webhook
}

type changeWebhookRequest struct {
	Name    string `path:"name" maxLength:"100" doc:"The name of the webhook."`
	Key     string `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	IfMatch string `header:"If-Match" maxLength:"100" doc:"The ETag of the version that the webhook must have; otherwise 412."`
	Body    *wire.ChangeWebhook
}

// RemoveWebhook has the parameters of a removal.
type RemoveWebhook struct {
	Name    string `path:"name" maxLength:"100" doc:"The name of the webhook."`
	Key     string `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	IfMatch string `header:"If-Match" maxLength:"100" doc:"The ETag of the version that the webhook must have; otherwise 412."`
	Reason  string `query:"reason" maxLength:"200" doc:"The reason, which the audit keeps."`
	Actor   string `query:"actor" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
}

type testDeliveryRequest struct {
	Name    string `path:"name" maxLength:"100" doc:"The name of the webhook."`
	IfMatch string `header:"If-Match" maxLength:"100" doc:"The ETag of the version that the webhook must have; otherwise 412."`
	Body    wire.TestDelivery
}

type deliveryAt struct {
	Name string `path:"name" maxLength:"100" doc:"The name of the webhook."`
	ID   string `path:"id" maxLength:"150" doc:"The id of the delivery."`
}

type replayDeliveryRequest struct {
	Name string `path:"name" maxLength:"100" doc:"The name of the webhook."`
	ID   string `path:"id" maxLength:"150" doc:"The id of the delivery."`
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"Names the replay: a repeat with the same key starts nothing more."`
	Body *wire.ReplayDelivery
}

type deliveryReply struct{ Body belay.WebhookDelivery }

// webhooks adds the routes of webhooks.
func (a *api) webhooks() {
	read, operate := []belay.Scope{belay.ScopeRead}, []belay.Scope{belay.ScopeOperate}
	add(a, route{
		id: "listWebhooks", method: http.MethodGet, path: "/v1/webhooks", tag: "webhooks",
		summary: "List the webhooks", scopes: read,
	}, func(ctx context.Context, in *webhooksRequest) (*struct{ Body wire.Webhooks }, error) {
		page, err := a.b.Webhooks(ctx, belay.WebhookFilter{Cursor: in.Cursor, Limit: in.Limit})
		out := wire.Webhooks{Webhooks: make([]wire.Webhook, len(page.Webhooks)), Next: page.Next}
		for i := range page.Webhooks {
			out.Webhooks[i] = wire.WebhookOf(&page.Webhooks[i])
		}
		return &struct{ Body wire.Webhooks }{out}, err
	})
	add(a, route{
		id: "putWebhook", method: http.MethodPut, path: "/v1/webhooks/{name}", tag: "webhooks",
		summary: "Create a webhook, or change its signatures and executions",
		doc: "201: the webhook is new. 200: it was changed, or had these terms already. Senders post to /hooks/{name}. " +
			"The key needs the scopes operate and submit. 412: the webhook has another version.",
		example: `{"scheme": "github", "secrets": ["${{ secrets.GITHUB_HOOK }}"], "filter": "event.type == \"push\"", ` +
			`"execution": {"workflow": "build", "input": {"commit": "${{ event.data.after }}"}}}`,
		scopes: operate, status: http.StatusCreated, also: []int{http.StatusOK}, body: true,
		limit: belay.MaxWebhookBytes * 2, errors: []int{http.StatusConflict, http.StatusPreconditionFailed},
	}, a.putWebhook)
	add(a, route{
		id: "getWebhook", method: http.MethodGet, path: "/v1/webhooks/{name}", tag: "webhooks",
		summary: "Read a webhook, with its newest deliveries", scopes: read,
		doc: "refused has the newest requests, or messages of the queue, that the server which answers has refused, for example " +
			"because their signatures were wrong. consumer says how this server consumes the queue of a webhook of the scheme amqp.",
		errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *webhookAt) (*webhookReply, error) {
		h, err := a.b.Webhook(ctx, in.Name)
		a.complete(&h)
		return &webhookReply{wire.DocumentTag(h.Version), wire.WebhookOf(&h)}, err
	})
	add(a, route{
		id: "removeWebhook", method: http.MethodDelete, path: "/v1/webhooks/{name}", tag: "webhooks",
		summary: "Remove a webhook",
		doc: "Executions that it has started go on. 409: a document defines the webhook; change the document. 412: " +
			"the webhook has another version.",
		scopes: operate, status: http.StatusNoContent,
		errors: []int{http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *RemoveWebhook) (*struct{}, error) {
		_, err := a.changeWebhook(ctx, belay.WebhookChange{
			Name: in.Name, Action: belay.WebhookRemove, Actor: in.Actor, Reason: in.Reason,
		}, in.Key, in.IfMatch)
		return nil, err
	})
	a.webhookActions(operate)
	a.deliveries(read, operate)
}

func (a *api) putWebhook(ctx context.Context, in *putWebhookRequest) (*putWebhookReply, error) {
	if err := callerOf(ctx).need(belay.ScopeSubmit); err != nil {
		return nil, err
	}
	if in.IfNoneMatch != "" && in.IfNoneMatch != "*" {
		return nil, malformed("If-None-Match of this request can only be *")
	}
	version, err := wire.ParseDocumentTag(in.IfMatch)
	if err != nil {
		return nil, err
	}
	h, err := in.Body.Webhook(in.Name)
	if err == nil {
		err = a.checkQueue(&h)
	}
	if err != nil {
		return nil, err
	}
	ctx, replayed := belay.WithReplay(ctx)
	r, err := a.b.PutWebhook(ctx, belay.WebhookPut{
		Webhook: h, IfVersion: version, IfNew: in.IfNoneMatch != "", Actor: callerOf(ctx).actor(in.Body.Actor),
		Reason: in.Body.Reason, Op: wire.OpOf(in.Key),
	})
	if err != nil {
		return nil, unmet(err, in.IfMatch+in.IfNoneMatch != "")
	}
	a.hooks.forget(in.Name)
	out := &putWebhookReply{
		Status: http.StatusOK, ETag: wire.DocumentTag(r.Version), Location: wire.WebhookPath(r.Name),
		Replayed: yes(replayed), Body: wire.WebhookOf(&r.WebhookInfo),
	}
	if r.Created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

func (a *api) changeWebhook(
	ctx context.Context, c belay.WebhookChange, key, ifMatch string,
) (belay.WebhookInfo, error) {
	version, err := wire.ParseDocumentTag(ifMatch)
	if err != nil {
		return belay.WebhookInfo{}, err
	}
	c.IfVersion, c.Actor, c.Op = version, callerOf(ctx).actor(c.Actor), wire.OpOf(key)
	r, err := a.b.ChangeWebhook(ctx, c)
	a.hooks.forget(c.Name)
	return r, unmet(err, ifMatch != "")
}

// webhookActions adds the routes that pause and resume a webhook.
func (a *api) webhookActions(operate []belay.Scope) {
	for _, x := range []struct {
		action           belay.WebhookAction
		id, summary, doc string
	}{
		{belay.WebhookPauseAction, "pauseWebhook", "Pause a webhook",
			"Deliveries are refused with 503, so that senders repeat them later."},
		{belay.WebhookResume, "resumeWebhook", "Resume a webhook", ""},
	} {
		add(a, route{
			id: x.id, method: http.MethodPost, tag: "webhooks", summary: x.summary, doc: x.doc,
			path: "/v1/webhooks/{name}/" + string(x.action), scopes: operate, body: true,
			example: `{"reason": "the database moves"}`,
			errors:  []int{http.StatusConflict, http.StatusPreconditionFailed},
		}, func(ctx context.Context, in *changeWebhookRequest) (*webhookReply, error) {
			var by wire.By
			if in.Body != nil {
				by = in.Body.By
			}
			r, err := a.changeWebhook(ctx, belay.WebhookChange{
				Name: in.Name, Action: x.action, Actor: by.Actor, Reason: by.Reason,
			}, in.Key, in.IfMatch)
			return &webhookReply{wire.DocumentTag(r.Version), wire.WebhookOf(&r)}, err
		})
	}
}

// deliveries adds the routes that show, test and replay deliveries.
func (a *api) deliveries(read, operate []belay.Scope) {
	add(a, route{
		id: "testDelivery", method: http.MethodPost, path: "/v1/webhooks/{name}/deliveries", tag: "webhooks",
		summary: "Make a delivery without a signature, as a test",
		doc: "Starts an execution as a delivery of the sender would, also while the webhook is paused. The key needs " +
			"the scopes operate and submit.",
		example: `{"id": "test-1", "type": "push", "data": {"after": "3f2a9c1"}}`, scopes: operate, body: true,
		limit:  belay.MaxDeliveryBytes + 64<<10,
		errors: []int{http.StatusConflict, http.StatusPreconditionFailed},
	}, func(ctx context.Context, in *testDeliveryRequest) (*deliveryReply, error) {
		if err := callerOf(ctx).need(belay.ScopeSubmit); err != nil {
			return nil, err
		}
		version, err := wire.ParseDocumentTag(in.IfMatch)
		if err != nil {
			return nil, err
		}
		d, err := a.b.Deliver(ctx, belay.WebhookEvent{
			Webhook: in.Name, IfVersion: version, ID: in.Body.ID, Type: in.Body.Type, Headers: in.Body.Headers,
			Data: in.Body.Data, By: "test", Actor: callerOf(ctx).actor(in.Body.Actor),
		})
		return &deliveryReply{d}, unmet(err, in.IfMatch != "")
	})
	add(a, route{
		id: "getDelivery", method: http.MethodGet, path: "/v1/webhooks/{name}/deliveries/{id}", tag: "webhooks",
		summary: "Read one of the newest deliveries, with its data", scopes: read,
		errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *deliveryAt) (*struct{ Body belay.WebhookDeliveryData }, error) {
		d, err := a.b.WebhookDelivery(ctx, in.Name, in.ID)
		return &struct{ Body belay.WebhookDeliveryData }{d}, err
	})
	add(a, route{
		id: "replayDelivery", method: http.MethodPost, path: "/v1/webhooks/{name}/deliveries/{id}/replay",
		tag: "webhooks", summary: "Start another execution of one of the newest deliveries",
		doc:     "By the terms that the webhook has now; the filter does not apply.",
		example: `{}`, scopes: operate, body: true, errors: []int{http.StatusConflict},
	}, func(ctx context.Context, in *replayDeliveryRequest) (*deliveryReply, error) {
		var body wire.ReplayDelivery
		if in.Body != nil {
			body = *in.Body
		}
		d, err := a.b.ReplayDelivery(ctx, belay.WebhookReplay{
			Webhook: in.Name, ID: in.ID, Actor: callerOf(ctx).actor(body.Actor), Op: wire.OpOf(in.Key),
		})
		return &deliveryReply{d}, err
	})
}

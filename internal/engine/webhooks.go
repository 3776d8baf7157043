package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/catalog"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/webhook"
)

// PutWebhook creates a webhook or changes its terms.
func (e *Engine) PutWebhook(ctx context.Context, p belay.WebhookPut) (belay.WebhookPutResult, error) {
	if err := e.checkDocument(ctx, p.Execution.Document); err != nil {
		return belay.WebhookPutResult{}, err
	}
	c := &machine.PutWebhook{WebhookPut: p, Rules: webhook.Rules{}}
	e.committer.payloadChecks.precheck(c)
	r, err := e.do(ctx, c)
	if err != nil {
		return belay.WebhookPutResult{}, err
	}
	info, err := machine.WebhookView(r.Object)
	return belay.WebhookPutResult{
		WebhookInfo: info, Created: info.Version == 1 && !r.Replayed, Changed: !r.Replayed,
	}, err
}

// checkDocument returns an error if a submission names a document that is not stored.
func (e *Engine) checkDocument(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	ref, err := belay.ParseDocumentRef(name)
	if err == nil {
		_, err = e.described(ctx, ref.Name, ref.Version)
	}
	return err
}

// ChangeWebhook carries out an action on a webhook.
func (e *Engine) ChangeWebhook(ctx context.Context, c belay.WebhookChange) (belay.WebhookInfo, error) {
	r, err := e.do(ctx, &machine.ChangeWebhook{WebhookChange: c})
	if err != nil {
		return belay.WebhookInfo{}, err
	}
	if c.Action == belay.WebhookRemove {
		return belay.WebhookInfo{Webhook: belay.Webhook{Name: c.Name}}, nil
	}
	return machine.WebhookView(r.Object)
}

// Webhooks lists webhooks without their newest deliveries.
func (r *Reader) Webhooks(ctx context.Context, f belay.WebhookFilter) (belay.WebhookPage, error) {
	page := belay.WebhookPage{Webhooks: []belay.WebhookInfo{}}
	found, err := r.store.Query(ctx, store.Query{
		Of: store.Objects, Kind: machine.WebhookObject, After: f.Cursor, Limit: f.Limit,
	})
	if err != nil {
		return page, err
	}
	page.Next = found.Next
	for _, o := range found.Objects {
		v, err := machine.WebhookView(o)
		if err != nil {
			return page, err
		}
		v.Recent = nil
		page.Webhooks = append(page.Webhooks, v)
	}
	return page, nil
}

// Webhook reads one webhook.
func (r *Reader) Webhook(ctx context.Context, name string) (belay.WebhookInfo, error) {
	o, err := r.webhookObject(ctx, name)
	if err != nil {
		return belay.WebhookInfo{}, err
	}
	return machine.WebhookView(o)
}

func (r *Reader) webhookObject(ctx context.Context, name string) (*machine.Object, error) {
	op := "read webhook " + name
	if err := belay.CheckWebhookName(op, name); err != nil {
		return nil, err
	}
	o, err := r.object(ctx, machine.WebhookRef(name))
	if err == nil && o == nil {
		err = &belay.Error{
			Code: belay.CodeNotFound, Op: op,
			Message: fmt.Sprintf("there is no webhook %s; `belay webhooks ls` lists them", name),
		}
	}
	return o, err
}

// WebhookDelivery reads a remembered delivery with its data.
func (r *Reader) WebhookDelivery(ctx context.Context, name, id string) (belay.WebhookDeliveryData, error) {
	var out belay.WebhookDeliveryData
	o, err := r.webhookObject(ctx, name)
	if err != nil {
		return out, err
	}
	d, err := machine.FindDelivery(o, id)
	if err != nil {
		return out, err
	}
	out.WebhookDelivery = d.WebhookDelivery
	if d.Object != (machine.ObjectRef{}) {
		o, err := r.object(ctx, d.Object)
		if err != nil {
			return out, err
		}
		if o == nil { // a newer delivery has displaced it at this moment
			return out, &belay.Error{
				Code: belay.CodeNotFound, Op: "read delivery " + id,
				Message: fmt.Sprintf("the webhook %s does not remember this delivery", name),
			}
		}
		out.Headers, out.Data, err = machine.DeliveryData(o)
		return out, err
	}
	err = r.startedData(ctx, &out, d.Payload)
	return out, err
}

// startedData reads the data of a delivery from its execution.
func (r *Reader) startedData(ctx context.Context, out *belay.WebhookDeliveryData, inPayload bool) error {
	x, err := r.Detail(ctx, out.Execution)
	if err != nil {
		return err
	}
	var p belay.WebhookPayload
	if len(x.TriggerPayload) > 0 {
		if err := json.Unmarshal(x.TriggerPayload, &p); err != nil {
			return &belay.Error{
				Code: belay.CodeInternal, Op: "read delivery " + out.ID, Message: "its trigger payload cannot be read",
				Err: err,
			}
		}
	}
	out.Headers, out.Data = p.Headers, x.Input
	if inPayload {
		out.Data = p.Data
	}
	return nil
}

// Deliver starts the execution of a delivery.
func (e *Engine) Deliver(ctx context.Context, d belay.WebhookEvent) (belay.WebhookDelivery, error) {
	return e.receive(ctx, d, belay.OpID{})
}

// Publish delivers CloudEvents to the webhooks that want them.
func (e *Engine) Publish(ctx context.Context, p belay.CloudEventPublish) ([]belay.CloudEventResult, error) {
	return webhook.Publish(ctx, e, p)
}

// ReplayDelivery starts another execution of a remembered delivery.
func (e *Engine) ReplayDelivery(ctx context.Context, r belay.WebhookReplay) (belay.WebhookDelivery, error) {
	d, err := e.WebhookDelivery(ctx, r.Webhook, r.ID)
	if err != nil {
		return belay.WebhookDelivery{}, err
	}
	if r.Op.IsZero() {
		r.Op = belay.OpID(e.opt.IDs())
	}
	return e.receive(ctx, belay.WebhookEvent{
		Webhook: r.Webhook, ID: d.ID, Type: d.Type, Source: d.Source, Headers: d.Headers, Data: d.Data, By: "replay",
		Actor: r.Actor, IfVersion: r.IfVersion, IfCreated: r.IfCreated,
	}, r.Op)
}

// deliverTries is how often Deliver reads the terms of a webhook again that was changed in the meantime.
const deliverTries = 3

// receive decides about a delivery by the present terms of its webhook; op is the operation of a replay.
func (e *Engine) receive(ctx context.Context, d belay.WebhookEvent, op belay.OpID) (belay.WebhookDelivery, error) {
	if err := e.committer.admit(); err != nil {
		return belay.WebhookDelivery{}, err
	}
	for tries := 1; ; tries++ {
		info, err := e.Webhook(ctx, d.Webhook)
		if err != nil {
			return belay.WebhookDelivery{}, err
		}
		if d.IfVersion != 0 && d.IfVersion != info.Version {
			return belay.WebhookDelivery{}, &belay.Error{
				Code: belay.CodeConflict, Op: "deliver to webhook " + d.Webhook,
				Message: fmt.Sprintf("the version of the webhook is %d, not %d: read it again", info.Version,
					d.IfVersion),
			}
		}
		if !d.IfCreated.IsZero() && !d.IfCreated.Equal(info.CreatedAt) {
			return belay.WebhookDelivery{}, &belay.Error{
				Code: belay.CodeConflict, Op: "deliver to webhook " + d.Webhook,
				Message: "the webhook was removed and made again: read it again",
			}
		}
		c := &machine.Receive{
			Event: d, Edit: info.Version, Created: machine.At(info.CreatedAt),
			ID: belay.ExecutionID(e.opt.IDs()), Op: op, Defaults: e.opt.Defaults,
			FromQueue: info.Scheme == belay.SchemeAMQP,
		}
		if err := e.describeDelivery(ctx, c, &info.Webhook); err != nil {
			return belay.WebhookDelivery{}, err
		}
		e.committer.payloadChecks.precheck(c)
		r, err := e.do(ctx, c)
		if belay.CodeOf(err) == belay.CodeConflict && d.IfVersion == 0 && tries < deliverTries {
			if now, rerr := e.Webhook(ctx, d.Webhook); rerr == nil && now.Version != info.Version {
				continue
			}
		}
		return r.Delivery, err
	}
}

// describeDelivery completes the command with the submission, or with the reason why there is none.
func (e *Engine) describeDelivery(ctx context.Context, c *machine.Receive, h *belay.Webhook) error {
	if h.Signal != nil {
		return e.describeSignal(ctx, c, h)
	}
	x, err := webhook.Execution(h, &c.Event, c.Event.By == "replay")
	if err == nil {
		var complete belay.Submission
		if complete, err = catalog.Complete(ctx, e, *x); err == nil {
			c.Execution = &complete
		}
	}
	return nothing(c, err)
}

// nothing records why a delivery starts nothing. It returns an error that another attempt may not have.
func nothing(c *machine.Receive, err error) error {
	switch {
	case err == nil:
	case errors.Is(err, webhook.ErrFiltered):
		c.Outcome = belay.DeliveryFiltered
	default:
		switch belay.CodeOf(err) {
		case belay.CodeInvalid, belay.CodeNotFound, belay.CodePayloadTooLarge, belay.CodeConflict:
			c.Outcome, c.Text = belay.DeliveryFailed, err.Error()
		default:
			return err
		}
	}
	return nil
}

// describeSignal completes the command with the signal, or with the reason why there is none.
func (e *Engine) describeSignal(ctx context.Context, c *machine.Receive, h *belay.Webhook) error {
	to, payload, err := webhook.Signal(h, &c.Event, c.Event.By == "replay")
	if err == nil && to.Execution.IsZero() {
		to.Execution, err = e.withKey(ctx, to.Workflow, to.Key)
	}
	if err == nil {
		c.Signal = &belay.SignalRequest{Execution: to.Execution, Name: h.Signal.Name, Payload: payload}
	}
	return nothing(c, err)
}

// withKey finds the execution of a workflow with an idempotency key.
func (e *Engine) withKey(ctx context.Context, workflow, key string) (belay.ExecutionID, error) {
	page, err := e.Executions(ctx, belay.Filter{Workflow: workflow, Key: key, Limit: 1})
	if err == nil && len(page.Executions) == 0 {
		err = &belay.Error{
			Code: belay.CodeNotFound, Op: "signal",
			Message: fmt.Sprintf("no execution of the workflow %s has the idempotency key %.100q", workflow, key),
		}
	}
	if err != nil {
		return belay.ExecutionID{}, err
	}
	return page.Executions[0].ID, nil
}

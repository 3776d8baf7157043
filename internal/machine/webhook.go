package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/belaydev/belay"
)

// WebhookObject is the kind of the objects that store webhooks. Only operators change the terms of a webhook; a
// delivery changes what the object remembers of deliveries, and writes no audit, because the execution that it starts
// names it. The data of a delivery that started nothing, or whose data its execution does not have, is an object of
// the kind DeliveryObject.
const (
	WebhookObject  ObjectKind = "webhook"
	DeliveryObject ObjectKind = "webhook_delivery"
	// webhookCountObject is the kind of the one object that has the number of webhooks.
	webhookCountObject ObjectKind = "webhook_count"
)

var (
	webhookCodec      = codec[webhookBody]{WebhookObject}
	webhookCountCodec = codec[total]{webhookCountObject}
	webhookCountRef   = webhookCountCodec.ref("all")
)

// WebhookRef is the name of a webhook's object.
func WebhookRef(name string) ObjectRef { return webhookCodec.ref(name) }

// deliveryRef is the name of the object with the data of a delivery.
func deliveryRef(name string, serial int64) ObjectRef {
	return ObjectRef{DeliveryObject, fmt.Sprintf("%s/%d", name, serial)}
}

// WebhookRules checks what the rules do not know of a webhook: its scheme and its expressions. It depends on nothing
// but its argument.
type WebhookRules interface {
	// Check returns CodeInvalid if the scheme or an expression is wrong.
	Check(w *belay.Webhook) error
}

// webhookBody is the body of the object of a webhook.
type webhookBody struct {
	edited
	Terms belay.Webhook `json:"terms"`
	// Serial is the number of the next object with the data of a delivery.
	Serial int64                          `json:"serial,omitempty"`
	Counts map[belay.WebhookOutcome]int64 `json:"counts,omitempty"`
	Recent []delivery                     `json:"recent,omitempty"` // the newest first
}

// WebhookView decodes a webhook from its object.
func WebhookView(o *Object) (belay.WebhookInfo, error) {
	b, err := webhookCodec.decode(o)
	if err != nil {
		return belay.WebhookInfo{}, err
	}
	v := belay.WebhookInfo{
		Webhook: b.Terms, Version: b.Edit, CreatedAt: b.CreatedAt.Time(), UpdatedAt: b.EditedAt.Time(),
		UpdatedBy: b.EditedBy, DefinedBy: b.Document, Deliveries: b.Counts,
	}
	if p := b.Paused; p != nil {
		v.Paused = &belay.WebhookPause{At: p.At.Time(), By: p.By, Reason: p.Reason}
	}
	for i := range b.Recent {
		v.Recent = append(v.Recent, b.Recent[i].WebhookDelivery)
	}
	return v, nil
}

// PutWebhook creates a webhook or changes its terms. It is also a part of ApplyDocument.
type PutWebhook struct {
	belay.WebhookPut
	Rules  WebhookRules
	judged *judgedTerms
}

// Judge checks the terms.
func (c *PutWebhook) Judge() {
	if c.judged != nil {
		return
	}
	c.judged = &judgedTerms{err: c.check()}
	if c.judged.err == nil {
		c.judged.text, c.judged.err = json.Marshal(&c.Webhook)
	}
	if n := len(c.judged.text); n > belay.MaxWebhookBytes {
		c.judged.err = refuse(belay.CodePayloadTooLarge, "put webhook",
			"the webhook has %d bytes as JSON; the limit is %d", n, belay.MaxWebhookBytes)
	}
}

// Check judges the terms and returns their error.
func (c *PutWebhook) Check() error {
	c.Judge()
	return c.judged.err
}

func (c *PutWebhook) check() error {
	const op = "put webhook"
	h := &c.Webhook
	if err := belay.CheckWebhookName(op, h.Name); err != nil {
		return err
	}
	if err := checkEdit(op, c.Actor, c.Reason, c.IfVersion, c.IfNew); err != nil {
		return err
	}
	setDefault(&h.MaxBytes, belay.MaxDeliveryBytes)
	least := 1
	if h.Scheme == belay.SchemeAMQP {
		least = 0 // no limit: messages above a rate wait in the queue
	} else {
		setDefault(&h.Rate, belay.DefaultDeliveryRate)
	}
	switch {
	case h.Scheme == belay.SchemeCloudEvents && len(h.Secrets) > 0:
		return refuse(belay.CodeInvalid, op,
			"a webhook of CloudEvents has no secret: their senders have keys of the API")
	case h.Scheme == belay.SchemeAMQP && len(h.Secrets) > 0:
		return refuse(belay.CodeInvalid, op,
			"a webhook of a queue has no secret: the permissions in RabbitMQ say who may write to the queue")
	case h.Scheme.Signs() && (len(h.Secrets) < 1 || len(h.Secrets) > 2):
		return refuse(belay.CodeInvalid, op, "a webhook has one secret, or two while one replaces the other")
	case h.MaxBytes < 1 || h.MaxBytes > belay.MaxDeliveryBytes:
		return refuse(belay.CodeInvalid, op, "max_bytes is %d; it can be from 1 to %d", h.MaxBytes,
			belay.MaxDeliveryBytes)
	case h.Rate < least || h.Rate > maxDeliveryRate:
		return refuse(belay.CodeInvalid, op, "rate is %d per second; it can be from %d to %d", h.Rate, least,
			maxDeliveryRate)
	}
	if err := c.Rules.Check(h); err != nil {
		return err
	}
	if h.Signal != nil {
		return checkHookSignal(op, h)
	}
	if l, set := h.Execution.Labels[belay.LabelWebhook]; set && l != h.Name {
		return refuse(belay.CodeInvalid, op, "the label %s is %q; Belay sets it to %q", belay.LabelWebhook, l, h.Name)
	}
	if err := checkTriggered(op, "webhook", &h.Execution); err != nil {
		return err
	}
	return checkReceived(h)
}

// checkHookSignal checks the description of the signals of a webhook.
func checkHookSignal(op string, h *belay.Webhook) error {
	s := h.Signal
	byID, byKey := s.Execution != "" && s.Workflow == "" && s.Key == "", s.Workflow != "" && s.Key != ""
	switch {
	case !sameSubmission(&h.Execution, &belay.Submission{}):
		return refuse(belay.CodeInvalid, op, "execution and signal exclude each other; give one")
	case byID == (byKey && s.Execution == ""):
		return refuse(belay.CodeInvalid, op, "a signal names its execution by execution, or by workflow and key")
	}
	if err := checkName(op, "the signal's name", s.Name, true); err != nil {
		return err
	}
	return checkName(op, "the signal's workflow", s.Workflow, false)
}

// sameSubmission reports whether two submissions are the same as JSON.
func sameSubmission(a, b *belay.Submission) bool {
	left, err := json.Marshal(a)
	right, errb := json.Marshal(b)
	return err == nil && errb == nil && bytes.Equal(left, right)
}

// checkReceived checks the description of the executions of a webhook, without the input and the values of the labels,
// which each delivery decides.
func checkReceived(h *belay.Webhook) error {
	x := h.Execution
	x.Input, x.Labels = nil, make(map[string]string, len(x.Labels))
	for name := range h.Execution.Labels {
		x.Labels[name] = "x"
	}
	if x.Document != "" {
		x.Document, x.Workflow = "", "document"
	}
	c := &Receive{
		Event: belay.WebhookEvent{Webhook: h.Name, ID: "x", Data: json.RawMessage("null")}, Execution: &x,
		ID: belay.ExecutionID{1},
	}
	return c.Submit().check()
}

// maxDeliveryRate is the largest number of deliveries per second that a webhook can allow.
const maxDeliveryRate = 10_000

// checkTriggered checks the description of the executions that a schedule or a webhook starts.
func checkTriggered(op, what string, x *belay.Submission) error {
	for _, own := range []struct {
		name string
		set  bool
	}{
		{"id", !x.ID.IsZero()}, {"idempotency_key", x.IdempotencyKey != ""}, {"idempotency", x.Idempotency != ""},
		{"trigger", x.Trigger != ""}, {"trigger_payload", len(x.TriggerPayload) > 0}, {"actor", x.Actor != ""},
		{"due_at", !x.DueAt.IsZero()}, {"parent", x.Parent != nil || x.ParentKey != ""},
	} {
		if own.set {
			return refuse(belay.CodeInvalid, op, "the execution of a %s has no %s; Belay sets it", what, own.name)
		}
	}
	if x.Document == "" {
		return nil
	}
	if x.Workflow != "" || x.Version != "" {
		return refuse(belay.CodeInvalid, op, "document and workflow exclude each other; give one")
	}
	_, err := belay.ParseDocumentRef(x.Document)
	return err
}

// Need asks the store for the object of the webhook, and for the number of webhooks.
func (c *PutWebhook) Need(n *Need) {
	n.Objects = append(n.Objects, WebhookRef(c.Name), webhookCountRef)
}

func (c *PutWebhook) apply(w *world) (Reply, error) {
	c.Judge()
	if c.judged.err != nil {
		return Reply{}, c.judged.err
	}
	op := "put webhook " + c.Name
	h, err := w.webhook(c.Name)
	if err != nil {
		return Reply{}, err
	}
	done := edit{Op: c.Op, Action: "put"}
	if found, err := h.body.repeated(op, done); found {
		return Reply{Object: h.row.copy(), Replayed: true}, err
	}
	if err := h.body.expect(op, "webhook", h.row != nil, c.IfVersion, c.IfNew); err != nil {
		return Reply{}, err
	}
	if err := h.body.free(op, "webhook"); err != nil {
		return Reply{}, err
	}
	if h.row == nil {
		if err := w.count(op, webhookCountCodec, "webhooks", 1, belay.MaxWebhooks); err != nil {
			return Reply{}, err
		}
	} else if c.same(h) {
		return Reply{Object: h.row.copy(), Replayed: true}, nil
	}
	return c.set(w, op, h, done)
}

// same reports whether a webhook has the terms already.
func (c *PutWebhook) same(h *webhook) bool {
	old, err := json.Marshal(&h.body.Terms)
	return err == nil && bytes.Equal(old, c.judged.text)
}

// set gives a webhook the terms.
func (c *PutWebhook) set(w *world, op string, h *webhook, done edit) (Reply, error) {
	if h.row == nil {
		h.body.CreatedAt = w.Now
	}
	h.body.Terms = c.Webhook
	h.body.change(w.Now, c.Actor)
	return h.write(w, op, done, c.Actor, c.Reason)
}

// ChangeWebhook pauses, resumes or removes a webhook.
type ChangeWebhook struct{ belay.WebhookChange }

// Need asks the store for the object of the webhook, and for the number of webhooks.
func (c *ChangeWebhook) Need(n *Need) {
	n.Objects = append(n.Objects, WebhookRef(c.Name), webhookCountRef)
}

func (c *ChangeWebhook) apply(w *world) (Reply, error) {
	op := fmt.Sprintf("%s webhook %s", c.Action, c.Name)
	if err := belay.CheckWebhookName(op, c.Name); err != nil {
		return Reply{}, err
	}
	if err := checkEdit(op, c.Actor, c.Reason, c.IfVersion, false); err != nil {
		return Reply{}, err
	}
	h, err := w.webhook(c.Name)
	if err != nil {
		return Reply{}, err
	}
	if h.row == nil {
		return Reply{}, noWebhook(op, c.Name)
	}
	done := edit{Op: c.Op, Action: string(c.Action)}
	if found, err := h.body.repeated(op, done); found {
		return Reply{Object: h.row.copy(), Replayed: true}, err
	}
	if err := h.body.expect(op, "webhook", true, c.IfVersion, false); err != nil {
		return Reply{}, err
	}
	switch c.Action {
	case belay.WebhookPauseAction:
		if h.body.Paused != nil && h.body.Paused.Reason == c.Reason {
			return Reply{Object: h.row.copy(), Replayed: true}, nil
		}
		h.body.Paused = &paused{At: w.Now, By: c.Actor, Reason: c.Reason}
	case belay.WebhookResume:
		if h.body.Paused == nil {
			return Reply{Object: h.row.copy(), Replayed: true}, nil
		}
		h.body.Paused = nil
	case belay.WebhookRemove:
		if err := h.body.free(op, "webhook"); err != nil {
			return Reply{}, err
		}
		if err := w.count(op, webhookCountCodec, "webhooks", -1, belay.MaxWebhooks); err != nil {
			return Reply{}, err
		}
		return h.remove(w, op, done, c.Actor, c.Reason)
	default:
		return Reply{}, refuse(belay.CodeInvalid, op, "there is no action %q on a webhook", c.Action)
	}
	h.body.change(w.Now, c.Actor)
	return h.write(w, op, done, c.Actor, c.Reason)
}

func noWebhook(op, name string) error {
	return refuse(belay.CodeNotFound, op, "there is no webhook %s; `belay webhooks ls` lists them", name)
}

// webhook is the object of a webhook in the state after the earlier commands of the batch. body is a copy that the
// present command may change.
type webhook struct {
	name string
	row  *Object // nil if there is none
	body webhookBody
}

func (w *world) webhook(name string) (*webhook, error) {
	h := &webhook{name: name, row: w.object(WebhookRef(name))}
	if h.row != nil && h.row.Gone {
		h.row = nil
	}
	if h.row == nil {
		return h, nil
	}
	b, err := webhookCodec.decode(h.row)
	if err != nil {
		return nil, err
	}
	h.body = *b
	return h, nil
}

// remove removes the webhook and the data of its deliveries.
func (h *webhook) remove(w *world, op string, done edit, actor, reason string) (Reply, error) {
	for i := range h.body.Recent {
		h.body.Recent[i].discard(w, h.name)
	}
	r, err := h.write(w, op, done, actor, reason)
	if err == nil {
		w.rewrite(WebhookRef(h.name)).Gone = true
	}
	return r, err
}

// write writes the object of the webhook, and an entry in the audit.
func (h *webhook) write(w *world, op string, done edit, actor, reason string) (Reply, error) {
	about := h.body.remember(done, reason)
	body, err := webhookCodec.encode(&h.body)
	if err != nil {
		return Reply{}, err
	}
	expected := int64(0)
	if h.row != nil {
		expected = h.row.Version
	}
	return w.put(op, put{
		ref: WebhookRef(h.name), expected: expected, body: body, action: done.Action, actor: actor, reason: about,
		op: done.Op,
	})
}

// advance writes the object of the webhook after a delivery.
func (h *webhook) advance(w *world) error {
	body, err := webhookCodec.encode(&h.body)
	if err != nil {
		return err
	}
	o := w.rewrite(WebhookRef(h.name))
	o.Version, o.UpdatedAt, o.Body = o.Version+1, w.Now, body
	return nil
}

// checkEvent checks what the caller of a delivery says of it.
func checkEvent(op string, e *belay.WebhookEvent) error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case e.ID == "" || len(e.ID) > maxDeliveryID || strings.ContainsFunc(e.ID, odd):
		return refuse(belay.CodeInvalid, op, "the id of a delivery has 1 to %d printable characters of ASCII",
			maxDeliveryID)
	case e.By != "" && e.By != byTest && e.By != byReplay:
		return refuse(belay.CodeInvalid, op, "by is %q; it can be %s", e.By, byTest)
	}
	if err := checkName(op, "the type", e.Type, false); err != nil {
		return err
	}
	size := 0
	for name, value := range e.Headers {
		size += len(name) + len(value)
		if strings.ContainsFunc(name+value, unicode.IsControl) {
			return refuse(belay.CodeInvalid, op, "the headers have control characters")
		}
	}
	if len(e.Headers) > maxDeliveryHeaders || size > maxHeaderBytes {
		return refuse(belay.CodeInvalid, op, "there are %d headers of %d bytes; the limits are %d and %d",
			len(e.Headers), size, maxDeliveryHeaders, maxHeaderBytes)
	}
	if len(e.Source) > maxDeliverySource {
		return refuse(belay.CodeInvalid, op, "the source has %d bytes; the limit is %d", len(e.Source),
			maxDeliverySource)
	}
	if err := checkName(op, "the actor", e.Actor, false); err != nil {
		return err
	}
	return CheckPayload(op, "the data", e.Data, belay.MaxDeliveryBytes)
}

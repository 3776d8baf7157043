package machine

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"

	"github.com/belaydev/belay"
)

const (
	// deliveryPrefix, testPrefix and replayPrefix begin the idempotency keys that Belay makes for the deliveries of
	// webhooks.
	deliveryPrefix, testPrefix, replayPrefix = "webhook-delivery:", "webhook-test:", "webhook-replay:"
	// maxDeliveryID is the largest length of the id of a delivery, and maxDeliveryText of the text of a failed one.
	maxDeliveryID, maxDeliveryText = 150, 300
	maxDeliverySource              = 2 << 10
	// maxDeliveryHeaders and maxHeaderBytes limit the headers of a delivery.
	maxDeliveryHeaders, maxHeaderBytes = 100, 64 << 10
	// byTest and byReplay are the values of WebhookPayload.By.
	byTest, byReplay = "test", "replay"
)

// delivery is a delivery that a webhook remembers.
type delivery struct {
	belay.WebhookDelivery
	// Kept says where the data is.
	Kept dataPlace `json:"kept,omitempty"`
	// Serial is the number of the object with the data.
	Serial int64 `json:"serial,omitempty"`
}

// dataPlace says where the data of a delivery is.
type dataPlace string

const (
	keptInput   dataPlace = ""        // it is the input of the execution
	keptPayload dataPlace = "payload" // it is in the trigger payload of the execution
	keptOwn     dataPlace = "own"     // it has an object of its own
)

// keptData is the body of an object with the data of a delivery.
type keptData struct {
	Headers map[string]string `json:"headers,omitempty"`
	Data    json.RawMessage   `json:"data"`
}

// discard removes the object with the data of a delivery, if there is one.
func (d *delivery) discard(w *world, webhook string) {
	if d.Kept == keptOwn {
		w.remove(deliveryRef(webhook, d.Serial))
	}
}

// Receive decides about a delivery of a webhook.
type Receive struct {
	Event belay.WebhookEvent
	// Edit is the version of the terms with which the caller has made Execution. Receive is refused if the terms have
	// changed since.
	Edit int
	// Created is when the webhook was created that the caller has read. A webhook that was removed and made again has
	// the same versions as the one before.
	Created Time
	// ID is the id of the new execution.
	ID belay.ExecutionID
	// Execution is the submission with the input of this delivery, and without the name of a stored document. It is nil
	// if there is nothing to submit; then Outcome and Text say why.
	Execution *belay.Submission
	// Signal is the signal that the delivery sends, instead of an execution; nil if there is none. Receive sets its
	// operation and its actor.
	Signal  *belay.SignalRequest
	Outcome belay.WebhookOutcome
	Text    string
	// FromQueue says that the deliveries of the webhook are the messages of a queue.
	FromQueue bool
	// Op is the operation of a replay.
	Op belay.OpID
	// Defaults are those of Submit.
	Defaults belay.Policy

	submit *Submit
	signal *Deliver
	where  dataPlace
}

// deliver is the command that sends the signal; nil if there is none. Its operation follows from the delivery, so that
// the signal is sent once. The audit has it only if a caller with a name makes the delivery:
// a sender outside would fill the audit.
func (c *Receive) deliver() *Deliver {
	if c.signal == nil && c.Signal != nil {
		s := *c.Signal
		sum := sha256.Sum256([]byte(c.key()))
		copy(s.Op[:], sum[:])
		s.Actor = cmp.Or(c.Event.Actor, "webhook "+c.Event.Webhook)
		c.signal = &Deliver{SignalRequest: s, unaudited: c.Event.Actor == ""}
	}
	return c.signal
}

// key names the delivery among all deliveries of all webhooks.
func (c *Receive) key() string {
	e := &c.Event
	switch e.By {
	case byTest:
		return testPrefix + e.Webhook + ":" + e.ID
	case byReplay:
		return replayPrefix + e.Webhook + ":" + c.Op.String()
	}
	return deliveryPrefix + e.Webhook + ":" + e.ID
}

// Submit is the submission of the delivery; nil if there is none. Its idempotency key has the names of the webhook and
// of the delivery, so that no delivery starts two executions.
func (c *Receive) Submit() *Submit {
	if c.submit != nil || c.Execution == nil {
		return c.submit
	}
	x, e := *c.Execution, &c.Event
	x.ID, x.Trigger, x.Actor = c.ID, belay.TriggerWebhook, e.Actor
	switch {
	case c.FromQueue:
		x.Trigger = belay.TriggerQueue
	case e.Source != "":
		x.Trigger = belay.TriggerEvent
	}
	setDefault(&x.Actor, "webhook "+e.Webhook)
	x.IdempotencyKey = c.key()
	x.TriggerPayload, c.where = c.payload(bytes.Equal(x.Input, e.Data))
	labels := maps.Clone(x.Labels)
	if labels == nil {
		labels = make(map[string]string, 1)
	}
	labels[belay.LabelWebhook] = e.Webhook
	x.Labels = labels
	c.submit = &Submit{Submission: x, Defaults: c.Defaults, own: true}
	return c.submit
}

// payload is the trigger payload, and where it leaves the data.
func (c *Receive) payload(input bool) (json.RawMessage, dataPlace) {
	e := &c.Event
	p := belay.WebhookPayload{
		Webhook: e.Webhook, ID: e.ID, Type: e.Type, Source: e.Source, By: e.By, Headers: e.Headers,
	}
	try := func() json.RawMessage {
		text, err := json.Marshal(&p)
		if err != nil || len(text) > belay.MaxTriggerPayload {
			return nil
		}
		return text
	}
	where := keptInput
	if !input {
		p.Data, where = e.Data, keptPayload
		if text := try(); text != nil {
			return text, where
		}
		p.Data, where = nil, keptOwn
	}
	if text := try(); text != nil {
		return text, where
	}
	p.Headers = nil
	return try(), where
}

// Judge checks the submission and computes its hash.
func (c *Receive) Judge() {
	if s := c.Submit(); s != nil {
		s.Judge()
	}
	if d := c.deliver(); d != nil {
		d.Judge()
	}
}

// Need asks the store for the object of the webhook, and for all that the submission needs.
func (c *Receive) Need(n *Need) {
	n.Objects = append(n.Objects, WebhookRef(c.Event.Webhook))
	if s := c.Submit(); s != nil {
		s.Need(n)
	}
	if d := c.deliver(); d != nil {
		d.Need(n)
	}
}

func (c *Receive) apply(w *world) (Reply, error) {
	op := "deliver to webhook " + c.Event.Webhook
	if err := checkEvent(op, &c.Event); err != nil {
		return Reply{}, err
	}
	h, err := w.webhook(c.Event.Webhook)
	switch {
	case err != nil:
		return Reply{}, err
	case h.row == nil:
		return Reply{}, noWebhook(op, c.Event.Webhook)
	case h.body.Edit != c.Edit || h.body.CreatedAt != c.Created:
		return Reply{}, refuse(belay.CodeConflict, op, "the webhook was changed at this moment; try again")
	case h.body.Paused != nil && c.Event.By == "":
		return Reply{}, refuse(belay.CodeConflict, op, "the webhook is paused")
	}
	d := delivery{WebhookDelivery: belay.WebhookDelivery{
		ID: c.Event.ID, Type: c.Event.Type, Source: c.Event.Source, At: w.Now.Time(),
		Outcome: c.Outcome, By: c.Event.By,
		Text: clip(c.Text, maxDeliveryText), Bytes: len(c.Event.Data),
	}, Kept: keptOwn}
	if known, found := h.known(w, c); found {
		return Reply{Delivery: known, Replayed: true}, nil
	}
	if c.Execution != nil || c.Signal != nil {
		if err := c.start(w, &d); err != nil {
			return Reply{}, err
		}
	}
	if err := h.note(w, &d, &c.Event); err != nil {
		return Reply{}, err
	}
	return Reply{Delivery: d.WebhookDelivery}, h.advance(w)
}

// known finds the outcome of an earlier delivery with the same id. A delivery of which no execution could be made may
// be repeated.
func (h *webhook) known(w *world, c *Receive) (out belay.WebhookDelivery, found bool) {
	e := &c.Event
	if e.By != byReplay {
		i := slices.IndexFunc(h.body.Recent, func(d delivery) bool {
			return d.ID == e.ID && d.By == e.By && d.Outcome != belay.DeliveryFailed
		})
		if i >= 0 {
			out, found = h.body.Recent[i].WebhookDelivery, true
		}
	}
	if s := c.Submit(); s != nil && !found {
		row, stored := w.keys[s.key()]
		out, found = belay.WebhookDelivery{
			ID: e.ID, Type: e.Type, At: w.Now.Time(), By: e.By, Execution: row.Execution,
			Outcome: belay.DeliveryStarted, Bytes: len(e.Data),
		}, stored
	}
	if found && (out.Outcome == belay.DeliveryStarted || out.Outcome == belay.DeliverySignalled) {
		out.Outcome = belay.DeliveryDuplicate
	}
	return out, found
}

// start submits the execution of the delivery, or sends its signal. It returns the errors that another attempt may not
// have.
func (c *Receive) start(w *world, d *delivery) error {
	var r Reply
	var err error
	if c.Signal != nil {
		_, err = c.deliver().apply(w)
	} else {
		r, err = c.Submit().apply(w)
	}
	if err != nil {
		switch code := belay.CodeOf(err); {
		case code == belay.CodeInvalid, code == belay.CodePayloadTooLarge, code == belay.CodeNotFound,
			code == belay.CodeIdempotencyMismatch, code == belay.CodeConflict && c.Signal != nil:
			d.Outcome, d.Text = belay.DeliveryFailed, clip(err.Error(), maxDeliveryText)
			return nil
		}
		return err
	}
	if c.Signal != nil {
		d.Outcome, d.Execution = belay.DeliverySignalled, c.Signal.Execution
		return nil
	}
	d.Outcome, d.Execution, d.Kept = belay.DeliveryStarted, r.ID, c.where
	return nil
}

// note counts a delivery, and remembers it with its data.
func (h *webhook) note(w *world, d *delivery, e *belay.WebhookEvent) error {
	if d.Kept == keptOwn {
		h.body.Serial++
		d.Serial = h.body.Serial
		body, err := json.Marshal(keptData{e.Headers, e.Data})
		if err != nil {
			return refuse(belay.CodeInvalid, "deliver", "the data is not JSON: %v", err)
		}
		w.add(deliveryRef(h.name, d.Serial), "", body)
	}
	counts := maps.Clone(h.body.Counts)
	if counts == nil {
		counts = make(map[belay.WebhookOutcome]int64, 1)
	}
	counts[d.Outcome]++
	recent := append([]delivery{*d}, h.body.Recent...)
	for i := belay.MaxRecentDeliveries; i < len(recent); i++ {
		recent[i].discard(w, h.name)
	}
	h.body.Counts, h.body.Recent = counts, recent[:min(len(recent), belay.MaxRecentDeliveries)]
	return nil
}

// KeptDelivery says where the data of a remembered delivery is: in an object, or else in the input or the trigger
// payload of its execution.
type KeptDelivery struct {
	belay.WebhookDelivery
	Object  ObjectRef // empty if the execution has the data
	Payload bool      // the trigger payload has the data
}

// FindDelivery finds the newest delivery with an id among those that a webhook remembers.
func FindDelivery(o *Object, id string) (KeptDelivery, error) {
	b, err := webhookCodec.decode(o)
	if err != nil {
		return KeptDelivery{}, err
	}
	i := slices.IndexFunc(b.Recent, func(d delivery) bool { return d.ID == id && d.By == "" })
	if i < 0 { // a test or a replay
		i = slices.IndexFunc(b.Recent, func(d delivery) bool { return d.ID == id })
	}
	if i < 0 {
		return KeptDelivery{}, refuse(belay.CodeNotFound, "read delivery "+id,
			"the webhook %s does not remember this delivery; it remembers the newest %d", o.Name,
			belay.MaxRecentDeliveries)
	}
	d := &b.Recent[i]
	k := KeptDelivery{WebhookDelivery: d.WebhookDelivery, Payload: d.Kept == keptPayload}
	if d.Kept == keptOwn {
		k.Object = deliveryRef(o.Name, d.Serial)
	}
	return k, nil
}

// DeliveryData decodes the object with the data of a delivery.
func DeliveryData(o *Object) (headers map[string]string, data json.RawMessage, err error) {
	var k keptData
	if err := json.Unmarshal(o.Body, &k); err != nil {
		return nil, nil, refuse(belay.CodeInternal, "read delivery", "the delivery %s cannot be read: %v", o.Name, err)
	}
	return k.Headers, k.Data, nil
}

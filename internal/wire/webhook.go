package wire

import (
	"encoding/json"
	"net/url"
	"time"

	"github.com/belaydev/belay"
)

// WebhookTerms are the signatures and the executions of a webhook.
type WebhookTerms struct {
	Scheme    belay.WebhookScheme  `json:"scheme" enum:"hmac,standard,github,gitlab,stripe,slack,cloudevents,amqp" doc:"How the sender signs its deliveries. Events for a webhook of cloudevents come to /v1/cloudevents. The deliveries of a webhook of amqp are the messages of a queue in RabbitMQ."`
	HMAC      *belay.WebhookHMAC   `json:"hmac,omitempty" doc:"Describes the signature. For the scheme hmac only."`
	AMQP      *belay.WebhookAMQP   `json:"amqp,omitempty" doc:"The queue. For the scheme amqp only."`
	Secrets   []string             `json:"secrets,omitempty" maxItems:"2" doc:"One or two references such as ${{ secrets.GITHUB_HOOK }}. A signature with either is right. None for the schemes cloudevents and amqp."`
	Filter    string               `json:"filter,omitempty" maxLength:"4096" doc:"An expression. A delivery for which it is false starts nothing."`
	MaxBytes  int                  `json:"max_bytes,omitempty" minimum:"0" doc:"The largest body; without it, 1 MiB, which is also the maximum."`
	Rate      int                  `json:"rate,omitempty" minimum:"0" doc:"The deliveries per second that one server accepts; without it, 50, and with the scheme amqp no limit."`
	Signal    *belay.WebhookSignal `json:"signal,omitempty" doc:"The signals that deliveries send, instead of starting executions."`
	Execution *Submit              `json:"execution,omitempty" doc:"The executions. Texts in its input and the values of its labels may contain expressions in ${{ }}; without an input, the input is the body. Belay sets id, idempotency_key, trigger, trigger_payload and actor for each delivery."`
}

// WebhookTermsOf converts the terms of a webhook for the wire.
func WebhookTermsOf(h *belay.Webhook) WebhookTerms {
	w := WebhookTerms{
		Scheme: h.Scheme, HMAC: h.HMAC, Secrets: h.Secrets, Filter: h.Filter, MaxBytes: h.MaxBytes, Rate: h.Rate,
		Signal: h.Signal, AMQP: h.AMQP,
	}
	if h.Signal == nil {
		x := SubmitOf(h.Execution)
		w.Execution = &x
	}
	return w
}

// Webhook converts the terms from the wire.
func (w *WebhookTerms) Webhook(name string) (belay.Webhook, error) {
	h := belay.Webhook{
		Name: name, Scheme: w.Scheme, HMAC: w.HMAC, Secrets: w.Secrets, Filter: w.Filter, MaxBytes: w.MaxBytes,
		Rate: w.Rate, Signal: w.Signal, AMQP: w.AMQP,
	}
	var err error
	if w.Execution != nil {
		h.Execution, err = w.Execution.Submission()
	}
	return h, err
}

// PutWebhook sets the terms of a webhook. The headers are those of PutSchedule.
type PutWebhook struct {
	WebhookTerms
	By
}

// Webhook is a webhook with its state.
type Webhook struct {
	Name string `json:"name"`
	WebhookTerms
	Version    int                            `json:"version" doc:"Counts the changes by operators, from 1."`
	DefinedBy  string                         `json:"defined_by,omitempty" doc:"The stored document that defines the webhook. Only another version of the document changes or removes such a webhook."`
	Paused     *belay.WebhookPause            `json:"paused,omitempty" doc:"Present if the webhook is paused."`
	CreatedAt  time.Time                      `json:"created_at"`
	UpdatedAt  time.Time                      `json:"updated_at" doc:"The last change by an operator."`
	UpdatedBy  string                         `json:"updated_by,omitempty"`
	Recent     []belay.WebhookDelivery        `json:"recent,omitempty" doc:"The newest deliveries without duplicates, the newest first, 50 at most. Not in lists."`
	Deliveries map[belay.WebhookOutcome]int64 `json:"deliveries,omitempty" doc:"The number of deliveries by outcome: started, filtered, failed."`
	Refused    []belay.WebhookRefusal         `json:"refused,omitempty" doc:"The newest requests, or messages of the queue, that the server which answers has refused, for example because their signatures were wrong. Not in lists."`
	Consumer   *belay.WebhookConsumer         `json:"consumer,omitempty" doc:"How the server which answers consumes the queue. For the scheme amqp only, and not in lists."`
}

// WebhookOf converts a webhook for the wire.
func WebhookOf(h *belay.WebhookInfo) Webhook {
	return Webhook{
		Name: h.Name, WebhookTerms: WebhookTermsOf(&h.Webhook), Version: h.Version, DefinedBy: h.DefinedBy,
		Paused: h.Paused, CreatedAt: h.CreatedAt, UpdatedAt: h.UpdatedAt, UpdatedBy: h.UpdatedBy, Recent: h.Recent,
		Deliveries: h.Deliveries, Refused: h.Refused, Consumer: h.Consumer,
	}
}

// Info converts a webhook from the wire.
func (w *Webhook) Info() (belay.WebhookInfo, error) {
	h, err := w.WebhookTerms.Webhook(w.Name)
	return belay.WebhookInfo{
		Webhook: h, Version: w.Version, DefinedBy: w.DefinedBy, Paused: w.Paused, CreatedAt: w.CreatedAt,
		UpdatedAt: w.UpdatedAt, UpdatedBy: w.UpdatedBy, Recent: w.Recent, Deliveries: w.Deliveries,
		Refused: w.Refused, Consumer: w.Consumer,
	}, err
}

// Webhooks is a page of webhooks.
type Webhooks struct {
	Webhooks []Webhook `json:"webhooks"`
	Next     string    `json:"next,omitempty" doc:"The cursor of the next page."`
}

// ChangeWebhook pauses or resumes a webhook.
type ChangeWebhook struct{ By }

// TestDelivery is a delivery that an operator makes.
type TestDelivery struct {
	ID      string            `json:"id" minLength:"1" maxLength:"150" doc:"The id of the delivery. A repeat with the same id starts nothing."`
	Type    string            `json:"type,omitempty" maxLength:"200" doc:"The name of the event."`
	Headers map[string]string `json:"headers,omitempty" doc:"The headers that expressions can read, with names in lower case."`
	Data    json.RawMessage   `json:"data" doc:"The body as JSON."`
	Actor   string            `json:"actor,omitempty" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
}

// ReplayDelivery replays a delivery.
type ReplayDelivery struct {
	Actor string `json:"actor,omitempty" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
}

// WebhookPath is the path of a webhook.
func WebhookPath(name string) string { return "/v1/webhooks/" + url.PathEscape(name) }

// DeliveryPath is the path of a delivery.
func DeliveryPath(name, id string) string {
	return WebhookPath(name) + "/deliveries/" + url.PathEscape(id)
}

// CloudEvent is an event in the structured mode of CloudEvents 1.0. It may have further attributes, its extensions.
type CloudEvent struct {
	_               struct{}        `additionalProperties:"true" json:"-"`
	SpecVersion     string          `json:"specversion" enum:"1.0"`
	ID              string          `json:"id" minLength:"1" maxLength:"1024"`
	Source          string          `json:"source" minLength:"1" maxLength:"1024" doc:"The id is unique within the source."`
	Type            string          `json:"type" minLength:"1" maxLength:"200"`
	Subject         string          `json:"subject,omitempty" maxLength:"1024"`
	Time            time.Time       `json:"time,omitzero"`
	DataContentType string          `json:"datacontenttype,omitempty" maxLength:"1024"`
	DataSchema      string          `json:"dataschema,omitempty" maxLength:"1024"`
	Data            json.RawMessage `json:"data,omitempty"`
	DataBase64      string          `json:"data_base64,omitempty" doc:"Instead of data: bytes in Base64."`
}

// Published is the answer to CloudEvents.
type Published struct {
	Events []belay.CloudEventResult `json:"events" doc:"The events, in the order of the request."`
}

// CloudEventBatch is the content type of several events in the structured mode.
const CloudEventBatch = "application/cloudevents-batch+json"

// StructuredEvent is an event as JSON in the structured mode.
func StructuredEvent(e *belay.CloudEvent) map[string]any {
	fields := map[string]any{"specversion": "1.0", "id": e.ID, "source": e.Source, "type": e.Type}
	for name, value := range map[string]string{
		"subject": e.Subject, "datacontenttype": e.DataContentType, "dataschema": e.DataSchema,
	} {
		if value != "" {
			fields[name] = value
		}
	}
	if !e.Time.IsZero() {
		fields["time"] = e.Time.Format(time.RFC3339Nano)
	}
	for name, value := range e.Extensions {
		fields[name] = value
	}
	if len(e.Data) > 0 {
		fields["data"] = e.Data
	}
	return fields
}

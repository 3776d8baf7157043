package belay

import (
	"encoding/json"
	"time"
)

// MaxCloudEvents is the largest number of events in one batch.
const MaxCloudEvents = 100

// CloudEvent is an event as CloudEvents 1.0 describes it (https://cloudevents.io). Every webhook with the scheme
// SchemeCloudEvents whose filter is true for the event starts an execution, once for a Source and an ID, however often
// the event is sent.
type CloudEvent struct {
	ID     string `json:"id"`
	Source string `json:"source"`
	Type   string `json:"type"`
	// Subject, Time, DataContentType and DataSchema are optional.
	Subject         string    `json:"subject,omitempty"`
	Time            time.Time `json:"time,omitzero"`
	DataContentType string    `json:"datacontenttype,omitempty"`
	DataSchema      string    `json:"dataschema,omitempty"`
	// Extensions are further attributes. Their names have lower-case letters and digits.
	Extensions map[string]string `json:"extensions,omitempty"`
	// Data is JSON. Data that is a text is a JSON string, and other data is a JSON string in Base64.
	Data json.RawMessage `json:"data,omitempty"`
}

// CloudEventResult says what an event has led to.
type CloudEventResult struct {
	ID     string `json:"id"`
	Source string `json:"source"`
	// Deliveries are the webhooks whose filter was true, in the order of their names.
	Deliveries []CloudEventDelivery `json:"deliveries"`
}

// CloudEventDelivery says what an event has led to at one webhook.
type CloudEventDelivery struct {
	Webhook   string         `json:"webhook"`
	Outcome   WebhookOutcome `json:"outcome"`
	Execution ExecutionID    `json:"execution,omitzero"`
	Text      string         `json:"text,omitempty"`
}

// CloudEventPublish requests that events are delivered to the webhooks of CloudEvents.
type CloudEventPublish struct {
	// Events are at most MaxCloudEvents.
	Events []CloudEvent `json:"events"`
	// Actor names the sender. A server uses the name of the caller's API key instead, if it requires keys.
	Actor string `json:"actor,omitempty"`
}

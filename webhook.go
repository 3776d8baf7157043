package belay

import (
	"encoding/json"
	"fmt"
	"time"
)

const (
	// MaxWebhooks is the largest number of webhooks.
	MaxWebhooks = 1000
	// MaxWebhookBytes is the largest size of a webhook as JSON, in bytes.
	MaxWebhookBytes = 64 << 10
	// MaxDeliveryBytes is the largest size of a delivery's body, in bytes, and the limit of a webhook that sets none.
	MaxDeliveryBytes = MaxPayload
	// DefaultDeliveryRate is the number of deliveries per second that a server accepts for a webhook that sets none.
	DefaultDeliveryRate = 50
	// WebhookTolerance is how far the time that a sender has signed may be from the server's clock.
	WebhookTolerance = 5 * time.Minute
)

// LabelWebhook is the label of an execution that a webhook has started. Its value is the name of the webhook.
const LabelWebhook = "webhook"

// WebhookScheme says how the senders of a webhook sign their deliveries.
type WebhookScheme string

// The values of WebhookScheme.
const (
	SchemeHMAC     WebhookScheme = "hmac"     // a WebhookHMAC describes the signature
	SchemeStandard WebhookScheme = "standard" // Standard Webhooks, https://www.standardwebhooks.com
	SchemeGitHub   WebhookScheme = "github"
	SchemeGitLab   WebhookScheme = "gitlab" // the secret itself in a header, so that nothing protects the body
	SchemeStripe   WebhookScheme = "stripe"
	SchemeSlack    WebhookScheme = "slack"
	// SchemeCloudEvents: no sender signs, because the key of the API names it. See CloudEvent.
	SchemeCloudEvents WebhookScheme = "cloudevents"
	// SchemeAMQP: the deliveries are the messages of a queue in RabbitMQ, which a WebhookAMQP names. No sender signs,
	// because the permissions in RabbitMQ say who may write to the queue.
	SchemeAMQP WebhookScheme = "amqp"
)

// Signs reports whether the senders of a webhook of this scheme sign, so that the webhook has secrets.
func (s WebhookScheme) Signs() bool { return s != SchemeCloudEvents && s != SchemeAMQP }

// WebhookHMAC describes signatures that are keyed hashes of the body.
type WebhookHMAC struct {
	// Header is the header with the signature, and Prefix a text before it, such as "sha256=".
	Header string `json:"header"`
	Prefix string `json:"prefix,omitempty"`
	// Algorithm is sha256 (the default) or sha512, and Encoding hex (the default) or base64.
	Algorithm string `json:"algorithm,omitempty"`
	Encoding  string `json:"encoding,omitempty"`
	// TimestampHeader, if it is set, is the header with the time of the delivery in seconds since 1970. The hash is
	// then that of the time, a dot and the body.
	TimestampHeader string `json:"timestamp_header,omitempty"`
	// IDHeader is the header with the id of the delivery. The signature does not cover it. Without it, the id is the
	// hash of the body.
	IDHeader string `json:"id_header,omitempty"`
}

// MaxQueueName is the largest size of the name of a queue in RabbitMQ, in bytes.
const MaxQueueName = 255

// WebhookAMQP describes a queue in RabbitMQ whose messages are deliveries. Servers with a broker consume the queue;
// they never declare or delete it. A message is acknowledged when its delivery is stored, and rejected, so that
// RabbitMQ gives it to the dead-letter exchange of the queue, when no execution or signal can be made of it.
type WebhookAMQP struct {
	// Queue is the name of the queue, at most MaxQueueName bytes. It does not begin with "amq.", and not with the
	// prefix of Belay's own queues.
	Queue string `json:"queue"`
	// WithoutID decides about a message without the property message-id; empty means RefuseWithoutID.
	WithoutID WithoutID `json:"without_id,omitempty"`
}

// WithoutID decides about messages that have no id.
type WithoutID string

// The values of WithoutID.
const (
	RefuseWithoutID WithoutID = "refuse" // the message is rejected
	HashWithoutID   WithoutID = "hash"   // the id is the hash of the body, so that equal bodies are one delivery
)

// Webhook describes executions that signed HTTP requests start. A sender posts to /hooks/NAME of a server. Each
// delivery starts one execution, however often the sender repeats it.
type Webhook struct {
	// Name follows the rules of CheckWebhookName.
	Name   string        `json:"name"`
	Scheme WebhookScheme `json:"scheme"`
	HMAC   *WebhookHMAC  `json:"hmac,omitempty"`
	AMQP   *WebhookAMQP  `json:"amqp,omitempty"`
	// Secrets, which only schemes with Signs have, are one or two references such as ${{ secrets.GITHUB_HOOK }}.
	// A signature with either is right, so that a secret can be replaced without a pause.
	Secrets []string `json:"secrets"`
	// Filter is an expression, such as event.type == "push". A delivery for which it is false starts nothing. An
	// expression reads event.id, event.type, event.source (the name of the webhook, or the source of a CloudEvent),
	// event.headers and event.data, the body.
	Filter string `json:"filter,omitempty"`
	// MaxBytes limits the body of a delivery; 0 means MaxDeliveryBytes.
	MaxBytes int `json:"max_bytes,omitempty"`
	// Rate limits the deliveries per second that one server accepts; 0 means DefaultDeliveryRate, and with SchemeAMQP
	// no limit. Messages above the rate wait in their queue.
	Rate int `json:"rate,omitempty"`
	// Execution describes the executions. The texts of its Input and the values of its Labels may contain expressions
	// in ${{ }}; without an Input, the input is event.data. It has a Workflow or a Document. The Backend sets the ID,
	// IdempotencyKey, Trigger, TriggerPayload (a WebhookPayload) and Actor.
	Execution Submission `json:"execution"`
	// Signal describes the signal that a delivery sends to an execution, instead of starting one.
	Signal *WebhookSignal `json:"signal,omitempty"`
}

// WebhookSignal describes the signals of a webhook. Either Execution, or Workflow and Key name the execution.
type WebhookSignal struct {
	Name string `json:"name"`
	// Execution is an expression for the id of the execution.
	Execution string `json:"execution,omitempty"`
	// Key is an expression for the idempotency key of an execution of Workflow, such as
	// "order-" + string(event.data.order).
	Workflow string `json:"workflow,omitempty"`
	Key      string `json:"key,omitempty"`
	// Payload is the payload, whose texts may contain expressions in ${{ }}; empty means event.data.
	Payload json.RawMessage `json:"payload,omitempty"`
}

// WebhookPayload is the trigger payload of an execution that a webhook has started.
type WebhookPayload struct {
	Webhook string `json:"webhook"`
	// ID is the id of the delivery, and Type the sender's name of the event.
	ID     string `json:"id"`
	Type   string `json:"type,omitempty"`
	Source string `json:"source,omitempty"`
	// By says why an execution was started other than by a signed delivery: "replay" or "test".
	By      string            `json:"by,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Data is the body, unless it is the input of the execution or too large for a payload.
	Data json.RawMessage `json:"data,omitempty"`
}

// WebhookEvent is a delivery whose sender is known.
type WebhookEvent struct {
	Webhook string `json:"webhook"`
	// IfVersion, unless it is 0, makes Webhooker.Deliver return CodeConflict if the webhook has another version.
	IfVersion int `json:"if_version,omitempty"`
	// IfCreated, unless it is zero, makes Deliver return CodeConflict if the webhook was created at another time:
	// the versions of a webhook that was removed and made again begin with 1 again.
	IfCreated time.Time `json:"if_created,omitzero"`
	// ID is the id of the delivery: printable ASCII, at most 150 bytes.
	ID   string `json:"id"`
	Type string `json:"type,omitempty"`
	// Source is event.source in expressions; empty means the name of the webhook.
	Source  string            `json:"source,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Data    json.RawMessage   `json:"data"`
	// By is empty for a signed delivery, and "test" for one that an operator makes. Actor names the operator.
	By    string `json:"by,omitempty"`
	Actor string `json:"actor,omitempty"`
}

// WebhookOutcome says what a delivery has led to.
type WebhookOutcome string

// The values of WebhookOutcome.
const (
	DeliveryStarted   WebhookOutcome = "started"   // an execution was submitted
	DeliveryDuplicate WebhookOutcome = "duplicate" // the delivery had started an execution before
	DeliveryFiltered  WebhookOutcome = "filtered"  // the filter was false
	DeliverySignalled WebhookOutcome = "signalled" // a signal was sent to the execution
	DeliveryFailed    WebhookOutcome = "failed"    // no execution or signal can be made of it; Text says why
	// DeliveryPaused: a CloudEvent started nothing, because the webhook is paused. Other senders are asked to repeat
	// their deliveries instead.
	DeliveryPaused WebhookOutcome = "paused"
)

// WebhookDelivery is a delivery that was accepted.
type WebhookDelivery struct {
	ID        string         `json:"id"`
	Type      string         `json:"type,omitempty"`
	Source    string         `json:"source,omitempty"` // of a CloudEvent
	At        time.Time      `json:"at"`               // when the Backend decided about it, by the store's clock
	Outcome   WebhookOutcome `json:"outcome"`
	Execution ExecutionID    `json:"execution,omitzero"`
	By        string         `json:"by,omitempty"` // as in WebhookPayload
	Text      string         `json:"text,omitempty"`
	Bytes     int            `json:"bytes"` // size of the data
}

// WebhookDeliveryData is a delivery with its data. The Backend keeps the data of the last deliveries only.
type WebhookDeliveryData struct {
	WebhookDelivery
	Headers map[string]string `json:"headers,omitempty"`
	Data    json.RawMessage   `json:"data,omitempty"`
}

// WebhookPause says since when a webhook is paused, by which actor, and why.
type WebhookPause struct {
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// WebhookInfo is a webhook with its state.
type WebhookInfo struct {
	Webhook
	// Version counts the changes of the webhook by operators, from 1.
	Version int `json:"version"`
	// DefinedBy is the name of the stored document that defines the webhook, as in ScheduleInfo.
	DefinedBy string        `json:"defined_by,omitempty"`
	Paused    *WebhookPause `json:"paused,omitempty"`
	CreatedAt time.Time     `json:"created_at"`
	UpdatedAt time.Time     `json:"updated_at"`
	UpdatedBy string        `json:"updated_by,omitempty"`
	// Recent are the newest deliveries without duplicates, the newest first, MaxRecentDeliveries at most.
	Recent []WebhookDelivery `json:"recent,omitempty"`
	// Deliveries counts the accepted deliveries by their outcomes since the webhook was created.
	Deliveries map[WebhookOutcome]int64 `json:"deliveries,omitempty"`
	// Refused are the newest requests that the server which answers has refused since its start, the newest first,
	// for example because their signatures were wrong. The Backend does not store them.
	Refused []WebhookRefusal `json:"refused,omitempty"`
	// Consumer says how the server that answers consumes the queue of a webhook of SchemeAMQP. The Backend does not
	// store it.
	Consumer *WebhookConsumer `json:"consumer,omitempty"`
}

// WebhookConsumer is the state of a consumer of a queue in RabbitMQ.
type WebhookConsumer struct {
	// Consuming reports whether the server receives messages of the queue.
	Consuming bool `json:"consuming"`
	// Since is the time of the last change of Consuming, by the server's clock; zero before the first.
	Since time.Time `json:"since,omitzero"`
	// Text says why the server does not consume the queue, and what to do about it, or why messages wait.
	Text string `json:"text,omitempty"`
}

// WebhookRefusal is a request to a webhook that a server has refused.
type WebhookRefusal struct {
	At   time.Time `json:"at"`   // by the server's clock
	From string    `json:"from"` // address of the client, or of the proxy before the server, or the queue
	Text string    `json:"text"`
}

// MaxRecentDeliveries is how many deliveries a webhook remembers with their data.
const MaxRecentDeliveries = 50

// WebhookFilter selects a page of webhooks, as ScheduleFilter does.
type WebhookFilter struct {
	Cursor string
	Limit  int
}

// WebhookPage is a page of webhooks, in the order of the bytes of their names. Next is empty on the last page.
type WebhookPage struct {
	Webhooks []WebhookInfo `json:"webhooks"`
	Next     string        `json:"next,omitempty"`
}

// WebhookPut requests that the webhook with Webhook.Name is as Webhook says. Its other fields are those of
// SchedulePut.
type WebhookPut struct {
	Webhook
	IfVersion int    `json:"if_version,omitempty"`
	IfNew     bool   `json:"if_new,omitempty"`
	Actor     string `json:"actor,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Op        OpID   `json:"op,omitzero"`
}

// WebhookPutResult is the answer to a WebhookPut, as SchedulePutResult is to a SchedulePut.
type WebhookPutResult struct {
	WebhookInfo
	Created bool `json:"created,omitempty"`
	Changed bool `json:"changed"`
}

// WebhookAction is an action of an operator on a webhook.
type WebhookAction string

// The actions of operators on webhooks.
const (
	WebhookPauseAction WebhookAction = "pause" // senders must repeat their deliveries, and messages wait in their queue
	WebhookResume      WebhookAction = "resume"
	WebhookRemove      WebhookAction = "remove" // executions that were started go on
)

// WebhookChange requests an action on a webhook. Its fields are those of a ScheduleChange.
type WebhookChange struct {
	Name      string        `json:"name"`
	Action    WebhookAction `json:"action"`
	IfVersion int           `json:"if_version,omitempty"`
	Actor     string        `json:"actor,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Op        OpID          `json:"op,omitzero"`
}

// WebhookReplay requests that a remembered delivery starts another execution, by the terms that the webhook has now.
// The filter does not apply. A repeated request with the same Op starts nothing more.
type WebhookReplay struct {
	Webhook string `json:"webhook"`
	ID      string `json:"id"`
	// IfVersion and IfCreated are those of a WebhookEvent.
	IfVersion int       `json:"if_version,omitempty"`
	IfCreated time.Time `json:"if_created,omitzero"`
	Actor     string    `json:"actor,omitempty"`
	Op        OpID      `json:"op,omitzero"`
}

// CheckWebhookName returns CodeInvalid for a text that cannot be the name of a webhook. The rules are those of
// CheckDocumentName.
func CheckWebhookName(op, name string) error {
	if CheckDocumentName(op, name) == nil {
		return nil
	}
	return &Error{Code: CodeInvalid, Op: op, Message: fmt.Sprintf("the name of a webhook has letters, digits, dots, "+
		"dashes and underscores, begins with a letter or digit, and has at most %d characters", MaxDocumentName)}
}

package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/belaydev/belay"
	amqp "github.com/rabbitmq/amqp091-go"
)

// Message tells a worker that an execution is scheduled to it. It has ids only, and no ids that give a
// right: accepting the execution needs the worker's own credentials.
type Message struct {
	Execution belay.ExecutionID `json:"execution"`
	Token     belay.Token       `json:"token"`
	Worker    belay.WorkerID    `json:"worker"`
}

const (
	messageType = "belay.scheduled"
	maxBody     = 1024
	maxToken    = 1 << 53
)

// Reason says why a delivery was dropped without effect. The list is closed, because metrics have it
// as a label.
type Reason string

// The reasons for dropping a delivery.
const (
	TooLarge   Reason = "too_large"   // the body is larger than any message of Belay
	WrongType  Reason = "wrong_type"  // the properties do not say that this is a message of Belay
	Garbage    Reason = "garbage"     // the body is not JSON of the right form
	BadIDs     Reason = "bad_ids"     // an id is missing, or a token is out of range
	WrongQueue Reason = "wrong_queue" // the message is for another worker than the queue
	// Unreadable counts the connections that ended because the library cannot read the headers of a
	// delivery. RabbitMQ drops such a message, or makes it a dead letter, after its eighth delivery.
	Unreadable Reason = "unreadable"
)

// Reasons lists all reasons.
func Reasons() []Reason {
	return []Reason{TooLarge, WrongType, Garbage, BadIDs, WrongQueue, Unreadable, Refused}
}

// publishing returns the message as RabbitMQ stores it. The correlation id tells the publisher to which
// of its messages a return belongs.
func (m Message) publishing(correlation uint64) (amqp.Publishing, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return amqp.Publishing{}, fmt.Errorf("encode the message: %w", err)
	}
	return amqp.Publishing{
		ContentType: "application/json", DeliveryMode: amqp.Persistent, Type: messageType, AppId: "belay",
		MessageId: m.Execution.String() + ":" + strconv.FormatInt(int64(m.Token), 10),
		Timestamp: time.Now(), CorrelationId: strconv.FormatUint(correlation, 10), Body: body,
	}, nil
}

// decode reads a delivery. Every user who may write to a queue can send anything, so decode returns a
// reason for what is not a message.
func decode(d *amqp.Delivery) (m Message, bad Reason) {
	switch {
	case len(d.Body) > maxBody:
		return m, TooLarge
	case d.Type != messageType:
		return m, WrongType
	}
	in := json.NewDecoder(bytes.NewReader(d.Body))
	if err := in.Decode(&m); err != nil {
		return Message{}, Garbage
	}
	if _, err := in.Token(); err != io.EOF {
		return Message{}, Garbage
	}
	if m.Execution.IsZero() || m.Worker.IsZero() || m.Token <= 0 || m.Token >= maxToken {
		return Message{}, BadIDs
	}
	return m, ""
}

// Dead is a message that came back, because its worker did not take it.
type Dead struct {
	Message
	// Cause says why RabbitMQ gave the message up, in RabbitMQ's words: expired, delivery_limit, maxlen,
	// rejected. It is unknown if the delivery does not say so; then the message may never have been in the
	// queue of its worker.
	Cause string
	// Queue is the name of the queue from which the message came, empty if unknown.
	Queue string
}

// Causes of dead letters.
const (
	CauseExpired = "expired"
	CauseUnknown = "unknown"
)

// decodeDead reads a delivery from the dead-letter queue. The headers are as little to be believed as
// the body.
func decodeDead(prefix string, d *amqp.Delivery) (Dead, Reason) {
	m, bad := decode(d)
	if bad != "" {
		return Dead{}, bad
	}
	dead := Dead{Message: m, Cause: CauseUnknown}
	deaths, ok := d.Headers["x-death"].([]any) // the newest death comes first
	if !ok || len(deaths) == 0 {
		return dead, ""
	}
	death, ok := deaths[0].(amqp.Table)
	if !ok {
		return dead, ""
	}
	queue, ok := death["queue"].(string)
	if !ok {
		return dead, ""
	}
	if w, known := workerOf(prefix, queue); !known || w != m.Worker {
		return dead, ""
	}
	cause, ok := death["reason"].(string)
	if !ok {
		return dead, ""
	}
	switch cause {
	case CauseExpired, "delivery_limit", "maxlen", "rejected":
		dead.Cause, dead.Queue = cause, queue
	}
	return dead, ""
}

package webhook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belaydev/belay"
)

// checkAMQP checks the name of the queue of a webhook. The prefix of Belay's own queues is a setting of each server, so
// the servers check it.
func checkAMQP(h *belay.Webhook) error {
	q := h.AMQP
	switch {
	case h.Scheme != belay.SchemeAMQP && q != nil:
		return invalid("amqp is for the scheme amqp, and the scheme is %s", h.Scheme)
	case h.Scheme != belay.SchemeAMQP:
		return nil
	case q == nil || q.Queue == "":
		return invalid("the scheme amqp needs the name of a queue; set amqp.queue")
	case len(q.Queue) > belay.MaxQueueName:
		return invalid("amqp.queue has %d bytes; the limit is %d", len(q.Queue), belay.MaxQueueName)
	case !utf8.ValidString(q.Queue) || strings.ContainsFunc(q.Queue, unicode.IsControl):
		return invalid("amqp.queue is not UTF-8, or has control characters")
	case strings.HasPrefix(q.Queue, "amq."):
		return invalid("amqp.queue cannot begin with amq.: these names belong to RabbitMQ")
	case q.WithoutID != "" && q.WithoutID != belay.RefuseWithoutID && q.WithoutID != belay.HashWithoutID:
		return invalid("amqp.without_id is %.40q; it can be %s or %s", q.WithoutID, belay.RefuseWithoutID,
			belay.HashWithoutID)
	}
	return nil
}

// Message is a message of a queue in RabbitMQ, with those of its properties that expressions can read.
type Message struct {
	ID, Type                     string
	ContentType, ContentEncoding string
	Exchange, RoutingKey         string // as RabbitMQ delivers them
	User                         string // RabbitMQ has checked it, unless it is empty
	App, Correlation, ReplyTo    string
	Priority                     uint8
	Time                         time.Time
	Headers                      map[string]any
	Body                         []byte
}

// ownHeader begins the names of the headers of an event that have the properties of its message. Headers of the message
// cannot have such names.
const ownHeader = "amqp-"

// EventOf returns the delivery that a message is by the terms of its webhook. Its errors have CodeInvalid or
// CodePayloadTooLarge: the message can never be a delivery of these terms.
func EventOf(h *belay.Webhook, m *Message) (belay.WebhookEvent, error) {
	e := belay.WebhookEvent{Webhook: h.Name, Type: clean(m.Type, maxEvent)}
	most := cmp.Or(h.MaxBytes, belay.MaxDeliveryBytes)
	switch {
	case len(m.Body) > most:
		return e, &belay.Error{Code: belay.CodePayloadTooLarge, Op: "webhook",
			Message: fmt.Sprintf("the body has %d bytes; the limit is %d", len(m.Body), most)}
	case len(m.Body) == 0:
		return e, invalid("the body is empty; it must be JSON")
	case !utf8.Valid(m.Body):
		return e, invalid("the body is not UTF-8; it must be JSON without compression")
	case m.ID == "" && (h.AMQP == nil || h.AMQP.WithoutID != belay.HashWithoutID):
		return e, invalid("the message has no message-id, so a repetition would start a second execution; let its " +
			"sender set one, or set amqp.without_id to hash")
	}
	if _, err := decodeJSON(m.Body); err != nil {
		return e, err
	}
	var data bytes.Buffer
	if err := json.Compact(&data, m.Body); err != nil {
		return e, invalid("the body is not JSON: %v", err)
	}
	e.ID, e.Data, e.Headers = identify(m.ID, m.Body), data.Bytes(), m.headers()
	return e, nil
}

// headers are the headers of the message that Headers lets pass, and the properties of the message.
func (m *Message) headers() map[string]string {
	header := make(http.Header, len(m.Headers))
	for name, v := range m.Headers {
		if text, ok := scalar(v); ok && !strings.HasPrefix(strings.ToLower(name), ownHeader) {
			header[name] = []string{text}
		}
	}
	all := Headers(belay.SchemeAMQP, nil, header)
	set := func(name, value string) {
		if value = clean(value, maxValue); value != "" {
			all[name] = value
		}
	}
	delete(all, "content-type")
	delete(all, "content-encoding")
	set("content-type", m.ContentType)
	set("content-encoding", m.ContentEncoding)
	set(ownHeader+"exchange", m.Exchange)
	set(ownHeader+"routing-key", m.RoutingKey)
	set(ownHeader+"user-id", m.User)
	set(ownHeader+"app-id", m.App)
	set(ownHeader+"correlation-id", m.Correlation)
	set(ownHeader+"reply-to", m.ReplyTo)
	if m.Priority > 0 {
		set(ownHeader+"priority", strconv.Itoa(int(m.Priority)))
	}
	if y := m.Time.Year(); !m.Time.IsZero() && y >= 1 && y <= 9999 {
		set(ownHeader+"timestamp", m.Time.UTC().Format(time.RFC3339))
	}
	return all
}

// scalar returns the text of a value in the headers of a message. It reports false for lists, tables and binary values.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool, int8, uint8, int16, uint16, int32, uint32, int64, float32, float64:
		return fmt.Sprint(v), true
	case time.Time:
		if y := v.Year(); y >= 1 && y <= 9999 {
			return v.UTC().Format(time.RFC3339), true
		}
	}
	return "", false
}

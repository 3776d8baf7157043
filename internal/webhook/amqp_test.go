package webhook

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// Rule: a webhook of the scheme amqp names a queue that is not RabbitMQ's own, and no other webhook names one.
func TestRulesOfQueues(t *testing.T) {
	type Q = belay.WebhookAMQP
	const own, other = belay.SchemeAMQP, belay.SchemeCloudEvents
	for _, c := range []struct {
		scheme belay.WebhookScheme
		q      *Q
		says   string // "" if it is right
	}{
		{own, &Q{Queue: "orders"}, ""}, {own, &Q{Queue: "bestellung ü/1", WithoutID: "hash"}, ""},
		{own, &Q{Queue: "amqp", WithoutID: "refuse"}, ""}, {own, &Q{Queue: strings.Repeat("q", 255)}, ""},
		{own, nil, "needs the name of a queue"}, {own, &Q{}, "needs the name of a queue"},
		{own, &Q{Queue: strings.Repeat("q", 256)}, "the limit is 255"},
		{own, &Q{Queue: "a\nb"}, "control characters"}, {own, &Q{Queue: "\xff"}, "not UTF-8"},
		{own, &Q{Queue: "amq.gen-x"}, "belong to RabbitMQ"}, {own, &Q{Queue: "q", WithoutID: "drop"}, `"drop"`},
		{other, nil, ""}, {other, &Q{Queue: "q"}, "the scheme is cloudevents"},
	} {
		err := Rules{}.Check(&belay.Webhook{Name: "h", Scheme: c.scheme, AMQP: c.q})
		if c.says == "" && err == nil {
			continue
		}
		if belay.CodeOf(err) != belay.CodeInvalid || c.says == "" || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %+v: the error is %v, want %q", c.scheme, c.q, err, c.says)
		}
	}
	signed := &belay.Webhook{Scheme: own, AMQP: &Q{Queue: "q"}, HMAC: &belay.WebhookHMAC{}}
	if err := (Rules{}).Check(signed); err == nil {
		t.Error("a queue with a signature is accepted")
	}
	if err := Check(own, nil); belay.CodeOf(err) != belay.CodeInvalid {
		t.Errorf("a signature of a queue: %v", err)
	}
}

func hookOf(with ...func(*belay.Webhook)) *belay.Webhook {
	h := &belay.Webhook{Name: "h", Scheme: belay.SchemeAMQP, AMQP: &belay.WebhookAMQP{Queue: "q"}, MaxBytes: 200}
	for _, f := range with {
		f(h)
	}
	return h
}

// Rule: expressions read the properties of a message as headers that no sender can forge with headers of its own, and
// no secrets.
func TestEventOfAMessage(t *testing.T) {
	at := time.Date(2026, 11, 27, 1, 2, 3, 0, time.FixedZone("x", 3600))
	e, err := EventOf(hookOf(), &Message{
		ID: "m-1", Type: "order.paid", ContentType: "application/json", ContentEncoding: "utf-8", Exchange: "shop",
		RoutingKey: "orders.eu", User: "shop", App: "web", Correlation: "c", ReplyTo: "r", Priority: 9, Time: at,
		Body: []byte(" {\"n\": 9007199254740993} "),
		Headers: map[string]any{
			"X-Text": "a\x00b", "x-int": int64(-7), "x-bool": true, "x-time": at, "x-float": 0.5, "x-byte": byte(3),
			"x-list": []any{"a"}, "x-table": map[string]any{"a": "b"}, "x-bytes": []byte("a"), "x-nil": nil,
			"":      "empty",
			"x far": "space", "Authorization": "secret", "x-api-key": "secret", "amqp-user-id": "admin",
			"AMQP-Exchange": "forged", "amqp-routing-key": "forged", "Content-Type": "forged",
			"x-long": strings.Repeat("x", 2000),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := belay.WebhookEvent{
		Webhook: "h", ID: "m-1", Type: "order.paid", Data: []byte(`{"n":9007199254740993}`),
		Headers: map[string]string{
			"x-text": "a b", "x-int": "-7", "x-bool": "true", "x-time": "2026-11-27T00:02:03Z", "x-float": "0.5",
			"x-byte": "3", "x-long": strings.Repeat("x", 1024), "content-type": "application/json",
			"content-encoding": "utf-8", "amqp-exchange": "shop", "amqp-routing-key": "orders.eu",
			"amqp-user-id": "shop", "amqp-app-id": "web", "amqp-correlation-id": "c", "amqp-reply-to": "r",
			"amqp-priority": "9", "amqp-timestamp": "2026-11-27T00:02:03Z",
		},
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Error(diff)
	}
	forged, err := EventOf(hookOf(), &Message{ID: "1", Body: []byte("1"), Headers: map[string]any{
		"amqp-user-id": "admin", "amqp-exchange": "x", "CONTENT-TYPE": "x", "content-encoding": "x",
	}})
	if err != nil || len(forged.Headers) != 0 {
		t.Errorf("%v %v", forged.Headers, err)
	}
}

// Rule: a body that is not one JSON value, or is too large or nested too deep, is refused, and so is a message without
// an id, unless the hash of the body is the id.
func TestMessagesThatAreNoDeliveries(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for body, says := range map[string]string{
		`{"a": 1}`: "", `null`: "", deep(maxDepth): "", `"` + strings.Repeat("x", 198) + `"`: "",
		``: "is empty", ` `: "not JSON", `{`: "not JSON", `{} {}`: "more than one", `hello`: "not JSON",
		"\"\xff\"": "not UTF-8", `NaN`: "not JSON", "\xef\xbb\xbf1": "not JSON", deep(maxDepth - 1 + 2)[:200]: "JSON", strings.Repeat("[", 200): "JSON",
		`"` + strings.Repeat("x", 199) + `"`: "the limit is 200",
	} {
		_, err := EventOf(hookOf(), &Message{ID: "1", Body: []byte(body)})
		if code := belay.CodeOf(err); says == "" && err != nil || says != "" && (err == nil ||
			!strings.Contains(err.Error(), says) || code != belay.CodeInvalid && code != belay.CodePayloadTooLarge) {
			t.Errorf("%.30q: the error is %v, want %q", body, err, says)
		}
	}
	large := hookOf(func(h *belay.Webhook) { h.MaxBytes = 0 })
	if _, err := EventOf(large, &Message{ID: "1", Body: []byte(deep(maxDepth + 1))}); err == nil ||
		!strings.Contains(err.Error(), "nested deeper") {
		t.Errorf("deep JSON: %v", err)
	}
	if _, err := EventOf(hookOf(), &Message{Body: []byte("1")}); belay.CodeOf(err) != belay.CodeInvalid ||
		!strings.Contains(err.Error(), "without_id") {
		t.Errorf("no id: %v", err)
	}
	hashed := hookOf(func(h *belay.Webhook) { h.AMQP.WithoutID = belay.HashWithoutID })
	ids := make(map[string]bool)
	for _, m := range []Message{
		{Body: []byte("1")}, {Body: []byte("1")}, {Body: []byte("2")}, {ID: "x", Body: []byte("1")},
		{ID: "a b", Body: []byte("1")}, {ID: strings.Repeat("i", 151), Body: []byte("1")},
	} {
		e, err := EventOf(hashed, &m)
		if err != nil || e.ID == "" || len(e.ID) > maxID || strings.ContainsAny(e.ID, " ") {
			t.Errorf("%.20q: %q %v", m.ID, e.ID, err)
		}
		ids[e.ID] = true
	}
	if len(ids) != 5 {
		t.Errorf("the ids are %v", ids)
	}
}

// Hostile messages never make EventOf panic, and what it returns is within the limits of deliveries.
func FuzzEventOf(f *testing.F) {
	f.Add("id", "type", "x-a", "value", []byte(`{"a": 1}`), int64(0))
	f.Add("\xff", "\x1b[31m", "AMQP-x", "\x00", []byte("[[["), int64(1)<<62)
	f.Fuzz(func(t *testing.T, id, kind, name, value string, body []byte, at int64) {
		m := &Message{
			ID: id, Type: kind, User: value, Time: time.Unix(at, 0), Body: body,
			Headers: map[string]any{name: value, "n" + name: at, "t" + name: time.Unix(at, 0)},
		}
		e, err := EventOf(hookOf(func(h *belay.Webhook) { h.AMQP.WithoutID = belay.HashWithoutID }), m)
		if err != nil {
			return
		}
		text := fmt.Sprint(e.ID, e.Type, e.Headers)
		if len(e.ID) == 0 || len(e.ID) > maxID || len(e.Type) > maxEvent || strings.ContainsAny(text, "\x00\x1b\n") {
			t.Errorf("%+v", e)
		}
	})
}

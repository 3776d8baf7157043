package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belaydev/belay"
)

// The content types of CloudEvents: one event with its attributes in the body, and several such events.
const (
	structuredType = "application/cloudevents+json"
	batchType      = "application/cloudevents-batch+json"
)

const (
	// maxAttribute is the largest size of an attribute, in bytes, and maxExtensions the largest number of extensions.
	maxAttribute, maxExtensions = 1 << 10, 50
	// attributePrefix begins the headers that have the attributes of an event in the binary mode.
	attributePrefix = "Ce-"
)

// CloudEvents reads the events of a request in the binary, the structured or the batched mode of the HTTP binding
// of CloudEvents 1.0
// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md). Its errors have
// CodeInvalid.
func CloudEvents(header http.Header, body []byte) ([]belay.CloudEvent, error) {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil && header.Get("Content-Type") != "" {
		return nil, invalid("the Content-Type %.100q is wrong", header.Get("Content-Type"))
	}
	switch kind {
	case batchType:
		var texts []json.RawMessage
		if err := json.Unmarshal(body, &texts); err != nil {
			return nil, invalid("a batch is a list of events: %v", err)
		}
		if len(texts) > belay.MaxCloudEvents {
			return nil, invalid("the batch has %d events; the limit is %d", len(texts), belay.MaxCloudEvents)
		}
		events := make([]belay.CloudEvent, len(texts))
		for i, text := range texts {
			if events[i], err = structured(text); err != nil {
				return nil, invalid("event %d of the batch: %v", i+1, err)
			}
		}
		return events, nil
	case structuredType:
		e, err := structured(body)
		return []belay.CloudEvent{e}, err
	}
	e, err := binary(header, kind, body)
	return []belay.CloudEvent{e}, err
}

// structured reads an event with its attributes in the body.
func structured(text []byte) (belay.CloudEvent, error) {
	var e belay.CloudEvent
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return e, invalid("the event is no JSON object: %v", err)
	}
	attributes := make(map[string]string, len(fields))
	for name, value := range fields {
		if name == "data" || name == "data_base64" || string(value) == "null" {
			continue
		}
		v, err := attribute(value)
		if err != nil {
			return e, invalid("the attribute %.30q %v", name, err)
		}
		attributes[name] = v
	}
	e, err := event(attributes)
	if err != nil {
		return e, err
	}
	data, encoded := fields["data"], fields["data_base64"]
	switch {
	case len(data) > 0 && len(encoded) > 0:
		return e, invalid("data and data_base64 exclude each other")
	case len(encoded) > 0:
		var s string
		if err := json.Unmarshal(encoded, &s); err != nil {
			return e, invalid("data_base64 is no text")
		}
		raw, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return e, invalid("data_base64 is not Base64")
		}
		e.Data, err = dataOf(e.DataContentType, raw)
		return e, err
	}
	var b bytes.Buffer
	if len(data) > 0 {
		if err := json.Compact(&b, data); err != nil {
			return e, invalid("data is not JSON")
		}
		e.Data = b.Bytes()
	}
	return e, nil
}

// attribute is the text of an attribute, which JSON may write as a text, an integer or a boolean.
func attribute(value json.RawMessage) (string, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 32); err == nil {
			return strconv.FormatInt(n, 10), nil
		}
	}
	return "", errors.New("is neither a text nor an integer nor a boolean")
}

// binary reads an event with its attributes in headers.
func binary(header http.Header, kind string, body []byte) (belay.CloudEvent, error) {
	attributes := make(map[string]string)
	for name, values := range header {
		short, is := strings.CutPrefix(name, attributePrefix)
		if !is {
			continue
		}
		if len(values) != 1 {
			return belay.CloudEvent{}, invalid("the header %s is there twice", name)
		}
		v, err := url.PathUnescape(values[0])
		if err != nil {
			return belay.CloudEvent{}, invalid("the header %s is not well encoded", name)
		}
		attributes[strings.ToLower(short)] = v
	}
	if len(attributes) == 0 {
		return belay.CloudEvent{}, invalid("this is no CloudEvent: the Content-Type is neither %s nor %s, and there "+
			"are no headers such as ce-id", structuredType, batchType)
	}
	attributes["datacontenttype"] = kind
	e, err := event(attributes)
	if err == nil && len(body) > 0 {
		e.Data, err = dataOf(kind, body)
	}
	return e, err
}

// attributeName is the form of the name of an attribute.
var attributeName = regexp.MustCompile(`^[a-z0-9]{1,50}$`)

// event makes an event of its attributes.
func event(attributes map[string]string) (e belay.CloudEvent, err error) {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		v := attributes[name]
		switch {
		case !attributeName.MatchString(name):
			return e, invalid("the name of an attribute has lower-case letters and digits, and %.60q has others", name)
		case len(v) > maxAttribute || !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl):
			return e, invalid("the attribute %s is no text, or has more than %d bytes", name, maxAttribute)
		}
		switch name {
		case "specversion":
		case "id":
			e.ID = v
		case "source":
			e.Source = v
		case "type":
			e.Type = v
		case "subject":
			e.Subject = v
		case "datacontenttype":
			e.DataContentType = v
		case "dataschema":
			e.DataSchema = v
		case "time":
			if e.Time, err = time.Parse(time.RFC3339, v); err != nil {
				return e, invalid("the attribute time is no time of RFC 3339")
			}
		default:
			if e.Extensions == nil {
				e.Extensions = make(map[string]string)
			}
			e.Extensions[name] = v
		}
	}
	if v := attributes["specversion"]; v != "1.0" {
		return e, invalid("specversion is %.20q; this server reads CloudEvents 1.0", v)
	}
	err = CheckCloudEvent(&e)
	return e, err
}

// CheckCloudEvent returns CodeInvalid if a required attribute is missing or too long.
func CheckCloudEvent(e *belay.CloudEvent) error {
	for _, x := range []struct{ name, value string }{{"id", e.ID}, {"source", e.Source}, {"type", e.Type}} {
		if x.value == "" {
			return invalid("the event has no %s", x.name)
		}
	}
	switch {
	case len(e.Type) > belay.MaxName:
		return invalid("the type of the event has more than %d bytes", belay.MaxName)
	case len(e.Source) > maxAttribute || len(e.ID) > maxAttribute || len(e.Subject) > maxAttribute:
		return invalid("an attribute of the event has more than %d bytes", maxAttribute)
	case len(e.Extensions) > maxExtensions:
		return invalid("the event has more than %d extensions", maxExtensions)
	}
	for name := range e.Extensions {
		if !attributeName.MatchString(name) || slices.Contains(ownAttributes, name) {
			return invalid("%.60q cannot be the name of an extension", name)
		}
	}
	return nil
}

// ownAttributes are the names that an extension cannot have.
var ownAttributes = []string{
	"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data",
}

// dataOf is the data of an event as JSON: JSON itself, a text, or bytes in Base64.
func dataOf(kind string, raw []byte) (json.RawMessage, error) {
	main, _, err := mime.ParseMediaType(kind)
	if kind == "" || err == nil && (main == "application/json" || strings.HasSuffix(main, "+json")) {
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return nil, invalid("the data is not JSON: %v", err)
		}
		return b.Bytes(), nil
	}
	text := string(raw)
	if !utf8.ValidString(text) {
		text = base64.StdEncoding.EncodeToString(raw)
	}
	return json.Marshal(text)
}

// delivery is the event as a delivery to a webhook. Its attributes are the headers that the binary mode would have.
func delivery(webhook string, e *belay.CloudEvent) belay.WebhookEvent {
	headers := make(map[string]string)
	set := func(name, value string) {
		if value != "" {
			headers["ce-"+name] = value
		}
	}
	set("subject", e.Subject)
	set("dataschema", e.DataSchema)
	if !e.Time.IsZero() {
		set("time", e.Time.Format(time.RFC3339Nano))
	}
	if e.DataContentType != "" {
		headers["content-type"] = e.DataContentType
	}
	for name, value := range e.Extensions {
		set(name, value)
	}
	data := e.Data
	if len(data) == 0 {
		data = json.RawMessage("null")
	}
	return belay.WebhookEvent{
		Webhook: webhook, ID: eventID(e), Type: e.Type, Source: e.Source, Headers: headers, Data: data,
	}
}

// eventID is the id of the delivery of an event: its id, with a hash of its source, because only both together are
// unique.
func eventID(e *belay.CloudEvent) string {
	source := sha256.Sum256([]byte(e.Source))
	id := e.ID
	if len(id) > 100 || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		sum := sha256.Sum256([]byte(id))
		id = hex.EncodeToString(sum[:])
	}
	return id + "@" + hex.EncodeToString(source[:8])
}

// publishers is the largest number of deliveries that Publish makes at the same time.
const publishers = 32

// Publish delivers events to the webhooks of CloudEvents of a Backend.
func Publish(ctx context.Context, b belay.Webhooker, p belay.CloudEventPublish) ([]belay.CloudEventResult, error) {
	if len(p.Events) > belay.MaxCloudEvents {
		return nil, invalid("there are %d events; the limit is %d", len(p.Events), belay.MaxCloudEvents)
	}
	for i := range p.Events {
		if err := CheckCloudEvent(&p.Events[i]); err != nil {
			return nil, err
		}
	}
	to, err := Subscribers(ctx, b)
	if err != nil {
		return nil, err
	}
	return PublishTo(ctx, b, to, p)
}

// PublishTo delivers events to each of the webhooks whose filter is true for them. If it returns an error, the caller
// can repeat the call: what was started is not started again. The error has CodeUnavailable if a webhook was changed
// since the list was read.
func PublishTo(
	ctx context.Context, b belay.Webhooker, to []belay.WebhookInfo, p belay.CloudEventPublish,
) ([]belay.CloudEventResult, error) {
	events := p.Events
	results := make([]belay.CloudEventResult, len(events))
	var work []func() error
	for i := range events {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r := &results[i]
		r.ID, r.Source, r.Deliveries = events[i].ID, events[i].Source, []belay.CloudEventDelivery{}
		for j := range to {
			d := delivery(to[j].Name, &events[i])
			d.IfVersion, d.IfCreated, d.Actor = to[j].Version, to[j].CreatedAt, p.Actor
			if Filtered(&to[j].Webhook, &d) {
				continue
			}
			at := len(r.Deliveries)
			r.Deliveries = append(r.Deliveries, belay.CloudEventDelivery{
				Webhook: d.Webhook, Outcome: belay.DeliveryPaused,
			})
			if to[j].Paused == nil {
				work = append(work, func() (err error) {
					r.Deliveries[at], err = publish(ctx, b, d)
					return err
				})
			}
		}
	}
	failed := make([]error, len(work))
	var all sync.WaitGroup
	free := make(chan struct{}, publishers)
	for i, do := range work {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			failed[i] = do()
		})
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// ErrChanged is the error of PublishTo if a webhook was changed since the list was read.
var ErrChanged = &belay.Error{
	Code: belay.CodeUnavailable, Op: "publish", RetryAfter: time.Second,
	Message: "a webhook was changed at this moment; try again",
}

// publish delivers an event to one webhook. A webhook of which no execution can be made does not stop the others.
func publish(ctx context.Context, b belay.Webhooker, d belay.WebhookEvent) (belay.CloudEventDelivery, error) {
	out := belay.CloudEventDelivery{Webhook: d.Webhook}
	got, err := b.Deliver(ctx, d)
	if err == nil {
		out.Outcome, out.Execution, out.Text = got.Outcome, got.Execution, got.Text
		return out, nil
	}
	switch belay.CodeOf(err) {
	case belay.CodeForbidden, belay.CodeInvalid, belay.CodePayloadTooLarge, belay.CodeQueueFull:
		out.Outcome, out.Text = belay.DeliveryFailed, err.Error()
		return out, nil
	case belay.CodeConflict, belay.CodeNotFound:
		err = ErrChanged
	}
	return out, err
}

// Subscribers lists the webhooks of CloudEvents.
func Subscribers(ctx context.Context, b Lister) (list []belay.WebhookInfo, err error) {
	return OfScheme(ctx, b, belay.SchemeCloudEvents)
}

// Lister is the part of a Backend that lists webhooks.
type Lister interface {
	Webhooks(ctx context.Context, f belay.WebhookFilter) (belay.WebhookPage, error)
}

// OfScheme lists the webhooks of a scheme, without their newest deliveries.
func OfScheme(ctx context.Context, b Lister, scheme belay.WebhookScheme) (list []belay.WebhookInfo, err error) {
	f := belay.WebhookFilter{Limit: 1000}
	for {
		page, err := b.Webhooks(ctx, f)
		if err != nil {
			return nil, err
		}
		for i := range page.Webhooks {
			if h := &page.Webhooks[i]; h.Scheme == scheme {
				list = append(list, *h)
			}
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return list, nil
		}
	}
}

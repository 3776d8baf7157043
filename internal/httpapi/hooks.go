package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/time/rate"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/webhook"
	"github.com/belaydev/belay/internal/wire"
)

// Secrets finds the secrets with which the senders of a webhook sign.
type Secrets func(webhook, name string) (string, error)

// Queues consumes the queues of webhooks of the scheme amqp.
type Queues interface {
	// CheckQueue returns CodeInvalid for the name of a queue that no webhook may have.
	CheckQueue(queue string) error
	// Consumer returns how the server consumes the queue of a webhook, and the newest messages that it has refused.
	Consumer(webhook string) (belay.WebhookConsumer, []belay.WebhookRefusal)
}

// noBroker is the state of the consumers of a server without a broker.
const noBroker = "this server has no broker, so it does not consume the queue; set broker-url in its configuration"

const (
	// termsFresh is how long the terms of a webhook are believed without another look. If a delivery finds that they
	// have changed, it reads them again.
	termsFresh = time.Second
	// failureFresh is how long the failure to read a secret is believed.
	failureFresh = 10 * time.Second
	// mostMissing is the largest number of names without a webhook that are kept.
	mostMissing = 1000
	// mostRefused is how many refused requests of a webhook are kept.
	mostRefused = 10
	// pausedRetry is when the sender of a paused webhook should try again.
	pausedRetry = time.Minute
	// rereadAfter is how old the terms are at least that are read again because a signature is wrong under them.
	rereadAfter = 100 * time.Millisecond
	// newNames is how many names per second may be looked up that the server does not know.
	newNames = 100
	// warnAgain is how often the log says that the secrets of a webhook cannot be read.
	warnAgain = time.Minute
)

// hooks receives deliveries: requests that need no key, because their signatures name their senders.
type hooks struct {
	a *api
	*Hooks
}

// Hooks is what a server knows of webhooks. Several APIs of one server share it.
type Hooks struct {
	mu    sync.Mutex
	known map[string]*hook
	// missing are names without a webhook, with the times at which the server looked.
	missing map[string]time.Time
	// secrets are those that the server has read, by the names of the webhook and the secret.
	secrets map[[2]string]secretRead
	lookups *rate.Limiter // of names that the server does not know
	// subscribers are the webhooks of CloudEvents, as they were at the time listed.
	subscribers []belay.WebhookInfo
	listed      time.Time
}

// NewHooks returns an empty Hooks.
func NewHooks() *Hooks {
	return &Hooks{
		known: make(map[string]*hook), missing: make(map[string]time.Time), secrets: make(map[[2]string]secretRead),
		lookups: rate.NewLimiter(newNames, 2*newNames),
	}
}

// secretRead is a secret, or the reason why it cannot be read.
type secretRead struct {
	value string
	err   error
	at    time.Time
}

// hook is what the server knows of one webhook.
type hook struct {
	info    belay.WebhookInfo
	read    time.Time // zero if the terms must be read again
	limit   *rate.Limiter
	warned  time.Time
	refused []belay.WebhookRefusal // the newest first
}

// hookReply is the answer to a delivery.
type hookReply struct {
	Outcome   belay.WebhookOutcome `json:"outcome" doc:"started, signalled, duplicate or filtered; ping for a request that only tests the address."`
	Execution belay.ExecutionID    `json:"execution,omitzero"`
}

// outcomePing answers a request with which a sender tests the address.
const outcomePing belay.WebhookOutcome = "ping"

// receive adds the route to which senders post.
func (a *api) receive() {
	rt := &route{
		id: "receiveDelivery", method: http.MethodPost, path: "/hooks/{name}", tag: "webhooks",
		summary: "Deliver to a webhook",
		doc: "For the senders of webhooks: the signature stands in the place of a key. The answer comes after the " +
			"commit, so a sender that repeats what got no answer loses nothing, and a repetition starts nothing. 401: the " +
			"signature is wrong. 422: no execution can be made of the delivery; the webhook shows why. 503: the webhook is " +
			"paused, or the server takes no work now.",
		body: true, raw: true, limit: belay.MaxDeliveryBytes, strangers: a.hooks.most,
		errors: []int{http.StatusUnauthorized, http.StatusConflict},
	}
	a.define(rt, func(w http.ResponseWriter, r *http.Request) {
		if err := a.hooks.serve(w, r); err != nil {
			f := refuse(err)
			if f.problem.Status == http.StatusUnauthorized {
				f.header.Set("WWW-Authenticate", "Signature")
			}
			a.failed(r.Context(), rt, f)
			f.write(w)
		}
	}, func(d *document) {
		op := d.operation(rt)
		op.Parameters = parametersOf(d.schemas(), reflect.TypeFor[webhookAt]())
		op.RequestBody = &huma.RequestBody{
			Required: true, Description: "The delivery, as its sender has signed it.",
			Content: map[string]*huma.MediaType{
				"application/json": {Schema: &huma.Schema{}}, "application/x-www-form-urlencoded": {}, "*/*": {},
			},
		}
		op.Responses["200"] = &huma.Response{
			Description: http.StatusText(http.StatusOK),
			Content: map[string]*huma.MediaType{
				"application/json": {Schema: d.schema(reflect.TypeFor[hookReply](), rt.id)},
				"text/plain":       {Schema: &huma.Schema{Type: huma.TypeString}},
			},
		}
		d.doc().AddOperation(&op)
	})
}

// most is the largest size of the body of a request, before anything of it is read. It refuses a request for a webhook
// that does not exist.
func (h *hooks) most(r *http.Request) (int64, error) {
	name := r.PathValue("name")
	info, _, err := h.terms(r.Context(), name)
	if err != nil {
		h.count(name, "refused")
	}
	return int64(info.MaxBytes), err
}

// serve answers a delivery.
func (h *hooks) serve(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	info, delivery, err := h.verify(r, name, body)
	if err != nil {
		h.count(name, "refused")
		return err
	}
	switch {
	case delivery.Challenge != "":
		h.count(name, "ping")
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, err := io.WriteString(w, delivery.Challenge)
		return err
	case delivery.Ping:
		h.count(name, "ping")
		return answerHook(w, info.Scheme, hookReply{Outcome: outcomePing})
	case info.Paused != nil:
		h.count(name, "paused")
		return later("the webhook is paused", pausedRetry)
	}
	if err := h.pace(name, info.Rate); err != nil {
		h.count(name, "limited")
		return err
	}
	data, err := webhook.Data(r.Header, body)
	if err != nil {
		h.refuse(name, r, err)
		h.count(name, "refused")
		return err
	}
	got, err := h.a.b.Deliver(r.Context(), belay.WebhookEvent{
		Webhook: name, IfVersion: info.Version, IfCreated: info.CreatedAt, ID: delivery.ID,
		Type: delivery.Event, Data: data,
		Headers: webhook.Headers(info.Scheme, info.HMAC, r.Header),
	})
	switch code := belay.CodeOf(err); {
	case err == nil:
	case code == belay.CodeConflict: // an operator has changed the webhook at this moment
		h.forget(name)
		return later("the webhook was changed; try again", time.Second)
	default:
		h.refuse(name, r, err)
		h.count(name, "refused")
		return err
	}
	h.count(name, string(got.Outcome))
	if got.Outcome == belay.DeliveryFailed {
		return &belay.Error{Code: belay.CodeInvalid, Message: "no execution can be made of this delivery: " + got.Text}
	}
	return answerHook(w, info.Scheme, hookReply{got.Outcome, got.Execution})
}

// later asks the sender to repeat the delivery. The store is not the reason.
func later(message string, after time.Duration) error {
	f := refuse(&belay.Error{Code: belay.CodeUnavailable, Message: message, RetryAfter: after})
	f.cause = nil
	return f
}

// answerHook writes the answer to an accepted delivery. Slack shows a text in an answer to the user, so it gets none.
func answerHook(w http.ResponseWriter, scheme belay.WebhookScheme, reply hookReply) error {
	if scheme == belay.SchemeSlack {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	return answerJSON(w, reply)
}

func answerJSON(w http.ResponseWriter, reply any) error {
	text, err := json.Marshal(reply)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(append(text, '\n'))
	return err
}

// verify finds the webhook and the sender's signature. If the signature is wrong under terms that may have changed
// since, verify reads the terms again.
func (h *hooks) verify(r *http.Request, name string, body []byte) (belay.WebhookInfo, webhook.Delivery, error) {
	info, age, err := h.terms(r.Context(), name)
	if err != nil {
		return info, webhook.Delivery{}, err
	}
	if !info.Scheme.Signs() {
		return info, webhook.Delivery{}, errNoWebhook // its deliveries come to /v1/cloudevents, or from a queue
	}
	d, err := h.signed(&info, r, body)
	if err != nil && age >= rereadAfter && belay.CodeOf(err) == belay.CodeUnauthorized && h.reread(name) {
		if info, _, err = h.terms(r.Context(), name); err == nil {
			d, err = h.signed(&info, r, body)
		}
	}
	if err != nil {
		h.refuse(name, r, err)
	}
	return info, d, err
}

func (h *hooks) signed(info *belay.WebhookInfo, r *http.Request, body []byte) (webhook.Delivery, error) {
	var d webhook.Delivery
	if len(body) > info.MaxBytes {
		return d, tooLarge(int64(info.MaxBytes))
	}
	var secrets [][]byte
	var failed error
	for _, reference := range info.Secrets {
		secret, err := h.secret(info.Name, webhook.SecretName(reference))
		if err != nil {
			failed = err
			continue // the other secret may be the right one
		}
		secrets = append(secrets, []byte(secret))
	}
	if len(secrets) == 0 {
		h.warn(r.Context(), info.Name, failed)
		return d, later("the server cannot read the secrets of this webhook; its log says why", pausedRetry)
	}
	return webhook.Verify(info.Scheme, info.HMAC, secrets, &webhook.Request{
		Header: r.Header, Body: body, Now: h.a.o.Now(),
	})
}

// secret reads a secret. It remembers the answer for a while, because every request of a stranger asks for it, and each
// failure writes to the log.
func (h *hooks) secret(webhook, name string) (string, error) {
	if h.a.o.Secrets == nil {
		return "", &belay.Error{Code: belay.CodeUnavailable, Message: "this server has no secrets"}
	}
	now, key := h.a.o.Now(), [2]string{webhook, name}
	h.mu.Lock()
	s, known := h.secrets[key]
	h.mu.Unlock()
	fresh := termsFresh
	if s.err != nil {
		fresh = failureFresh
	}
	if known && now.Sub(s.at) < fresh {
		return s.value, s.err
	}
	s.at = now
	s.value, s.err = h.a.o.Secrets(webhook, name)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.secrets) >= 4*belay.MaxWebhooks { // those of removed webhooks
		clear(h.secrets)
	}
	h.secrets[key] = s
	return s.value, s.err
}

// warn logs that the secrets of a webhook cannot be read.
func (h *hooks) warn(ctx context.Context, name string, err error) {
	now := h.a.o.Now()
	h.mu.Lock()
	k := h.known[name]
	quiet := k == nil || now.Sub(k.warned) < warnAgain
	if !quiet {
		k.warned = now
	}
	h.mu.Unlock()
	if !quiet {
		h.a.o.Log.WarnContext(ctx, "belay: a webhook cannot read its secrets", "webhook", name, "error", err)
	}
}

// terms returns the terms of a webhook, and their age.
func (h *hooks) terms(ctx context.Context, name string) (info belay.WebhookInfo, age time.Duration, err error) {
	now := h.a.o.Now()
	h.mu.Lock()
	k, missing := h.known[name], h.missing[name]
	h.mu.Unlock()
	switch {
	case k != nil && now.Sub(k.read) < termsFresh:
		return k.info, now.Sub(k.read), nil
	case now.Sub(missing) < termsFresh:
		return info, 0, errNoWebhook
	}
	if err := belay.CheckWebhookName("deliver", name); err != nil {
		return info, 0, errNoWebhook
	}
	if k == nil && !h.lookups.AllowN(now, 1) {
		return info, 0, later("the server gets many requests for webhooks that it does not know", time.Second)
	}
	info, err = h.a.b.Webhook(ctx, name)
	info.Recent = nil
	h.mu.Lock()
	defer h.mu.Unlock()
	if belay.CodeOf(err) == belay.CodeNotFound {
		delete(h.known, name)
		if len(h.missing) >= mostMissing {
			clear(h.missing)
		}
		h.missing[name] = now
		return info, 0, errNoWebhook
	}
	if err != nil {
		return info, 0, err
	}
	next := &hook{info: info, read: now}
	if k := h.known[name]; k != nil {
		next.limit, next.refused, next.warned = k.limit, k.refused, k.warned
	}
	h.known[name] = next
	return info, 0, nil
}

// errNoWebhook does not name commands, because it is for strangers.
var errNoWebhook = &belay.Error{Code: belay.CodeNotFound, Message: "there is no webhook at this address"}

// reread makes the next look at a webhook read its terms again, and reports whether no other request has just done so.
func (h *Hooks) reread(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.known[name]
	if k == nil || k.read.IsZero() {
		return false
	}
	again := *k
	again.read = time.Time{}
	h.known[name] = &again
	return true
}

// forget makes the next delivery read the terms of a webhook again.
func (h *Hooks) forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.missing, name)
	h.listed = time.Time{}
	if k := h.known[name]; k != nil {
		again := *k
		again.read = time.Time{}
		h.known[name] = &again
	}
}

// pace refuses a delivery above the rate of its webhook.
func (h *hooks) pace(name string, perSecond int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.known[name]
	if k == nil { // removed at this moment
		return errNoWebhook
	}
	if k.limit == nil || k.limit.Limit() != rate.Limit(perSecond) {
		k.limit = rate.NewLimiter(rate.Limit(perSecond), 2*perSecond)
	}
	if k.limit.AllowN(h.a.o.Now(), 1) {
		return nil
	}
	return &belay.Error{
		Code: belay.CodeRateLimited, Message: "the webhook gets too many deliveries", RetryAfter: time.Second,
	}
}

// refuse remembers a refused request, for operators.
func (h *hooks) refuse(name string, r *http.Request, why error) {
	var text string
	if f := refuse(why); f != nil {
		text = f.problem.Detail
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.known[name]
	if k == nil {
		return
	}
	k.refused = slices.Insert(k.refused, 0, belay.WebhookRefusal{At: h.a.o.Now(), From: remote(r), Text: text})
	k.refused = k.refused[:min(len(k.refused), mostRefused)]
}

// complete adds to a webhook what this server alone knows of it.
func (a *api) complete(h *belay.WebhookInfo) {
	if h.Scheme != belay.SchemeAMQP {
		h.Refused = a.hooks.refusals(h.Name)
		return
	}
	h.Consumer = &belay.WebhookConsumer{Text: noBroker}
	if a.o.Queues != nil {
		*h.Consumer, h.Refused = a.o.Queues.Consumer(h.Name)
	}
}

// checkQueue checks the name of the queue of a webhook.
func (a *api) checkQueue(h *belay.Webhook) error {
	if h.AMQP == nil || a.o.Queues == nil {
		return nil
	}
	return a.o.Queues.CheckQueue(h.AMQP.Queue)
}

// refusals are the newest refused requests of a webhook.
func (h *Hooks) refusals(name string) []belay.WebhookRefusal {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.known[name]; k != nil {
		return slices.Clone(k.refused)
	}
	return nil
}

// count passes the outcome of a request to the metrics. It counts all names without a webhook together, so that callers
// cannot create series of metrics.
func (h *hooks) count(name, outcome string) {
	h.mu.Lock()
	known := h.known[name] != nil
	h.mu.Unlock()
	if !known {
		name = "none"
	}
	h.a.delivered(name, outcome)
}

func (a *api) delivered(webhook, outcome string) {
	if a.o.Deliveries != nil {
		a.o.Deliveries(webhook, outcome)
	}
}

// maxPublish is the largest size of the body of a request with CloudEvents, in bytes.
const maxPublish = 4 << 20

// cloudEvents adds the route that takes CloudEvents.
func (a *api) cloudEvents() {
	rt := &route{
		id: "publishCloudEvents", method: http.MethodPost, path: "/v1/cloudevents", tag: "webhooks",
		summary: "Publish CloudEvents",
		doc: "The body has an event in the binary or structured mode of CloudEvents 1.0, or a batch of at most 100. Each " +
			"webhook of the scheme cloudevents whose filter is true starts an execution, once for the source and the id of an event. The " +
			"answer comes after all commits. If it is an error, repeat the request: nothing starts twice.",
		scopes: []belay.Scope{belay.ScopeSubmit}, body: true, raw: true, limit: maxPublish,
		errors: []int{http.StatusConflict},
	}
	a.define(rt, func(w http.ResponseWriter, r *http.Request) {
		results, err := a.hooks.publish(r)
		if err == nil {
			err = answerJSON(w, wire.Published{Events: results})
		}
		if err != nil {
			f := refuse(err)
			a.failed(r.Context(), rt, f)
			f.write(w)
		}
	}, func(d *document) {
		op := d.operation(rt)
		event := d.schema(reflect.TypeFor[wire.CloudEvent](), rt.id)
		op.RequestBody = &huma.RequestBody{
			Required: true, Description: "In the binary mode the attributes are in headers such as ce-id.",
			Content: map[string]*huma.MediaType{
				"application/cloudevents+json":       {Schema: event},
				"application/cloudevents-batch+json": {Schema: &huma.Schema{Type: huma.TypeArray, Items: event}},
				"application/json":                   {Schema: &huma.Schema{}}, "*/*": {},
			},
		}
		op.Responses["200"] = &huma.Response{
			Description: http.StatusText(http.StatusOK),
			Content: map[string]*huma.MediaType{
				"application/json": {Schema: d.schema(reflect.TypeFor[wire.Published](), rt.id)},
			},
		}
		d.doc().AddOperation(&op)
	})
}

// publish delivers the events of a request to the webhooks that want them.
func (h *hooks) publish(r *http.Request) ([]belay.CloudEventResult, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	events, err := webhook.CloudEvents(r.Header, body)
	if err != nil {
		return nil, err
	}
	to, err := h.subscribersNow(r.Context())
	if err != nil {
		return nil, err
	}
	results, err := webhook.PublishTo(r.Context(), h.a.b, to, belay.CloudEventPublish{
		Events: events, Actor: callerOf(r.Context()).actor(""),
	})
	if err != nil {
		h.mu.Lock()
		h.listed = time.Time{}
		h.mu.Unlock()
		if errors.Is(err, webhook.ErrChanged) {
			err = later(webhook.ErrChanged.Message, time.Second)
		}
		return nil, err
	}
	for i := range results {
		for _, d := range results[i].Deliveries {
			h.a.delivered(d.Webhook, string(d.Outcome))
		}
	}
	return results, nil
}

// subscribersNow lists the webhooks of CloudEvents.
func (h *hooks) subscribersNow(ctx context.Context) ([]belay.WebhookInfo, error) {
	now := h.a.o.Now()
	h.mu.Lock()
	list, fresh := h.subscribers, now.Sub(h.listed) < termsFresh
	h.mu.Unlock()
	if fresh {
		return list, nil
	}
	list, err := webhook.Subscribers(ctx, h.a.b)
	if err == nil {
		h.mu.Lock()
		h.subscribers, h.listed = list, now
		h.mu.Unlock()
	}
	return list, err
}

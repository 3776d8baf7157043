package httpapi_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// hookSecret and otherSecret are the secrets HOOK and OTHER of all webhooks.
const hookSecret, otherSecret = "a secret of the hook", "another secret of it"

func hookSecrets(_, name string) (string, error) {
	switch name {
	case "HOOK":
		return hookSecret, nil
	case "OTHER":
		return otherSecret, nil
	}
	return "", &belay.Error{Code: belay.CodeForbidden, Message: "the secret " + name + " is not allowed"}
}

func sum(secret, text string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func githubSignature(secret, body string) string {
	return "sha256=" + hex.EncodeToString(sum(secret, body))
}

// github are the headers of a delivery of GitHub.
func github(secret, id, body string) []string {
	return []string{
		"X-Hub-Signature-256", githubSignature(secret, body), "X-GitHub-Delivery", id, "X-GitHub-Event", "push",
	}
}

// serveHooks serves the webhook h of the workflow w.
func serveHooks(t *testing.T, o httpapi.Options, terms string) *server {
	t.Helper()
	o.Secrets = hookSecrets
	s := serve(t, o)
	s.want(http.StatusCreated, nil, http.MethodPut, "/v1/webhooks/h", terms)
	return s
}

const hookTerms = `{"scheme": "github", "secrets": ["${{ secrets.HOOK }}"], "execution": {"workflow": "w"}}`

type hooked struct {
	Outcome   belay.WebhookOutcome `json:"outcome"`
	Execution belay.ExecutionID    `json:"execution"`
}

// refusals returns the texts of the refused requests of the webhook h, the newest first.
func (s *server) refusals() (texts []string) {
	s.t.Helper()
	var h struct {
		Refused []belay.WebhookRefusal `json:"refused"`
	}
	s.want(http.StatusOK, &h, http.MethodGet, "/v1/webhooks/h", "")
	for _, r := range h.Refused {
		texts = append(texts, r.Text)
	}
	return texts
}

// A signed delivery starts one execution, and a delivery with a wrong signature none. Operators see why.
func TestOnlySignedDeliveriesStartExecutions(t *testing.T) {
	s := serveHooks(t, httpapi.Options{}, hookTerms)
	body := `{"after": "3f2a"}`
	right := githubSignature(hookSecret, body)
	var first, again hooked
	s.want(http.StatusOK, &first, http.MethodPost, "/hooks/h", body, github(hookSecret, "1", body)...)
	s.want(http.StatusOK, &again, http.MethodPost, "/hooks/h", body, github(hookSecret, "1", body)...)
	if first.Outcome != belay.DeliveryStarted || again.Outcome != belay.DeliveryDuplicate ||
		again.Execution != first.Execution {
		t.Errorf("%+v, then %+v", first, again)
	}
	x, err := s.b.Execution(t.Context(), first.Execution)
	if err != nil || string(x.Input) != `{"after":"3f2a"}` || x.Trigger != belay.TriggerWebhook ||
		x.CreatedBy != "webhook h" {
		t.Errorf("%+v, %v", x, err)
	}
	for what, headers := range map[string][]string{
		"no signature":       {"X-GitHub-Delivery", "2"},
		"another secret":     github(otherSecret, "2", body),
		"an empty secret":    github("", "2", body),
		"another body":       github(hookSecret, "2", body+" "),
		"no hash":            {"X-Hub-Signature-256", "sha256=", "X-GitHub-Delivery", "2"},
		"another hash":       {"X-Hub-Signature-256", "sha1=" + right[7:], "X-GitHub-Delivery", "2"},
		"the secret itself":  {"X-Hub-Signature-256", hookSecret, "X-Gitlab-Token", hookSecret},
		"a key of this side": {"Authorization", "Bearer " + hookSecret},
	} {
		a := s.want(http.StatusUnauthorized, nil, http.MethodPost, "/hooks/h", body, headers...)
		if text := string(a.body); strings.Contains(text, right[7:]) || strings.Contains(text, hookSecret) {
			t.Errorf("%s: the answer tells a secret: %s", what, a.body)
		}
	}
	if got := s.refusals(); len(got) != 8 {
		t.Errorf("%d refused requests are shown: %q", len(got), got)
	}
	s.want(http.StatusOK, nil, http.MethodPost, "/hooks/h", body, github(hookSecret, "an id", body)...)
	s.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodPost, "/hooks/none", body,
		github(hookSecret, "3", body)...)
	page, err := s.b.Executions(t.Context(), belay.Filter{})
	if err != nil || len(page.Executions) != 2 {
		t.Errorf("%d executions, %v", len(page.Executions), err)
	}
}

// A delivery that was signed for a webhook does not count for another one of the same name and version that was made
// in the meantime.
func TestAWebhookThatIsMadeAgainHasOtherSecrets(t *testing.T) {
	s := serveHooks(t, httpapi.Options{}, hookTerms)
	s.want(http.StatusOK, nil, http.MethodPost, "/hooks/h", `{}`, github(hookSecret, "1", `{}`)...)
	change := belay.WebhookChange{Name: "h", Action: belay.WebhookRemove}
	if _, err := s.b.ChangeWebhook(t.Context(), change); err != nil { // past the API, as another server does
		t.Fatal(err)
	}
	put := belay.WebhookPut{Webhook: belay.Webhook{
		Name: "h", Scheme: belay.SchemeGitHub, Secrets: []string{"${{ secrets.OTHER }}"},
		Execution: belay.Submission{Workflow: "w"},
	}}
	if _, err := s.b.PutWebhook(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	s.want(http.StatusServiceUnavailable, nil, http.MethodPost, "/hooks/h", `{}`, github(hookSecret, "2", `{}`)...)
	s.want(http.StatusUnauthorized, nil, http.MethodPost, "/hooks/h", `{}`, github(hookSecret, "2", `{}`)...)
}

// A new secret works beside the old one, and an old one ends with the change of the webhook.
func TestASecretIsReplacedWithoutAPause(t *testing.T) {
	s := serveHooks(t, httpapi.Options{}, hookTerms)
	terms := func(names ...string) string {
		return `{"scheme": "github", "secrets": ["${{ secrets.` + strings.Join(names, ` }}", "${{ secrets.`) +
			` }}"], "execution": {"workflow": "w"}}`
	}
	n := 0
	try := func(secret string, status int) {
		t.Helper()
		n++
		s.want(status, nil, http.MethodPost, "/hooks/h", `{}`, github(secret, strconv.Itoa(n), `{}`)...)
	}
	try(otherSecret, http.StatusUnauthorized)
	s.want(http.StatusOK, nil, http.MethodPut, "/v1/webhooks/h", terms("HOOK", "OTHER"))
	try(hookSecret, http.StatusOK)
	try(otherSecret, http.StatusOK)
	s.want(http.StatusOK, nil, http.MethodPut, "/v1/webhooks/h", terms("OTHER", "MISSING"))
	try(hookSecret, http.StatusUnauthorized)
	try(otherSecret, http.StatusOK)
	s.want(http.StatusOK, nil, http.MethodPut, "/v1/webhooks/h", terms("MISSING"))
	try(otherSecret, http.StatusServiceUnavailable)
}

// Another server may have changed the secrets: the terms that this server knows are read again before a signature is
// refused, and a delivery under old terms starts nothing.
func TestSecretsOfAnotherServerCount(t *testing.T) {
	s := serveHooks(t, httpapi.Options{}, hookTerms)
	s.want(http.StatusOK, nil, http.MethodPost, "/hooks/h", `{}`, github(hookSecret, "1", `{}`)...)
	put := belay.WebhookPut{Webhook: belay.Webhook{
		Name: "h", Scheme: belay.SchemeGitHub, Secrets: []string{"${{ secrets.OTHER }}"},
		Execution: belay.Submission{Workflow: "w"},
	}}
	if _, err := s.b.PutWebhook(t.Context(), put); err != nil { // past the API, as another server does
		t.Fatal(err)
	}
	s.want(http.StatusServiceUnavailable, nil, http.MethodPost, "/hooks/h", `{}`, github(hookSecret, "2", `{}`)...)
	s.want(http.StatusUnauthorized, nil, http.MethodPost, "/hooks/h", `{}`, github(hookSecret, "2", `{}`)...)
	s.want(http.StatusOK, nil, http.MethodPost, "/hooks/h", `{}`, github(otherSecret, "3", `{}`)...)
}

// A delivery is limited in size and in rate, and only signed ones use up the rate.
func TestDeliveriesAreLimited(t *testing.T) {
	var now atomic.Int64
	s := serveHooks(t, httpapi.Options{Now: func() time.Time { return time.Unix(1_800_000_000+now.Load(), 0) }},
		`{"scheme": "github", "secrets": ["${{ secrets.HOOK }}"], "rate": 2, "max_bytes": 20, "execution": {"workflow": "w"}}`)
	large := `"` + strings.Repeat("x", 30) + `"`
	s.want(http.StatusRequestEntityTooLarge, nil, http.MethodPost, "/hooks/h", large, github(hookSecret, "l", large)...)
	huge := strings.Repeat("x", belay.MaxDeliveryBytes+1)
	s.want(http.StatusNotFound, nil, http.MethodPost, "/hooks/none", huge) // nothing of it is read
	s.want(http.StatusNotFound, nil, http.MethodPost, "/hooks/a%2Fb", huge)
	s.want(http.StatusRequestEntityTooLarge, nil, http.MethodPost, "/hooks/h", huge, github(hookSecret, "h", huge)...)
	for range 20 {
		s.want(http.StatusUnauthorized, nil, http.MethodPost, "/hooks/h", `{}`)
	}
	for i := range 5 {
		status := http.StatusOK
		if i == 4 {
			status = http.StatusTooManyRequests
		}
		a := s.want(status, nil, http.MethodPost, "/hooks/h", `{}`, github(hookSecret, strconv.Itoa(i), `{}`)...)
		if i == 4 && a.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	now.Add(1)
	s.want(http.StatusOK, nil, http.MethodPost, "/hooks/h", `{}`, github(hookSecret, "4", `{}`)...)
}

// A body that is no JSON, or hostile JSON, is refused after its signature was checked, and a form is read.
func TestBodiesOfDeliveries(t *testing.T) {
	s := serveHooks(t, httpapi.Options{}, hookTerms)
	send := func(id, kind, body string, status int) *answer {
		t.Helper()
		return s.want(status, nil, http.MethodPost, "/hooks/h", body,
			append(github(hookSecret, id, body), "Content-Type", kind)...)
	}
	const json, form = "application/json", "application/x-www-form-urlencoded"
	send("1", json, `{"a":`, http.StatusUnprocessableEntity)
	send("2", json, strings.Repeat("[", 5000)+strings.Repeat("]", 5000), http.StatusUnprocessableEntity)
	send("3", json, "{\"a\":\"\xff\"}", http.StatusUnprocessableEntity)
	send("4", form, "a=%zz", http.StatusUnprocessableEntity)
	send("5", form, url.Values{"payload": {`{"after":"3f2a"}`}, "b": {"c"}}.Encode(), http.StatusOK)
	send("6", json, `{"n": 12345678901234567890, "b": {"z": 1, "a": 2}}`, http.StatusOK)
	for id, want := range map[string]string{
		"5": `{"b":"c","payload":{"after":"3f2a"}}`, "6": `{"n":12345678901234567890,"b":{"z":1,"a":2}}`,
	} {
		d, err := s.b.WebhookDelivery(t.Context(), "h", id)
		if err != nil || string(d.Data) != want {
			t.Errorf("delivery %s has the data %s, %v", id, d.Data, err)
		}
	}
}

// Slack gets the answers that it expects: the text of a challenge, and nothing that it would show to a user.
func TestSlackGetsItsAnswers(t *testing.T) {
	s := serveHooks(t, httpapi.Options{},
		`{"scheme": "slack", "secrets": ["${{ secrets.HOOK }}"], "execution": {"workflow": "w"}}`)
	send := func(body string) *answer {
		t.Helper()
		at := strconv.FormatInt(time.Now().Unix(), 10)
		return s.want(http.StatusOK, nil, http.MethodPost, "/hooks/h", body, "X-Slack-Request-Timestamp", at,
			"X-Slack-Signature", "v0="+hex.EncodeToString(sum(hookSecret, "v0:"+at+":"+body)))
	}
	if a := send(`{"type": "url_verification", "challenge": "c4"}`); string(a.body) != "c4" {
		t.Errorf("the answer to the challenge is %q", a.body)
	}
	if a := send(`{"type": "event_callback", "event_id": "Ev1", "event": {"type": "message"}}`); len(a.body) > 0 {
		t.Errorf("the answer is %q", a.body)
	}
	h, err := s.b.Webhook(t.Context(), "h")
	if err != nil || len(h.Recent) != 1 || h.Recent[0].ID != "Ev1" || h.Recent[0].Type != "message" {
		t.Errorf("%+v, %v", h.Recent, err)
	}
}

// A signed time is right for five minutes, in both directions.
func TestOldDeliveriesAreRefused(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := serveHooks(t, httpapi.Options{Now: func() time.Time { return now }},
		`{"scheme": "standard", "secrets": ["${{ secrets.HOOK }}"], "execution": {"workflow": "w"}}`)
	for age, status := range map[time.Duration]int{
		0: http.StatusOK, belay.WebhookTolerance: http.StatusOK, -belay.WebhookTolerance: http.StatusOK,
		belay.WebhookTolerance + time.Second:  http.StatusUnauthorized,
		-belay.WebhookTolerance - time.Second: http.StatusUnauthorized,
	} {
		id, at, body := fmt.Sprint("m", age.Seconds()), strconv.FormatInt(now.Add(-age).Unix(), 10), `{"type": "x"}`
		s.want(status, nil, http.MethodPost, "/hooks/h", body, "Webhook-Id", id, "Webhook-Timestamp", at,
			"Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(sum(hookSecret, id+"."+at+"."+body)))
	}
}

// The server judges the execution of each delivery like a submission, with the input that the sender has chosen. It
// lets no webhook start its own workflow of bulks.
func TestDeliveriesAreAdmitted(t *testing.T) {
	judge := func(_ context.Context, s *belay.Submission) (func(belay.ExecutionID), error) {
		switch {
		case strings.Contains(string(s.Input), "forbidden"):
			return nil, &belay.Error{Code: belay.CodeForbidden, Op: "submit", Message: "the input is forbidden"}
		case strings.Contains(string(s.Input), "full"):
			return nil, &belay.Error{Code: belay.CodeQueueFull, Op: "submit", Message: "the queue is full"}
		}
		return func(belay.ExecutionID) {}, nil
	}
	terms := func(workflow string) string {
		return `{"scheme": "github", "secrets": ["${{ secrets.HOOK }}"], "execution": {"workflow": "` + workflow +
			`", "input": ["${{ event.data }}"]}}`
	}
	s := serveHooks(t, httpapi.Options{Admit: map[string]httpapi.Admission{"command": judge}}, terms("command"))
	s.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPut, "/v1/webhooks/b", terms(belay.BulkWorkflow))
	send := func(id, body string, status int) {
		t.Helper()
		s.want(status, nil, http.MethodPost, "/hooks/h", body, github(hookSecret, id, body)...)
	}
	send("1", `"allowed"`, http.StatusOK)
	send("2", `"forbidden"`, http.StatusForbidden)
	send("3", `"full"`, http.StatusTooManyRequests)
	const deliveries = "/v1/webhooks/h/deliveries"
	s.want(http.StatusForbidden, nil, http.MethodPost, deliveries, `{"id": "t", "data": "forbidden"}`)
	s.want(http.StatusOK, nil, http.MethodPut, "/v1/webhooks/h", strings.Replace(terms("other"), `"execution"`,
		`"filter": "event.data == 1", "execution"`, 1))
	send("4", `"forbidden"`, http.StatusOK) // filtered
	s.want(http.StatusOK, nil, http.MethodPut, "/v1/webhooks/h", terms("command"))
	s.want(http.StatusForbidden, nil, http.MethodPost, deliveries+"/4/replay", "")
	page, err := s.b.Executions(t.Context(), belay.Filter{})
	if err != nil || len(page.Executions) != 1 {
		t.Errorf("%d executions, %v", len(page.Executions), err)
	}
}

// To make a webhook and to test it, a key needs the scopes submit and operate.
func TestAWebhooksKeyMayAlsoSubmit(t *testing.T) {
	s := serveHooks(t, httpapi.Options{}, hookTerms)
	both := s.withKey("both", belay.ScopeOperate, belay.ScopeSubmit)
	both.want(http.StatusOK, nil, http.MethodPost, "/v1/webhooks/h/deliveries", `{"id": "1", "data": 1}`)
	for _, r := range [][3]string{
		{http.MethodPut, "/v1/webhooks/h", hookTerms},
		{http.MethodPost, "/v1/webhooks/h/deliveries", `{"id": "2", "data": 1}`},
	} {
		for _, scope := range []belay.Scope{belay.ScopeOperate, belay.ScopeSubmit} {
			one := s.withKey("only "+string(scope)+r[1], scope)
			one.refused(http.StatusForbidden, belay.CodeForbidden, r[0], r[1], r[2])
		}
		both.want(http.StatusOK, nil, r[0], r[1], r[2])
	}
}

// subscribe makes a webhook of CloudEvents.
func (s *server) subscribe(name, filter string) {
	s.t.Helper()
	s.want(http.StatusCreated, nil, http.MethodPut, "/v1/webhooks/"+name, `{"scheme": "cloudevents", "filter": "`+filter+
		`", "execution": {"workflow": "`+name+`", "labels": {"subject": "${{ event.headers['ce-subject'] }}"}}}`)
}

// published are the outcomes of events, in the form "id: webhook outcome, …".
func (s *server) published(status int, kind, body string) string {
	s.t.Helper()
	var out struct {
		Events []belay.CloudEventResult `json:"events"`
	}
	if status != http.StatusOK {
		s.want(status, nil, http.MethodPost, "/v1/cloudevents", body, "Content-Type", kind)
		return ""
	}
	s.want(status, &out, http.MethodPost, "/v1/cloudevents", body, "Content-Type", kind)
	var all []string
	for _, e := range out.Events {
		text := e.ID + ":"
		for _, d := range e.Deliveries {
			text += " " + d.Webhook + " " + string(d.Outcome)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// Each webhook of CloudEvents whose filter is true starts an execution for an event, once for its source and id.
func TestCloudEventsStartExecutions(t *testing.T) {
	s := serve(t, httpapi.Options{Admit: map[string]httpapi.Admission{
		"guarded": func(context.Context, *belay.Submission) (func(belay.ExecutionID), error) {
			return nil, &belay.Error{Code: belay.CodeForbidden, Op: "submit", Message: "it is guarded"}
		},
	}})
	s.subscribe("orders", `event.type == 'order.created'`)
	s.subscribe("all", ``)
	s.subscribe("guarded", `event.type == 'secret'`)
	s.subscribe("broken", `event.data.a.b > 1`)
	s.want(http.StatusNotFound, nil, http.MethodPost, "/hooks/orders", `{}`)
	const one, many = "application/cloudevents+json", "application/cloudevents-batch+json"
	event := func(id, source, kind string) string {
		return `{"specversion": "1.0", "id": "` + id + `", "source": "` + source + `", "type": "` + kind +
			`", "subject": "s", "data": {"a": {"b": 0}}}`
	}
	for _, x := range []struct{ kind, body, want string }{
		{one, event("1", "/shop", "order.created"), "1: all started orders started"},
		{one, event("1", "/shop", "order.created"), "1: all duplicate orders duplicate"},
		{one, event("1", "/other", "order.created"), "1: all started orders started"},
		{
			many, "[" + event("2", "/shop", "x") + "," + event("3", "/shop", "secret") + "]",
			"2: all started, 3: all started guarded failed",
		},
		{many, "[]", ""},
		{one, `{"specversion": "1.0", "id": "4", "source": "/s", "type": "t", "data": 1}`, "4: all started broken failed"},
	} {
		if got := s.published(http.StatusOK, x.kind, x.body); got != x.want {
			t.Errorf("%s: %q, want %q", x.body, got, x.want)
		}
	}
	s.published(http.StatusUnprocessableEntity, one, `{"id": "1"}`)
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/webhooks/all/pause", "")
	if got := s.published(http.StatusOK, one, event("5", "/shop", "x")); got != "5: all paused" {
		t.Errorf("%q", got)
	}
	page, err := s.b.Executions(t.Context(), belay.Filter{Workflow: "orders"})
	if err != nil || len(page.Executions) != 2 {
		t.Fatalf("%d executions, %v", len(page.Executions), err)
	}
	x, err := s.b.Execution(t.Context(), page.Executions[0].ID)
	if err != nil || x.Trigger != belay.TriggerEvent || x.Labels["subject"] != "s" || string(x.Input) != `{"a":{"b":0}}` {
		t.Errorf("%+v, %v", x, err)
	}
}

// To publish events, a key needs the scope submit, and the executions name it.
func TestPublishersNeedAKey(t *testing.T) {
	s := serve(t, httpapi.Options{})
	s.subscribe("all", ``)
	const event = `{"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}`
	key := s.withKey("shop", belay.ScopeSubmit)
	s.withKey("reader", belay.ScopeRead, belay.ScopeOperate).published(http.StatusForbidden,
		"application/cloudevents+json", event)
	s.published(http.StatusUnauthorized, "application/cloudevents+json", event)
	if got := key.published(http.StatusOK, "application/cloudevents+json", event); got != "1: all started" {
		t.Errorf("%q", got)
	}
	page, err := s.b.Executions(t.Context(), belay.Filter{Workflow: "all"})
	if err != nil || len(page.Executions) != 1 || page.Executions[0].CreatedBy != "shop" {
		t.Errorf("%+v, %v", page.Executions, err)
	}
}

// queues is a consumer of queues.
type queues struct{}

func (queues) CheckQueue(queue string) error {
	if strings.HasPrefix(queue, "belay.") {
		return &belay.Error{Code: belay.CodeInvalid, Message: "the queue belongs to Belay"}
	}
	return nil
}

func (queues) Consumer(webhook string) (belay.WebhookConsumer, []belay.WebhookRefusal) {
	return belay.WebhookConsumer{Consuming: true, Since: time.Unix(1, 0).UTC()},
		[]belay.WebhookRefusal{{From: "queue of " + webhook, Text: "not JSON"}}
}

// Rule: the door for senders does not know webhooks of queues. A webhook shows how the server consumes its queue, and
// whether it has a broker at all; with a broker, the names of its own queues are refused.
func TestWebhooksOfQueues(t *testing.T) {
	t.Parallel()
	terms := func(queue string) string {
		return `{"scheme": "amqp", "amqp": {"queue": "` + queue + `"}, "execution": {"workflow": "w"}}`
	}
	without, with := serve(t, httpapi.Options{}), serve(t, httpapi.Options{Queues: queues{}})
	without.want(http.StatusCreated, nil, http.MethodPut, "/v1/webhooks/h", terms("belay.x"))
	with.want(http.StatusUnprocessableEntity, nil, http.MethodPut, "/v1/webhooks/h", terms("belay.x"))
	with.want(http.StatusCreated, nil, http.MethodPut, "/v1/webhooks/h", terms("orders"))
	for _, s := range []*server{without, with} {
		s.want(http.StatusNotFound, nil, http.MethodPost, "/hooks/h", `{}`)
		s.want(http.StatusNotFound, nil, http.MethodPost, "/hooks/h", `{}`, github(hookSecret, "1", `{}`)...)
	}
	var h, of struct {
		Consumer struct {
			Consuming bool
			Text      string
		}
		Refused []struct{ Text string }
	}
	without.want(http.StatusOK, &h, http.MethodGet, "/v1/webhooks/h", "")
	if h.Consumer.Consuming || !strings.Contains(h.Consumer.Text, "has no broker") {
		t.Errorf("%+v", h)
	}
	with.want(http.StatusOK, &of, http.MethodGet, "/v1/webhooks/h", "")
	if !of.Consumer.Consuming || len(of.Refused) != 1 || of.Refused[0].Text != "not JSON" {
		t.Errorf("%+v", of)
	}
	// All senders of events cannot reach it either.
	with.want(http.StatusOK, nil, http.MethodPost, "/v1/cloudevents",
		`{"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}`, "Content-Type", "application/cloudevents+json")
	if page, err := with.b.Executions(t.Context(), belay.Filter{}); err != nil || len(page.Executions) != 0 {
		t.Errorf("%+v %v", page, err)
	}
}

package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// walker sends requests, and checks requests and answers against the OpenAPI document.
type walker struct {
	*server
	doc *document
}

// step sends a request, checks the status of its answer and the answer against the document, and
// returns the answer's fields.
func (w *walker) step(status int, method, path, body string, h ...string) map[string]any {
	w.t.Helper()
	if status < 300 {
		w.doc.checkQuery(method, path)
		w.doc.checkBody(method, path, body)
	}
	a := w.do(method, path, body, h...)
	if a.StatusCode != status {
		w.t.Errorf("%s %s: %d, want %d: %s", method, path, a.StatusCode, status, a.body)
	}
	w.doc.check(method, path, a)
	out := map[string]any{"location": a.Header.Get("Location"), "lease-id": a.Header.Get("Lease-Id"),
		"lease-token": a.Header.Get("Lease-Token"), "etag": a.Header.Get("ETag")}
	if strings.HasSuffix(a.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(a.body, &out); err != nil {
			w.t.Errorf("%s %s: %v", method, path, err)
		}
	}
	return out
}

func (w *walker) submitted(body string) (path, id string) {
	w.t.Helper()
	x := w.step(201, "POST", "/v1/executions", body)
	return x["location"].(string), x["id"].(string)
}

// On every route, and for every documented success, the answer of a real server matches the OpenAPI
// document.
func TestAnswersAreAsDocumented(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write([]byte("belay_up 1\n"))
	})
	s := serve(t, httpapi.Options{
		Version: "test", Language: anyDocument{}, Documents: fakeDocuments{}, Metrics: metrics, Secrets: hookSecrets,
	})
	w := &walker{s, documentOf(t, s)}
	w.operations()
	w.executions()
	w.states()
	w.worker()
	w.owner()
	w.gates()
	w.documents()
	w.schedules()
	w.webhooks()
	w.targets()
	w.listsRuns()
	w.tasks()
	w.deletes()
	w.deadLetters()
	w.keys()
	for _, r := range w.doc.routes {
		for status := range r.operation["responses"].(map[string]any) {
			if at := r.method + " " + r.path + " " + status; status < "400" && !w.doc.seen[at] {
				t.Errorf("%s is documented, and no request of this test led to it", at)
			}
		}
	}
}

func (w *walker) operations() {
	w.t.Helper()
	w.step(200, "GET", "/healthz", "")
	w.step(200, "GET", "/readyz", "")
	w.step(200, "GET", "/metrics", "")
	etag := w.step(200, "GET", "/openapi.json", "")["etag"].(string)
	w.step(304, "GET", "/openapi.json", "", "If-None-Match", etag)
	w.step(400, "GET", "/healthz?x=1", "")
}

func (w *walker) documents() {
	w.t.Helper()
	const path = "/v1/workflows/nightly"
	w.step(201, "PUT", path, `{"text": "one", "reason": "the first", "actor": "ann"}`, "If-None-Match", "*")
	w.step(200, "PUT", path, `{"text": "one"}`)
	w.step(201, "PUT", path, `{"text": "two"}`, "If-Match", `"1"`)
	w.step(412, "PUT", path, `{"text": "three"}`, "If-Match", `"1"`)
	w.step(400, "PUT", path, `{"text": "three"}`, "If-Match", "1")
	w.step(422, "PUT", "/v1/workflows/-", `{"text": "three"}`)
	w.step(200, "GET", "/v1/workflows?limit=1", "")
	w.step(200, "GET", path, "")
	w.step(200, "GET", path+"/versions", "")
	w.step(200, "GET", path+"/versions/1", "")
	w.step(404, "GET", path+"/versions/7", "")
	w.step(200, "GET", path+"/diff?from=1&to=2", "")
	w.step(200, "GET", path+"/versions/1/graph?format=mermaid", "")
	w.step(200, "POST", path+"/versions/2/deprecate", `{"reason": "why", "actor": "ann"}`)
	w.step(200, "GET", path, "")
	w.step(201, "POST", "/v1/executions", `{"document": "nightly@2"}`)
	w.step(200, "POST", path+"/versions/2/restore", "")
	w.step(204, "DELETE", path+"/versions/2?reason=why&actor=ann", "")
	w.step(412, "DELETE", path, "", "If-Match", `"2"`)
	w.step(204, "DELETE", path, "")
}

func (w *walker) schedules() {
	w.t.Helper()
	const path = "/v1/schedules/nightly"
	const terms = `{"cron": "0 2 * * *", "time_zone": "Europe/Berlin", "jitter": "1m", "overlap": "buffer_one",
		"execution": {"workflow": "w", "input": {"a": 1}, "timeout": "15m", "labels": {"team": "web"}}, "reason": "r"}`
	w.step(201, "PUT", path, terms, "If-None-Match", "*")
	w.step(200, "PUT", path, terms)
	w.step(200, "PUT", path, `{"every_ms": 60000, "execution": {"workflow": "w"}}`, "If-Match", `"1"`)
	w.step(412, "PUT", path, terms, "If-Match", `"1"`)
	w.step(400, "PUT", path, terms, "If-Match", "1")
	w.step(422, "PUT", path, `{"cron": "0 0 30 2 *", "execution": {"workflow": "w"}}`)
	w.step(422, "PUT", path, `{"every": "1m", "every_ms": 1, "execution": {"workflow": "w"}}`)
	w.step(200, "GET", "/v1/schedules?limit=1", "")
	w.step(200, "POST", path+"/run", "")
	w.step(200, "POST", path+"/run", `{"overlap": "skip", "reason": "r", "actor": "ann"}`, "Idempotency-Key", "k")
	w.step(200, "POST", path+"/backfill", `{"from": "2026-11-20T00:00:00Z", "to": "2026-11-20T00:02:00Z"}`)
	w.step(422, "POST", path+"/backfill", `{"from": "2026-11-20T00:00:00Z", "to": "2020-11-20T00:02:00Z"}`)
	w.step(200, "GET", path, "")
	w.step(200, "POST", path+"/pause", `{"reason": "why", "actor": "ann"}`)
	w.step(200, "GET", path, "")
	w.step(200, "POST", path+"/resume", "")
	w.step(404, "POST", "/v1/schedules/none/resume", "")
	w.step(412, "DELETE", path, "", "If-Match", `"1"`)
	w.step(204, "DELETE", path+"?reason=why&actor=ann", "")
	w.step(404, "GET", path, "")
}

func (w *walker) webhooks() {
	w.t.Helper()
	const path = "/v1/webhooks/pushes"
	const terms = `{"scheme": "github", "secrets": ["${{ secrets.HOOK }}"], "filter": "event.type == \"push\"",
		"execution": {"workflow": "w", "input": {"commit": "${{ event.data.after }}"}, "labels": {"team": "web"}}}`
	w.step(201, "PUT", path, terms, "If-None-Match", "*")
	w.step(200, "PUT", path, terms)
	w.step(412, "PUT", path, terms, "If-Match", `"7"`)
	w.step(422, "PUT", path, `{"scheme": "odd", "secrets": ["${{ secrets.HOOK }}"], "execution": {"workflow": "w"}}`)
	w.step(422, "PUT", path, `{"scheme": "github", "secrets": ["hunter2"], "execution": {"workflow": "w"}}`)
	w.step(200, "GET", "/v1/webhooks?limit=1", "")
	const delivery = `{"id": "a/1", "type": "push", "data": {"after": "3f2a"}, "headers": {"a": "b"}, "actor": "ann"}`
	w.step(200, "POST", path+"/deliveries", delivery)
	w.step(200, "POST", path+"/deliveries", delivery, "If-Match", `"1"`)
	w.step(412, "POST", path+"/deliveries", delivery, "If-Match", `"2"`)
	w.step(200, "POST", path+"/deliveries", `{"id": "2", "data": 1}`)
	w.step(200, "GET", path+"/deliveries/a%2F1", "")
	w.step(404, "GET", path+"/deliveries/none", "")
	w.step(200, "POST", path+"/deliveries/a%2F1/replay", `{"actor": "ann"}`, "Idempotency-Key", "k")
	w.step(200, "POST", path+"/deliveries/2/replay", "")
	w.step(404, "POST", "/hooks/none", `{}`)
	w.step(401, "POST", "/hooks/pushes", `{}`)
	body := `{"after":"3f2a"}` // without spaces, which Prism leaves out
	w.step(200, "POST", "/hooks/pushes", body, github(hookSecret, "d1", body)...)
	w.step(200, "GET", path, "")
	w.step(200, "POST", path+"/pause", `{"reason": "why", "actor": "ann"}`)
	w.step(503, "POST", "/hooks/pushes", body, github(hookSecret, "d2", body)...)
	w.step(200, "POST", path+"/resume", "")
	w.step(412, "DELETE", path, "", "If-Match", `"1"`)
	w.step(204, "DELETE", path+"?reason=why&actor=ann", "")
	w.step(404, "GET", path, "")
	w.step(201, "PUT", path, `{"scheme": "cloudevents", "execution": {"workflow": "w"}}`)
	const event = `{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"a": 1}}`
	w.step(200, "POST", "/v1/cloudevents", event, "Content-Type", "application/cloudevents+json")
	w.step(422, "POST", "/v1/cloudevents", `{}`)
	w.step(204, "DELETE", path, "")
	w.step(201, "PUT", path, `{"scheme": "amqp", "amqp": {"queue": "q", "without_id": "hash"}, "execution": {"workflow": "w"}}`)
	w.step(200, "GET", path, "")
	w.step(404, "POST", "/hooks/pushes", `{}`)
	w.step(204, "DELETE", path, "")
}

func (w *walker) targets() {
	w.t.Helper()
	const path = "/v1/notification-targets/ops"
	const terms = `{"url": "https://ops.example.org/h", "secret": "${{ secrets.OPS }}", "on": ["failed"],
		"workflows": ["bill*"], "queues": ["default"], "labels": {"team": "web"}, "alerts": ["dead_letter", "no_worker"]}`
	w.step(201, "PUT", path, terms, "If-None-Match", "*")
	w.step(200, "PUT", path, terms)
	w.step(412, "PUT", path, terms, "If-Match", `"7"`)
	w.step(422, "PUT", path, `{"url": "ftp://ops.example.org/h"}`)
	w.step(422, "PUT", path, `{"url": "https://ops.example.org/h", "alerts": ["odd"]}`)
	w.step(200, "GET", "/v1/notification-targets", "")
	w.step(200, "GET", path, "")
	w.step(200, "POST", path+"/test", `{"actor": "ann"}`, "Idempotency-Key", "k")
	w.step(200, "POST", path+"/test", "", "Idempotency-Key", "k")
	w.step(200, "POST", path+"/pause", `{"reason": "why", "actor": "ann"}`)
	w.step(200, "POST", path+"/resume", "")
	w.step(404, "POST", "/v1/notification-targets/none/test", "")
	w.step(404, "POST", "/v1/notification-targets/none/pause", "")
	w.step(412, "DELETE", path, "", "If-Match", `"1"`)
	w.step(204, "DELETE", path+"?reason=why&actor=ann", "")
	w.step(404, "GET", path, "")
}

// states reads a stream of states, which has no end, up to a change.
func (w *walker) states() {
	w.t.Helper()
	ctx, leave := context.WithCancel(w.t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+states+"?state=pending&children=true", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	w.submitted(`{"workflow": "w", "version": "2", "labels": {"a": "b"}}`)
	a, in := &answer{Response: resp}, bufio.NewReader(resp.Body)
	for changed := false; ; {
		line, err := in.ReadString('\n')
		if err != nil {
			w.t.Fatal(err)
		}
		a.body = append(a.body, line...)
		if changed = changed || line == "event: change\n"; changed && line == "\n" {
			break
		}
	}
	w.doc.check(http.MethodGet, states, a)
}

func (w *walker) executions() {
	w.t.Helper()
	full := `{"id": "ex_0000000000000000000000000a", "workflow": "w", "version": "1", "input": {"a": [1, null]}, "queue": "q", "priority": 7,
		"labels": {"team": "web"}, "worker_labels": {"gpu": "yes"}, "due_at": "2020-01-01T00:00:00Z", "idempotency_key": "k", "trigger": "manual",
		"max_attempts": 2, "backoff_base": "2s", "timeout": "15m", "on_lost": "requeue", "on_expired": "fail",
		"concurrency": {"name": "walk", "max": 5, "when_full": "wait"}, "rate": {"name": "walk", "max": 5, "per_ms": 1000}, "target": "payments:charge"}`
	path, _ := w.submitted(full)
	w.step(200, "POST", "/v1/executions", full)
	w.step(422, "POST", "/v1/executions", `{"workflow": "w", "idempotency_key": "k"}`)
	w.step(400, "POST", "/v1/executions", `{"workflow": "w", "idempotency_key": "k"}`, "Idempotency-Key", "other")
	w.step(413, "POST", "/v1/executions", `{"workflow": "w", "input": "`+strings.Repeat("x", 2<<20)+`"}`)
	w.step(415, "POST", "/v1/executions", `{"workflow": "w"}`, "Content-Type", "text/plain")
	w.step(200, "GET", "/v1/executions?state=pending&state=running&label=team:web&queue=q&workflow=w&key=k"+
		"&limit=5&children=true", "")
	w.step(400, "GET", "/v1/executions?cursor=nonsense", "")
	etag := w.step(200, "GET", path, "")["etag"].(string)
	w.step(304, "GET", path, "", "If-None-Match", etag)
	w.step(200, "GET", path, "", "Prefer", "wait=0.01")
	w.step(404, "GET", "/v1/executions/ex_0000000000000000000000000b", "")
	w.step(200, "GET", path+"/explain", "")
	w.step(200, "GET", path+"/history?after=0&limit=10&data=true", "")
	w.step(204, "GET", path+"/history?after=1&wait=10ms", "")
	w.step(410, "GET", path+"/history?after=99&wait=60", "")
	w.step(410, "GET", path+"/events?after=99", "")
	w.step(202, "POST", path+"/signal", `{"name": "go", "payload": {"n": 1}}`, "Idempotency-Key", "s1")
	w.step(200, "GET", path+"/signals?after=0", "")
	w.step(200, "GET", path+"/token", "")
	w.step(200, "POST", path+"/pause", `{"reason": "lunch", "actor": "me"}`)
	w.step(200, "POST", path+"/resume", ``)
	w.step(409, "POST", path+"/retry", `{}`)
	w.step(200, "POST", path+"/cancel", `{"grace": "1s"}`, "Idempotency-Key", "c1")
	w.step(200, "GET", path+"/events", "")
	w.step(201, "POST", "/v1/stream-tokens", `{"execution": "`+strings.TrimPrefix(path, "/v1/executions/")+`"}`)
	seq := fmt.Sprint(w.step(200, "GET", path, "")["seq"])
	w.step(204, "GET", path+"/events", "", "Last-Event-ID", seq)
	w.step(409, "POST", path+"/signal", `{"name": "go"}`)
	w.step(200, "POST", path+"/retry", ``)
	w.step(200, "POST", path+"/cancel", ``)
	w.step(200, "POST", path+"/requeue", `{"input": {"b": 1}}`)
	w.step(200, "POST", path+"/cancel", ``)
	w.step(422, "POST", path+"/retry", `{"from": "a step"}`)
	w.step(200, "POST", path+"/retry", `{"input": 7}`)
	w.step(201, "POST", path+"/fork", `{"up_to": 1}`)
	w.step(422, "POST", path+"/fork", `{"at": "a step"}`)
	w.step(200, "GET", "/v1/runs?execution="+strings.TrimPrefix(path, "/v1/executions/"), "")
	w.step(400, "GET", "/v1/runs?execution=x", "")
}

func (w *walker) worker() {
	w.t.Helper()
	path, id := w.submitted(`{"workflow": "job", "timeout": "1h"}`)
	const spec = `{"name": "a", "workflows": [{"workflow": "job"}], "capacity": 2, "labels": {"gpu": "no"}}`
	session := w.step(201, "POST", "/v1/workers", spec, "Idempotency-Key", "open")["location"].(string)
	w.step(200, "POST", "/v1/workers", spec, "Idempotency-Key", "open")
	won := w.step(200, "POST", session+"/claim", `{"number": 1, "slots": 1, "wait_ms": 10000}`)
	run, lease := won["location"].(string), []string{
		"Lease-Id", won["lease-id"].(string), "Lease-Token", won["lease-token"].(string),
	}
	w.step(204, "POST", session+"/claim", `{"number": 2, "slots": 1, "wait_ms": 1}`)
	w.step(422, "POST", session+"/claim", `{"number": 0, "slots": 1}`)
	w.step(200, "POST", session+"/heartbeat",
		fmt.Sprintf(`{"holds": [{"execution": %q, "token": %s, "idle_ms": 5}], "claim_seen": 1}`, id,
			won["lease-token"]))
	w.step(200, "GET", path, "")
	w.step(200, "GET", run, "")
	w.step(200, "POST", run+"/heartbeat", "", lease...)
	w.step(428, "POST", run+"/heartbeat", "")
	w.step(412, "POST", run+"/heartbeat", "", "Lease-Id", lease[1], "Lease-Token", "99")
	w.step(200, "POST", run+"/checkpoint", `{"key": "one", "data": {"n": 1}, "cost_tokens": 0.0003}`, lease...)
	w.step(200, "POST", path+"/preempt", `{"reason": "now"}`)
	w.step(200, "POST", path+"/budget", `{"budget": {"cost": 20.5}, "reason": "worth it"}`)
	w.step(202, "POST", path+"/signal", `{"name": "go"}`)
	batch := fmt.Sprintf(`{"ops": [{"submit": {"workflow": "other"}}, {"signal": {"execution": %q, "name": "x"}},
		{"save": {"lease": {"execution": %q, "token": %s, "lease_id": %q}, "kind": "step", "key": "two", "data": 2}},
		{"append": {"lease": {"execution": %q, "token": %s, "lease_id": %q}, "name": "log", "n": 0, "data": "aGVsbG8K"}},
		{"settle": {"lease": {"execution": %q, "token": 1, "lease_id": %q}, "outcome": "succeeded"}}]}`,
		id, id, lease[3], lease[1], id, lease[3], lease[1], "ex_0000000000000000000000000b", lease[1])
	w.step(200, "POST", "/v1/batch", batch)
	w.step(200, "GET", path+"/logs/log", "")
	if text := w.do("GET", path+"/logs/log", "", "Accept", "text/plain"); string(text.body) != "hello\n" {
		w.t.Errorf("the log as text is %q", text.body)
	}
	w.step(200, "POST", run+"/target", `{"target": "payments:charge", "step": "pay"}`, lease...)
	w.step(200, "POST", run+"/target", `{"target": "payments:charge", "step": "pay", "outcome": "failed"}`, lease...)
	w.step(200, "PUT", "/v1/gates/target:payments:charge/breaker", `{"state": "open"}`)
	w.step(200, "POST", run+"/target", `{"target": "payments:charge"}`, lease...)
	w.step(200, "POST", run+"/suspend", `{"wait_ms": 1, "wait_text": "a nap", "signal_seen": 99}`, lease...)
	again := w.claim(session, 3)
	run, lease = again["location"].(string), []string{"Lease-Id", again["lease-id"].(string)}
	w.step(200, "POST", run+"/fail", `{"error": {"class": "transient", "message": "no"}, "retry_after_ms": 1, "output": {"tried": true}}`, lease...)
	w.accepts(session)
	third := w.claim(session, 20)
	run, lease = third["location"].(string), []string{"Lease-Id", third["lease-id"].(string)}
	w.step(200, "POST", run+"/complete", `{"output": [1]}`, lease...)
	w.step(200, "POST", run+"/complete", `{"output": [1]}`, lease...)
	w.step(412, "POST", run+"/complete", `{"output": [2]}`, lease...)
	w.step(200, "GET", run, "")
	w.step(200, "GET", path, "", "Prefer", "wait=10")
	w.step(200, "GET", path+"/events?data=true", "", "Last-Event-ID", "3")
	w.step(200, "POST", "/v1/await", `{"executions": ["`+id+`", "ex_0000000000000000000000000b"]}`)
	w.step(422, "POST", "/v1/await", `{"executions": []}`)
	w.step(200, "GET", "/v1/workers", "")
	w.step(204, "POST", session+"/cordon", "")
	w.step(204, "POST", session+"/cordon", `{"reason": "its disk is failing", "actor": "me"}`)
	w.step(422, "POST", session+"/cordon", `{"reason": "`+strings.Repeat("r", 201)+`"}`)
	w.step(422, "POST", session+"/cordon", `{"reason": "a\u0007b"}`)
	w.step(422, "POST", session+"/cordon", `{"why": "its disk is failing"}`)
	w.step(200, "GET", "/v1/workers", "")
	w.step(204, "POST", session+"/uncordon", "")
	w.step(204, "POST", session+"/drain", "")
	w.step(204, "DELETE", session, "")
}

// accepts accepts an execution that the engine schedules to the session.
func (w *walker) accepts(session string) {
	w.t.Helper()
	_, id := w.submitted(`{"workflow": "sent", "timeout": "1h"}`)
	worker, err := belay.ParseWorkerID(strings.TrimPrefix(session, "/v1/workers/"))
	if err != nil {
		w.t.Fatal(err)
	}
	token, err := w.b.Assign(w.t.Context(), mustExecution(w.t, id), worker)
	if err != nil {
		w.t.Fatal(err)
	}
	accept := func(id string, token, number int) string {
		return fmt.Sprintf(`{"number": %d, "offers": [{"execution": %q, "token": %d}]}`, number, id, token)
	}
	got := w.step(200, "POST", session+"/accept", accept(id, int(token), 1))
	again := w.step(200, "POST", session+"/accept", accept(id, int(token), 1))
	if got["location"] != again["location"] || got["lease-id"] != again["lease-id"] {
		w.t.Errorf("accepted %v, and then %v", got, again)
	}
	for _, old := range []string{accept(id, int(token)+1, 2), accept("ex_0000000000000000000000000b", 1, 2)} {
		if r := w.step(200, "POST", session+"/accept", old); len(r["assignments"].([]any)) != 0 {
			w.t.Errorf("%s: accepted %v", old, r)
		}
	}
	w.step(422, "POST", session+"/accept", accept(id, int(token), 0))
	w.step(422, "POST", session+"/accept", `{"number": 2, "offers": []}`)
	w.step(200, "POST", session+"/mailbox", "")
	w.step(204, "DELETE", session+"/mailbox", "")
	w.step(200, "POST", session+"/heartbeat", `{"claim_seen": 0, "accept_seen": 1}`)
	w.step(412, "POST", got["location"].(string)+"/heartbeat", "", "Lease-Id", got["lease-id"].(string),
		"Lease-Token", got["lease-token"].(string))
}

// claim wins one execution. If the server asks for a heartbeat first, it sends one and claims again
// under the next number.
func (w *walker) claim(session string, number int) map[string]any {
	w.t.Helper()
	for {
		won := w.step(200, "POST", session+"/claim", fmt.Sprintf(`{"number": %d, "slots": 1, "wait_ms": 10000}`,
			number))
		if won["location"] != "" || w.t.Failed() {
			return won
		}
		w.step(200, "POST", session+"/heartbeat", fmt.Sprintf(`{"claim_seen": %d}`, number))
		number++
	}
}

func (w *walker) owner() {
	w.t.Helper()
	path, _ := w.submitted(`{"workflow": "talk", "dispatch": "external", "on_lost": "requeue"}`)
	got := w.step(201, "POST", path+"/lock", `{"owner": "laptop", "ttl": "30s"}`, "Idempotency-Key", "l1")
	w.step(200, "POST", path+"/lock", `{"owner": "laptop", "ttl": "30s"}`, "Idempotency-Key", "l1")
	w.step(409, "POST", path+"/lock", `{"owner": "other"}`)
	w.step(200, "GET", "/v1/workers", "") // the session of an outside owner has no workflows
	lock, lease := got["location"].(string), []string{
		"Lease-Id", got["lease-id"].(string), "Lease-Token", got["lease-token"].(string),
	}
	w.step(200, "PUT", lock, "")
	w.step(200, "PUT", path+"/checkpoint", `{"data": {"said": ["hello"]}}`, lease...)
	w.step(428, "PUT", path+"/checkpoint", `{"data": 1}`)
	w.step(200, "GET", path+"/checkpoints", "", lease...)
	w.step(428, "GET", path+"/checkpoints", "")
	etag := w.step(200, "GET", path+"/token", "")["etag"].(string)
	w.step(304, "GET", path+"/token", "", "If-None-Match", etag)
	w.step(200, "POST", lock+"/release", `{"outcome": "suspend", "wait": "1h", "wait_text": "tomorrow"}`)
	w.step(412, "PUT", lock, "")
	w.step(412, "PUT", path+"/checkpoint", `{"data": 1}`, lease...)
	w.step(412, "GET", path+"/checkpoints?after=1", "", lease...)
	got = w.step(201, "POST", path+"/lock", `{"owner": "other"}`)
	lock, lease = got["location"].(string), []string{
		"Lease-Id", got["lease-id"].(string), "Lease-Token", got["lease-token"].(string),
	}
	w.step(200, "POST", path+"/lock/steal", `{"reason": "it hangs", "actor": "me"}`)
	w.step(412, "POST", lock+"/release", `{"outcome": "complete"}`, lease[2:]...)
	w.step(422, "POST", path+"/lock/steal", `{"reason": ""}`)
	got = w.step(201, "POST", path+"/lock", `{"owner": "third", "id": "wk_0000000000000000000000000c"}`)
	w.step(200, "POST", got["location"].(string)+"/release", `{"outcome": "complete", "output": {"turns": 1}}`)
}

// deletes deletes an execution.
func (w *walker) deletes() {
	at, id := w.submitted(`{"workflow": "dead", "input": {"n": 1}}`)
	w.step(409, "DELETE", at, "")
	w.step(200, "POST", at+"/quarantine", `{"reason": "poison"}`)
	w.step(409, "DELETE", at, "")
	w.step(200, "POST", "/v1/dead-letters/"+id+"/discard", "")
	w.step(200, "DELETE", at+"?reason=private&actor=me", "", "Idempotency-Key", "delete")
	w.step(404, "DELETE", at, "", "Idempotency-Key", "delete")
	w.step(404, "GET", at, "")
}

// listsRuns reads the runs of all executions.
func (w *walker) listsRuns() {
	w.step(200, "GET", "/v1/runs?limit=1", "")
	w.step(200, "GET", "/v1/runs?outcome=running&since=2020-01-01T00:00:00Z&workflow=x", "")
	w.step(200, "GET", "/v1/runs?outcome=succeeded&worker=wk_0000000000000000000000000c&until=2030-01-01T00:00:00Z", "")
	w.step(422, "GET", "/v1/runs?since=2030-01-01T00:00:00Z&until=2020-01-01T00:00:00Z", "")
	w.step(422, "GET", "/v1/runs?cursor=1/2/3", "")
	w.step(400, "GET", "/v1/runs?execution=ex_0000000000000000000000000z&limit=1", "")
}

// deadLetters quarantines an execution, and reads and resolves its dead letters.
func (w *walker) deadLetters() {
	at, id := w.submitted(`{"workflow": "dead", "input": {"n": 1}}`)
	letter := "/v1/dead-letters/" + id
	w.step(404, "GET", letter, "")
	w.step(200, "POST", at+"/quarantine", `{"reason": "poison"}`)
	w.step(409, "POST", at+"/quarantine", "")
	w.step(200, "GET", "/v1/dead-letters?reason=manual&workflow=dead&limit=1", "")
	w.step(200, "GET", "/v1/dead-letters?class=permanent&text=POISON&since=2020-01-01T00:00:00Z&resolution=all", "")
	w.step(422, "GET", "/v1/dead-letters?since=2030-01-01T00:00:00Z&until=2020-01-01T00:00:00Z", "")
	w.step(200, "GET", "/v1/dead-letter-groups?resolution=open", "")
	w.step(200, "GET", letter+"?generation=1", "")
	w.step(404, "GET", letter+"?generation=2", "")
	w.step(200, "POST", letter+"/note", `{"notes": "asked the provider"}`)
	w.step(422, "POST", letter+"/note", `{"notes": " "}`)
	w.step(200, "POST", letter+"/requeue", `{"input_patch": {"n": 2}, "notes": "the number was wrong"}`)
	w.step(409, "POST", letter+"/requeue", "")
	w.step(409, "POST", letter+"/discard", "")
	w.step(200, "POST", at+"/quarantine", "")
	w.step(200, "POST", letter+"/discard", `{"notes": "not needed"}`)
	w.step(409, "POST", letter+"/fix", "")
	w.step(409, "POST", letter+"/requeue", "")
	w.step(200, "POST", at+"/retry", "")
	w.step(200, "POST", at+"/quarantine", "")
	w.step(200, "POST", letter+"/fix", `{"generation": 3}`)
	w.step(404, "POST", letter+"/fix", `{"generation": 9}`)
	w.step(200, "POST", "/v1/bulk", `{"action": "requeue", "filter": {"workflow": "dead", "text": "poison"}, "dry_run": true}`)
	w.step(200, "POST", "/v1/bulk", `{"action": "requeue", "filter": {"workflow": "dead", "class": "permanent"},
		"input_patch": {"n": 3}, "notes": "the number was wrong", "rate": 2.5, "canary": [1], "max_failures": 0}`)
	w.step(200, "POST", "/v1/bulk", `{"action": "cancel", "filter": {"queue": "none", "labels": {"a": "b"}, "states": ["paused"]},
		"canary": []}`, "Idempotency-Key", "nightly")
	w.step(422, "POST", "/v1/bulk", `{"action": "cancel"}`)
	w.step(422, "POST", "/v1/bulk", `{"action": "cancel", "filter": {"workflow": "belay.bulk"}}`)
}

func (w *walker) gates() {
	w.t.Helper()
	w.step(200, "GET", "/v1/gates", "")
	for _, lane := range []string{"/v1/queues/night", "/v1/workflows/report", "/v1/gates/target:payments:charge"} {
		w.step(200, "POST", lane+"/pause", `{"until": "2099-01-01T00:00:00Z", "reason": "a move", "actor": "ann"}`,
			"Idempotency-Key", "p"+lane)
		w.step(422, "POST", lane+"/pause", `{"until": "2001-01-01T00:00:00Z"}`)
		w.step(200, "POST", lane+"/resume", ``)
	}
	w.step(200, "PUT", "/v1/gates/queue:night/limit", `{"max": 5, "reason": "why"}`)
	w.step(200, "PUT", "/v1/gates/queue:night/rate", `{"max": 5, "per": "1m"}`)
	if g := w.step(200, "PUT", "/v1/gates/queue:night/rate", `{"max": 5, "per_ms": 60000}`); !strings.Contains(
		fmt.Sprint(g["rate"]), "per_ms:60000") {
		w.t.Errorf("the rate is %v", g["rate"])
	}
	w.step(422, "PUT", "/v1/gates/queue:night/rate", `{"max": 5, "per": "1s", "per_ms": 60000}`)
	w.step(200, "GET", "/v1/gates/queue:night", "")
	w.step(422, "PUT", "/v1/gates/target:x/limit", `{"max": 5}`)
	w.step(422, "GET", "/v1/gates/queue:"+strings.Repeat("%E2%82%AC", 67), "")
	w.step(200, "DELETE", "/v1/gates/queue:night/limit?reason=why&actor=ann", "")
	w.step(200, "DELETE", "/v1/gates/queue:night/rate", "")
	w.step(422, "DELETE", "/v1/gates/target:x/rate", "")
	if g := w.step(200, "PUT", "/v1/gates/resource:gpu/resource",
		`{"min_residency": "30s", "max_wait_ms": 300000, "swap": {"workflow": "load", "timeout_ms": 60000}}`); !strings.Contains(
		fmt.Sprint(g["resource"]), "timeout:1m0s timeout_ms:60000") {
		w.t.Errorf("the resource is %v", g["resource"])
	}
	w.step(422, "PUT", "/v1/gates/resource:gpu/resource", `{"swap": {"workflow": "load", "timeout": "1s", "timeout_ms": 2}}`)
	w.step(201, "POST", "/v1/executions",
		`{"workflow": "w", "requires": {"resource": "gpu", "mode": "llama", "preemptible": true}}`)
	w.step(200, "GET", "/v1/gates?kind=resource", "")
	w.step(200, "DELETE", "/v1/gates/resource:gpu/resource?reason=done", "")
	w.step(422, "DELETE", "/v1/gates/queue:x/resource", "")
	for _, state := range []string{"open", "closed", "automatic"} {
		w.step(200, "PUT", "/v1/gates/target:payments:charge/breaker", `{"state": "`+state+`", "reason": "why"}`)
	}
	w.step(200, "GET", "/v1/gates?kind=target&limit=1", "")
	w.step(200, "GET", "/v1/circuit-breakers?limit=1", "")
	w.step(200, "GET", "/v1/circuit-breakers/payments:charge", "")
	w.step(422, "GET", "/v1/circuit-breakers/"+strings.Repeat("%E2%82%AC", 67), "")
}

func (w *walker) keys() {
	w.t.Helper()
	w.step(200, "GET", "/v1/keys", "")
	admin := w.step(201, "POST", "/v1/keys", `{"name": "root", "scopes": ["admin"]}`)
	w.key = admin["secret"].(string)
	k := w.step(201, "POST", "/v1/keys", `{"name": "ci", "scopes": ["read", "submit"]}`)
	w.step(200, "GET", "/v1/keys", "")
	w.step(201, "POST", "/v1/keys", `{"name": "once", "scopes": ["read"]}`, "Idempotency-Key", "once")
	w.step(409, "POST", "/v1/keys", `{"name": "once", "scopes": ["read"]}`, "Idempotency-Key", "once")
	w.step(204, "DELETE", k["location"].(string)+"?reason=private", "")
	w.step(200, "GET", "/v1/audit?kind=key&action=revoke&actor=root&limit=1&since=2020-01-01T00:00:00Z", "")
	w.step(422, "GET", "/v1/audit?name=x", "")
	w.step(422, "GET", "/v1/audit?cursor=x", "")
	w.step(200, "GET", "/v1/usage?by=job&workflow=agent&label=a=b&limit=1&since=2020-01-01T00:00:00Z", "")
	w.step(400, "GET", "/v1/usage?by=weekday", "")
	w.step(422, "GET", "/v1/usage?since=2020-01-02T00:00:00Z&until=2020-01-01T00:00:00Z", "")
	w.step(404, "DELETE", "/v1/keys/key_0000000000000000000000000a", "")
	reader := w.withKey("reader", belay.ScopeRead)
	(&walker{reader, w.doc}).step(403, "GET", "/v1/keys", "")
	(&walker{reader, w.doc}).step(403, "GET", "/v1/audit", "")
	w.key = "bly_nobody"
	w.step(401, "GET", "/v1/keys", "")
}

package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/testkit/raced"
)

// corpusSize is the number of bad requests. They are generated from the routes and fields of the
// API, so a change of the API also changes this number; the test fails if the number is wrong, for
// example because requests are no longer generated.
const corpusSize = 8959

// Every bad request is refused in less than a second, with a problem and a status 4xx. No handler
// panics, and the memory of the server does not grow.
func TestBadRequestsAreRefused(t *testing.T) {
	open := serve(t, httpapi.Options{Hosts: []string{"127.0.0.1"}, Rate: httpapi.Rate{PerSecond: -1}})
	cases := corpus(open.target())
	closed := serve(t, httpapi.Options{Rate: httpapi.Rate{PerSecond: -1}})
	guarded := closed.target()
	secrets := make(map[belay.Scope]string)
	for _, scope := range []belay.Scope{belay.ScopeRead, belay.ScopeSubmit, belay.ScopeOperate, belay.ScopeWorker} {
		secrets[scope] = closed.withKey(string(scope), scope).key
	}
	unknown := strangers(guarded, secrets)
	if n := len(cases) + len(unknown); n != corpusSize {
		t.Errorf("%d bad requests; say so in corpusSize, which is %d", n, corpusSize)
	}
	before := resident(t)
	most := max(open.refusesAll(t, cases, before), closed.refusesAll(t, unknown, before))
	grown := resident(t) - before
	t.Logf("%d bad requests; resident memory grew by %d KiB, by %d KiB at most meanwhile", corpusSize, grown>>10,
		most>>10)
	if grown > 32<<20 && !raced.On { // the race detector keeps memory of its own
		t.Errorf("resident memory grew by %d MiB; at most 32", grown>>20)
	}
}

// patience is how long an answer may take.
func patience() time.Duration {
	if raced.On {
		return 10 * time.Second
	}
	return time.Second
}

// refusesAll sends bad requests one after the other, and returns the maximum growth of the resident
// memory, in bytes, over the value in before.
func (s *server) refusesAll(t *testing.T, cases []bad, before int64) (most int64) {
	t.Helper()
	client := &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 4},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	for i, c := range cases {
		began := time.Now()
		status, err := s.refuses(client, c)
		if took := time.Since(began); took > patience() {
			t.Errorf("%s: answered after %s", c, took)
		}
		if err != nil {
			t.Errorf("%s: %v", c, err)
		}
		if c.status != 0 && status != c.status {
			t.Errorf("%s: %d, want %d", c, status, c.status)
		}
		if i%50 == 0 {
			most = max(most, rss(t)-before)
		}
	}
	if text := s.log.text.String(); strings.Contains(text, "ERROR") {
		t.Errorf("something broke: %s", text)
	}
	return most
}

func (c bad) String() string {
	body := c.body
	if len(body) > 200 {
		body = body[:200] + "…"
	}
	return fmt.Sprintf("%s %.100s (%.60s) %q", c.method, c.path, c.name, body)
}

// refuses sends a bad request and returns the status of the answer. The error says what is wrong
// with the answer if it is not a proper refusal.
func (s *server) refuses(client *http.Client, c bad) (int, error) {
	req, err := http.NewRequestWithContext(context.Background(), c.method, s.url, nil)
	if err != nil {
		return 0, err
	}
	host := strings.TrimPrefix(s.url, "http://")
	req.URL = &url.URL{Scheme: "http", Host: host, Opaque: c.path}
	if strings.HasPrefix(c.path, "//") {
		req.URL.Opaque = "//" + host + c.path
	}
	switch {
	case c.size > 0:
		req.Body, req.ContentLength = io.NopCloser(io.LimitReader(endless{}, c.size)), -1
	case c.body != "":
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(c.body)), int64(len(c.body))
	}
	if req.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	seen := make(map[string]bool)
	for _, h := range c.header {
		name := http.CanonicalHeaderKey(h[0])
		switch {
		case name == "Host":
			req.Host = h[1]
		case !seen[name]:
			req.Header[name] = []string{h[1]}
		default:
			req.Header[name] = append(req.Header[name], h[1])
		}
		seen[name] = true
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	switch {
	case err != nil:
		return resp.StatusCode, err
	case resp.StatusCode < 400 || resp.StatusCode > 499:
		return resp.StatusCode, fmt.Errorf("answered with %d: %.300s", resp.StatusCode, body)
	case c.method != http.MethodHead && (resp.Header.Get("Content-Type") != "application/problem+json" ||
		!bytes.Contains(body, []byte(`"code":"`))):
		return resp.StatusCode, fmt.Errorf("not a problem: %.300s", body)
	case len(body) > 16<<10:
		return resp.StatusCode, fmt.Errorf("the refusal has %d bytes", len(body))
	}
	return resp.StatusCode, nil
}

// endless is a reader of one JSON string that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '"'
	}
	return len(p), nil
}

// resident is the resident memory of the process, after the runtime has returned free memory to the
// system.
func resident(t *testing.T) int64 {
	debug.FreeOSMemory()
	return rss(t)
}

func rss(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("this system does not tell how much memory a process has")
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// target creates one execution, one lock and one session on the server. It returns good requests on
// these three, from which the test makes bad requests.
func (s *server) target() target {
	s.t.Helper()
	path := s.submit(`{"workflow": "w"}`)
	mine := s.locked("")
	dead := s.submit(`{"workflow": "w"}`)
	s.want(http.StatusOK, nil, http.MethodPost, dead+"/quarantine", "")
	letter := "/v1/dead-letters/" + strings.TrimPrefix(dead, "/v1/executions/")
	session := s.want(http.StatusCreated, nil, http.MethodPost, "/v1/workers",
		`{"name": "a", "workflows": [{"workflow": "other"}], "capacity": 1}`).Header.Get("Location")
	id := strings.TrimPrefix(path, "/v1/executions/")
	run := "/v1/runs/" + belay.RunID{Execution: mustExecution(s.t, id), Token: 1}.String()
	d := documentOf(s.t, s)
	return target{
		requests: []good{
			{"POST", "/v1/executions", `{"workflow": "w", "input": {"a": [1, 2]}, "labels": {"team": "web"}, "timeout": "15m", "priority": 3}`},
			{"POST", "/v1/executions", `{"workflow": "w", "concurrency": {"name": "l", "max": 5}, "rate": {"name": "r", "max": 5, "per": "1s"}, "target": "t"}`},
			{"POST", "/v1/batch", `{"ops": [{"submit": {"workflow": "w", "priority": 1}}, {"signal": {"execution": "` +
				id + `", "name": "go"}}]}`},
			{"POST", "/v1/workers", `{"name": "b", "workflows": [{"workflow": "w", "version": "1"}], "capacity": 2, "ttl": "15s"}`},
			{"POST", session + "/claim", `{"number": 1, "slots": 1, "wait_ms": 1}`},
			{"POST", session + "/accept", `{"number": 1, "offers": [{"execution": "` + id + `", "token": 1}]}`},
			{"POST", session + "/heartbeat", `{"holds": [{"execution": "` + id + `", "token": 1}], "claim_seen": 0}`},
			{"POST", path + "/signal", `{"name": "go", "payload": {"n": 1}}`},
			{"POST", path + "/cancel", `{"reason": "why", "actor": "me", "grace": "1s"}`},
			{"POST", path + "/fork", `{"up_to": 1, "reason": "why"}`},
			{"POST", path + "/retry", `{"from": "a step", "reason": "why"}`},
			{"POST", path + "/budget", `{"budget": {"cost": 12.5}, "reason": "why"}`},
			{"POST", path + "/lock", `{"owner": "me", "ttl": "30s", "reopen": false}`},
			{"POST", mine.path + "/lock/steal", `{"reason": "why", "actor": "me"}`},
			{"POST", mine.lock + "/release", `{"outcome": "complete", "output": {"n": 1}}`},
			{"PUT", mine.path + "/checkpoint", `{"key": "k", "data": {"n": 1}}`},
			{"POST", run + "/checkpoint", `{"key": "k", "data": {"n": 1}}`},
			{"POST", run + "/fail", `{"error": {"class": "transient", "message": "no"}}`},
			{"POST", run + "/suspend", `{"wait_ms": 1, "wait_text": "a nap"}`},
			{"POST", run + "/target", `{"target": "payments:charge", "step": "charge", "outcome": "failed"}`},
			{"POST", session + "/cordon", `{"reason": "why", "actor": "me"}`},
			{"POST", "/v1/keys", `{"name": "ci", "scopes": ["read"]}`},
			{"POST", "/v1/stream-tokens", `{"execution": "` + id + `"}`},
			{"POST", "/v1/gates/queue:a/pause", `{"until": "2099-01-01T00:00:00Z", "reason": "why", "actor": "me"}`},
			{"POST", "/v1/gates/queue:a/resume", `{"reason": "why"}`},
			{"PUT", "/v1/gates/limit:a/limit", `{"max": 5, "reason": "why"}`},
			{"PUT", "/v1/gates/rate:a/rate", `{"max": 5, "per": "1s"}`},
			{"PUT", "/v1/gates/target:a/breaker", `{"state": "automatic", "reason": "why"}`},
			{"POST", "/v1/queues/a/pause", `{"reason": "why"}`}, {"POST", "/v1/queues/a/resume", `{"reason": "why"}`},
			{"POST", "/v1/workflows/a/pause", `{"reason": "why"}`},
			{"POST", "/v1/workflows/a/resume", `{"reason": "why"}`},
			{"POST", letter + "/requeue", `{"generation": 1, "input_patch": {"n": 1}, "notes": "why", "actor": "me"}`},
			{"POST", letter + "/discard", `{"generation": 1, "notes": "why"}`},
			{"POST", letter + "/fix", `{"generation": 1, "notes": "why"}`},
			{"POST", letter + "/note", `{"generation": 1, "notes": "a note", "actor": "me"}`},
			{"POST", "/v1/bulk", `{"action": "requeue", "filter": {"workflow": "w", "class": "permanent"}, "input_patch": ` +
				`{"n": 1}, "rate": 5, "canary": [1, 10], "max_failures": 0.5, "notes": "why", "dry_run": true}`},
		},
		queries: []good{
			{"GET", "/v1/executions", ""}, {"GET", path, ""}, {"GET", path + "/history", ""}, {"GET", path + "/events",
				""}, {"GET", path + "/explain", ""},
			{"GET", path + "/token", ""}, {"GET", path + "/signals", ""}, {"GET", path + "/logs/log", ""},
			{"GET", "/v1/workers", ""}, {"GET", "/v1/keys", ""},
			{"GET", "/v1/gates", ""}, {"GET", "/v1/gates/queue:a", ""}, {"DELETE", "/v1/gates/queue:a/limit", ""},
			{"DELETE", "/v1/gates/queue:a/rate", ""}, {"GET", "/v1/circuit-breakers", ""},
			{"GET", "/v1/circuit-breakers/a", ""},
			{"GET", "/v1/dead-letters", ""}, {"GET", "/v1/dead-letter-groups", ""}, {"GET", letter, ""},
			{"PUT", mine.lock, ""}, {"POST", session + "/drain", ""}, {"DELETE", session, ""}, {"GET", run, ""},
			{"GET", "/healthz", ""},
		},
		schemas: func(method, path string) map[string]any {
			r, ok := d.route(method, path)
			if !ok {
				s.t.Errorf("%s %s is not in the document", method, path)
			}
			request, _ := r.operation["requestBody"].(map[string]any)
			content, _ := request["content"].(map[string]any)
			media, _ := content["application/json"].(map[string]any)
			schema, _ := d.resolve(media["schema"])
			return schema
		},
	}
}

func mustExecution(t testing.TB, s string) belay.ExecutionID {
	t.Helper()
	id, err := belay.ParseExecutionID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// net/http itself refuses bytes that are no HTTP request.
func TestBadProtocolIsRefused(t *testing.T) {
	s := serve(t, httpapi.Options{})
	for name, text := range map[string]string{
		"no version":  "GET /v1/executions\r\n\r\n",
		"no method":   " /v1/executions HTTP/1.1\r\nHost: x\r\n\r\n",
		"bad version": "GET / HTTP/9.9\r\nHost: x\r\n\r\n",
		"no host":     "GET /healthz HTTP/1.1\r\n\r\n",
		"two hosts":   "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"bad path":    "GET /v1/executions/%zz HTTP/1.1\r\nHost: x\r\n\r\n",
		"NUL":         "GET /healthz HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n",
		"bad header":  "GET /healthz HTTP/1.1\r\nHost: x\r\nA B: c\r\n\r\n",
		"bad length":  "POST /v1/executions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
		"two lengths": "POST /v1/executions HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"bad coding":  "POST /v1/executions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
		"bad chunk": "POST /v1/executions HTTP/1.1\r\nHost: x\r\nContent-Type: " +
			"application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
		"short": "POST /v1/executions HTTP/1.1\r\nHost: x\r\nContent-Type: " +
			"application/json\r\nContent-Length: 50\r\nConnection: close\r\n\r\n{}",
		"large header": "GET /healthz HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 2<<20) + "\r\n\r\n",
		"garbage":      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"bad expect":   "POST /v1/executions HTTP/1.1\r\nHost: x\r\nExpect: nonsense\r\nContent-Length: 2\r\n\r\n{}",
		"smuggled": "POST /v1/executions HTTP/1.1\r\nHost: x\r\nContent-Type: " +
			"application/json\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
		"tunnel":         "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"absolute other": "GET http://evil.test/nowhere HTTP/1.1\r\nHost: evil.test\r\n\r\n",
	} {
		status, err := s.raw(t, text)
		if err != nil || status < 400 || status > 599 || status == 500 {
			t.Errorf("%s: %d, %v", name, status, err)
		}
	}
}

// raw sends bytes and returns the status of the answer.
func (s *server) raw(t *testing.T, text string) (int, error) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	go func() {
		_, _ = io.WriteString(c, text)
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}()
	answer := make([]byte, 64)
	if _, err := io.ReadAtLeast(c, answer, len("HTTP/1.1 400")); err != nil {
		return 0, err
	}
	return strconv.Atoi(string(answer[len("HTTP/1.1 "):len("HTTP/1.1 400")]))
}

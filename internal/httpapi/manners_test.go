package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// A browser reconnects to a stream that ended, with the id of the last event that it saw. If the
// execution has ended, the server answers with 204, and the browser stops. A program that sends the
// seq in the query gets the event end again.
func TestABrowserStopsAfterTheEnd(t *testing.T) {
	s := serve(t, httpapi.Options{})
	path := s.submit(`{"workflow": "w"}`)
	s.want(http.StatusOK, nil, "POST", path+"/cancel", "")
	text := string(s.want(http.StatusOK, nil, "GET", path+"/events", "").body)
	if !strings.HasPrefix(text, "retry: 2000\n\n") || !strings.Contains(text, "event: end\nid: 2\n") {
		t.Errorf("the stream is %q", text)
	}
	if a := s.want(http.StatusNoContent, nil, "GET", path+"/events", "", "Last-Event-ID", "2"); len(a.body) != 0 ||
		a.Header.Get("Content-Type") != "" {
		t.Errorf("%v %s", a.Header, a.body)
	}
	for _, from := range []string{"?after=2", "?after=1"} {
		if text := string(s.want(http.StatusOK, nil, "GET", path+"/events"+from, "").body); !strings.Contains(text,
			"event: end\n") {
			t.Errorf("%s: %q", from, text)
		}
	}
	s.want(http.StatusOK, nil, "GET", path+"/events", "", "Last-Event-ID", "1")
	s.want(http.StatusGone, nil, "GET", path+"/events", "", "Last-Event-ID", "3")
	s.want(http.StatusOK, nil, "POST", path+"/retry", "")
	s.want(http.StatusOK, nil, "POST", path+"/cancel", "")
	s.want(http.StatusOK, nil, "GET", path+"/events", "", "Last-Event-ID", "2") // the execution continued after event 2
}

// The stream of a job's log ends in the same way: a browser that reconnects after its last event
// gets 204.
func TestABrowserStopsAfterTheEndOfAJob(t *testing.T) {
	s := serveAgents(t, 10)
	job := s.want(http.StatusAccepted, nil, "POST", "/execute", `{"prompt": "hello"}`).Header.Get("Location")
	text := string(s.want(http.StatusOK, nil, "GET", job+"/log", "").body)
	_, last, found := strings.Cut(text, "event: end\nid: ")
	last, _, _ = strings.Cut(last, "\n")
	if !found || !strings.HasPrefix(text, "retry: 2000\n\n") {
		t.Fatalf("the log is %q", text)
	}
	s.want(http.StatusNoContent, nil, "GET", job+"/log", "", "Last-Event-ID", last)
	s.want(http.StatusNoContent, nil, "GET", job, "", "Last-Event-ID", last, "Accept", "text/event-stream")
	s.want(http.StatusOK, nil, "GET", job+"/log", "", "Last-Event-ID", "1.0.0")
	// not the id of this stream's event end
	s.want(http.StatusOK, nil, "GET", job+"/log", "", "Last-Event-ID", last+"9")
}

// A caller may name its request with one short word, which the answer, a problem and the log
// repeat. Any other text is replaced by a new id, because it might look like another field of the
// log, another header or HTML.
func TestRequestsHaveIDs(t *testing.T) {
	s := serve(t, httpapi.Options{})
	const missing = unknown
	for _, said := range []string{"r-1", "a", strings.Repeat("x", 64), "A.b_c-9"} {
		var p struct {
			RequestID string `json:"request_id"`
		}
		a := s.want(http.StatusNotFound, &p, "GET", missing, "", "X-Request-Id", said)
		if a.Header.Get("X-Request-Id") != said || p.RequestID != said ||
			!strings.Contains(s.log.text.String(), "request="+said+" ") {
			t.Errorf("%q: the header has %q, the problem %q", said, a.Header.Get("X-Request-Id"), p.RequestID)
		}
	}
	seen := map[string]bool{}
	for _, said := range []string{
		"", strings.Repeat("x", 65), "a b", `a" level=ERROR msg="broken`, "a,b", "<script>", "früh", "a\tb", "${jndi}", "%0d%0aSet-Cookie:x",
	} {
		for _, path := range []string{missing, "/healthz", "/nowhere", "/v1/executions?limit=x"} {
			id := s.do("GET", path, "", "X-Request-Id", said).Header.Get("X-Request-Id")
			if len(id) != 26 || seen[id] {
				t.Errorf("%q: %s is answered with the id %q", said, path, id)
			}
			seen[id] = true
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+missing, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header["X-Request-Id"] = []string{"one", "two"}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if id := resp.Header.Values("X-Request-Id"); len(id) != 1 || len(id[0]) != 26 {
		t.Errorf("two ids are answered with %q", id)
	}
	// refused by the decoder, and by checkJSON
	for _, refused := range [][2]string{{`{"workflow": 7}`, "422"}, {`{`, "400"}} {
		a := s.do("POST", "/v1/executions", refused[0], "X-Request-Id", "mine")
		if !strings.Contains(string(a.body), `"request_id":"mine"`) {
			t.Errorf("%s: %s", refused[0], a.body)
		}
	}
}

// Answers say how many requests the rate limit leaves to a caller. A flood of requests with bad
// keys uses up the limit of its address, but health checks from the same address are still
// answered.
func TestCallersKnowTheirRateLimit(t *testing.T) {
	now := time.Unix(0, 0)
	s := serve(t, httpapi.Options{
		Rate: httpapi.Rate{PerSecond: 0.5, Burst: 3}, Now: func() time.Time { return now },
	})
	s.withKey("a key", belay.ScopeRead)
	guess := *s
	guess.key = "bly_nobody"
	for i, want := range []struct {
		status      int
		left, reset string
	}{{401, "2", "2"}, {401, "1", "4"}, {401, "0", "6"}, {429, "0", "6"}} {
		a := guess.want(want.status, nil, "GET", "/v1/executions", "")
		if h := a.Header; h.Get("RateLimit-Limit") != "3" || h.Get("RateLimit-Remaining") != want.left ||
			h.Get("RateLimit-Reset") != want.reset {
			t.Errorf("request %d: %v", i, h)
		}
	}
	for _, probe := range []string{"/healthz", "/readyz"} {
		s.want(http.StatusOK, nil, "GET", probe, "")
	}
	s.want(http.StatusOK, nil, "GET", "/healthz", "")
	s.want(http.StatusTooManyRequests, nil, "GET", "/healthz", "") // health checks have a limit too
	free := serve(t, httpapi.Options{Rate: httpapi.Rate{PerSecond: -1}})
	if h := free.want(http.StatusOK, nil, "GET", "/v1/executions", "").Header; h.Get("RateLimit-Limit") != "" {
		t.Errorf("without a limit: %v", h)
	}
}

// HTTP/1.0 does not need the header Host. A request without it is answered on a loopback address,
// because browsers always send the header. HTTP/1.1 without it is refused, and a wrong host is
// refused in both versions.
func TestOldRequestsWithoutAHost(t *testing.T) {
	s := serve(t, httpapi.Options{Hosts: []string{"127.0.0.1"}})
	for text, want := range map[string]string{
		"GET /healthz HTTP/1.0\r\n\r\n":                                                         "200",
		"GET /healthz HTTP/1.0\r\nHost: evil.test\r\n\r\n":                                      "403",
		"GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n":                                      "200",
		"GET /healthz HTTP/1.1\r\n\r\n":                                                         "400",
		"GET /healthz HTTP/1.1\r\nHost: \r\n\r\n":                                               "403",
		"GET http://evil.test/healthz HTTP/1.0\r\n\r\n":                                         "403",
		"GET http://127.0.0.1/healthz HTTP/1.0\r\n\r\n":                                         "200",
		"POST /v1/executions HTTP/1.0\r\nOrigin: http://evil.test\r\nContent-Length: 0\r\n\r\n": "403",
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if fields := strings.Fields(line); err != nil || len(fields) < 2 || fields[1] != want {
			t.Errorf("%q: %q %v, want %s", text, line, err, want)
		}
		c.Close()
	}
}

// An execution and the OpenAPI document have an ETag. A caller that sends the newest ETag is
// answered with 304 and no body.
func TestETags(t *testing.T) {
	s := serve(t, httpapi.Options{})
	path := s.submit(`{"workflow": "w", "input": {"secret": "x"}}`)
	for _, at := range []string{path, "/openapi.json"} {
		a := s.want(http.StatusOK, nil, "GET", at, "")
		tag := a.Header.Get("ETag")
		if !strings.HasPrefix(tag, `W/"`) {
			t.Errorf("%s: ETag %q", at, tag)
		}
		for _, have := range []string{tag, `"other", ` + tag, "*", strings.TrimPrefix(tag, "W/")} {
			if a := s.want(http.StatusNotModified, nil, "GET", at, "", "If-None-Match", have); len(a.body) != 0 ||
				a.Header.Get("ETag") != tag {
				t.Errorf("%s with %s: %v %s", at, have, a.Header, a.body)
			}
		}
		for _, have := range []string{`"other"`, strings.Trim(tag, `W/"`), "", "W/"} {
			s.want(http.StatusOK, nil, "GET", at, "", "If-None-Match", have)
		}
	}
	tag := s.want(http.StatusOK, nil, "GET", path, "").Header.Get("ETag")
	s.want(http.StatusOK, nil, "POST", path+"/pause", "")
	if a := s.want(http.StatusOK, nil, "GET", path, "", "If-None-Match", tag); a.Header.Get("ETag") == tag {
		t.Error("a paused execution has the ETag that it had before")
	}
	// A caller who may not read the execution gets the same refusal for any ETag, so that it learns
	// nothing by guessing.
	s.withKey("a key", belay.ScopeRead)
	submit := s.withKey("submits", belay.ScopeSubmit)
	s.want(http.StatusUnauthorized, nil, "GET", path, "", "If-None-Match", "*")
	submit.want(http.StatusForbidden, nil, "GET", path, "", "If-None-Match", "*")
	s.want(http.StatusUnauthorized, nil, "GET", unknown, "", "If-None-Match", "*")
}

// Pages of listed origins may read and write with a key that they send themselves. Other pages may
// not, and no page is let in by credentials that a browser adds, such as a password that it
// remembers.
func TestPagesOfListedOriginsAreLetIn(t *testing.T) {
	const good = "https://app.example.org:8443"
	s := serve(t, httpapi.Options{Origins: []string{good}})
	asked := []string{"Origin", good, "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "authorization,content-type,idempotency-key"}
	for _, path := range []string{"/v1/executions", "/v1/keys", "/v1/executions/x/lock/y", "/nowhere"} {
		h := s.want(http.StatusNoContent, nil, "OPTIONS", path, "", asked...).Header
		if h.Get("Access-Control-Allow-Origin") != good ||
			!strings.Contains(h.Get("Access-Control-Allow-Methods"), "PUT") ||
			!strings.Contains(h.Get("Access-Control-Allow-Headers"), "Idempotency-Key") ||
			h.Get("Access-Control-Allow-Private-Network") != "" || !slices.Contains(h.Values("Vary"), "Origin") {
			t.Errorf("%s: %v", path, h)
		}
	}
	a := s.want(http.StatusCreated, nil, "POST", "/v1/executions", `{"workflow": "w"}`, "Origin", good,
		"Sec-Fetch-Site", "cross-site")
	if h := a.Header; h.Get("Access-Control-Allow-Origin") != good ||
		!strings.Contains(h.Get("Access-Control-Expose-Headers"), "X-Request-Id") {
		t.Errorf("%v", h)
	}
	problem := s.want(http.StatusNotFound, nil, "GET", unknown, "", "Origin", good)
	if problem.Header.Get("Access-Control-Allow-Origin") != good {
		t.Errorf("a page cannot read why it is refused: %v", problem.Header)
	}
	for _, evil := range []string{
		"null", "*", "https://app.example.org", "http://app.example.org:8443", "https://app.example.org:84433",
		"https://APP.example.org:8443", "https://app.example.org:8443.evil.test", "https://evil.test/https://app.example.org:8443",
		"https://x.app.example.org:8443", good + "/", good + ", https://evil.test", "https://user@app.example.org:8443",
		"file://", "https://evil.test#" + good,
	} {
		get := s.want(http.StatusOK, nil, "GET", "/v1/executions", "", "Origin", evil)
		preflight := s.do("OPTIONS", "/v1/executions", "", append([]string{"Origin", evil}, asked[2:]...)...)
		post := s.want(http.StatusForbidden, nil, "POST", "/v1/executions", `{"workflow": "w"}`, "Origin", evil,
			"Sec-Fetch-Site", "cross-site")
		for _, a := range []*answer{get, preflight, post} {
			for name := range a.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%q: %d with %s", evil, a.StatusCode, name)
				}
			}
			if !slices.Contains(a.Header.Values("Vary"), "Origin") {
				t.Errorf("%q: a cache may keep the answer for others: %v", evil, a.Header)
			}
		}
		if preflight.StatusCode < 400 {
			t.Errorf("%q: its preflight is answered with %d", evil, preflight.StatusCode)
		}
	}
	twice, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/executions", nil)
	if err != nil {
		t.Fatal(err)
	}
	twice.Header["Origin"] = []string{good, "https://evil.test"}
	resp, err := http.DefaultClient.Do(twice)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("two origins: %v", resp.Header)
	}
	// A password that the browser remembers is not used: no answer allows credentials.
	reader := s.withKey("reader", belay.ScopeRead)
	s.want(http.StatusUnauthorized, nil, "GET", "/v1/executions", "", "Origin", good)
	for _, a := range []*answer{
		reader.want(http.StatusOK, nil, "GET", "/v1/executions", "", "Origin", good),
		s.want(http.StatusNoContent, nil, "OPTIONS", "/v1/executions", "", asked...),
	} {
		if a.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%v", a.Header)
		}
	}
	// Without a list of origins, no answer has a header of CORS.
	closed := serve(t, httpapi.Options{})
	if a := closed.do("OPTIONS", "/v1/executions", "", asked...); a.StatusCode != http.StatusMethodNotAllowed ||
		a.Header.Get("Access-Control-Allow-Origin") != "" || a.Header.Get("Vary") != "" {
		t.Errorf("%d %v", a.StatusCode, a.Header)
	}
	// A listed origin does not help if the request is for another host name.
	named := serve(t, httpapi.Options{Origins: []string{good}, Hosts: []string{"belay.example.org"}})
	named.want(http.StatusForbidden, nil, "OPTIONS", "/v1/executions", "", asked...)
}

// Requests are counted by their route and status. A caller cannot create series of metrics: unknown
// paths, methods and hosts are all counted as one route.
func TestRequestsAreCountedByRoute(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	timed := map[string]bool{}
	s := serve(t, httpapi.Options{
		Hosts: []string{"127.0.0.1"}, Requests: func(method, route string, status int, took time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			at := fmt.Sprint(method, " ", route, " ", status)
			seen[at]++
			timed[at] = took > 0
		},
	})
	path := s.cancelled("x")
	for i := range 20 {
		s.do("GET", fmt.Sprintf("/v1/executions/ex_%026d", i%8), "")
		s.do("GET", fmt.Sprintf("/nowhere/%d", i), "")
		s.do(fmt.Sprintf("METHOD%d", i), "/v1/executions", "")
		s.do("GET", "/healthz?"+fmt.Sprint("x", i), "")
	}
	s.do("HEAD", path, "")
	s.do("GET", path+"/events", "")
	mu.Lock()
	defer mu.Unlock()
	want := map[string]int{
		"POST /v1/executions 201": 1, "POST /v1/executions/{id}/cancel 200": 1, "GET /v1/executions/{id} 404": 20,
		"none none 404": 20, "none none 405": 20, "GET /healthz 400": 20, "GET /v1/executions/{id} 200": 1,
		"GET /v1/executions/{id}/events 200": 1,
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
	if timed["GET /v1/executions/{id}/events 200"] || !timed["POST /v1/executions/{id}/cancel 200"] {
		t.Errorf("timed were %v", timed)
	}
}

// unknown is the path of an execution that does not exist.
const unknown = "/v1/executions/ex_0000000000000000000000000b"

// zipped sends a request that accepts compressed answers, and returns the answer without unpacking
// it.
func (s *server) zipped(method, path, body string, h ...string) *answer {
	s.t.Helper()
	return s.do(method, path, body, append([]string{"Accept-Encoding", "gzip, br;q=0.5"}, h...)...)
}

// The answers of reads of more than a kilobyte are compressed for clients that accept gzip.
func TestLargeReadsAreCompressed(t *testing.T) {
	s := serve(t, httpapi.Options{})
	large := s.submit(fmt.Sprintf(`{"workflow": "w", "input": %q}`, strings.Repeat("large ", 2000)))
	small := s.submit(`{"workflow": "w"}`)
	plain := s.want(http.StatusOK, nil, "GET", large, "").body // the client unpacks gzip by itself
	a := s.zipped("GET", large, "")
	if a.Header.Get("Content-Encoding") != "gzip" || !slices.Contains(a.Header.Values("Vary"), "Accept-Encoding") ||
		len(a.body) > len(plain)/5 || string(unzipped(t, a.body)) != string(plain) {
		t.Errorf("%d bytes of %d: %v", len(a.body), len(plain), a.Header)
	}
	if a := s.zipped("GET", large, "", "If-None-Match", a.Header.Get("ETag")); a.StatusCode != http.StatusNotModified ||
		len(a.body) != 0 || a.Header.Get("Content-Encoding") != "" {
		t.Errorf("%d %v", a.StatusCode, a.Header)
	}
	if a := s.zipped("GET", "/openapi.json", ""); a.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("the document: %v", a.Header)
	}
	for _, accept := range []string{"identity", "gzip;q=0", "gzip; q=0.0", "br", "xgzip", ""} {
		if a := s.do("GET", large, "", "Accept-Encoding", accept); a.Header.Get("Content-Encoding") != "" ||
			string(a.body) != string(plain) {
			t.Errorf("%q: %v", accept, a.Header)
		}
	}
	if a := s.zipped("GET", small, ""); a.Header.Get("Content-Encoding") != "" || a.Header.Get("Content-Length") == "" {
		t.Errorf("a small answer: %v", a.Header)
	}
}

// An answer with a secret (a key, the lease of a claim or of a lock) is never compressed: its
// length would reveal a part of the secret to a person who chooses the text beside the secret.
// Streams are not compressed either, because their events would not arrive at once.
func TestSecretsAndStreamsAreNotCompressed(t *testing.T) {
	s := serve(t, httpapi.Options{})
	long := strings.Repeat("x", 4000)
	submitted := s.zipped("POST", "/v1/executions", `{"workflow": "w", "input": "`+long+`"}`)
	outside := s.submit(`{"workflow": "talk", "dispatch": "external", "input": "` + long + `"}`)
	session := s.want(http.StatusCreated, nil, "POST", "/v1/workers",
		`{"name": "a", "workflows": [{"workflow": "w"}], "capacity": 1}`).Header.Get("Location")
	claimed := s.zipped("POST", session+"/claim", `{"number": 1, "slots": 1, "wait_ms": 10000}`)
	locked := s.zipped("POST", outside+"/lock", `{"owner": "me"}`)
	events := s.zipped("GET", s.cancelled(long)+"/events?data=true", "")
	key := s.zipped("POST", "/v1/keys", `{"name": "`+strings.Repeat("n", 200)+`", "scopes": ["admin"]}`)
	for name, a := range map[string]*answer{
		"a submit": submitted, "a claim": claimed, "a lock": locked, "a stream": events, "a key": key,
	} {
		if a.StatusCode >= 300 || a.Header.Get("Content-Encoding") != "" || len(a.body) < 100 {
			t.Errorf("%s: %d %v", name, a.StatusCode, a.Header)
		}
	}
}

// unzipped unpacks a compressed body.
func unzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// cancelled submits an execution and cancels it.
func (s *server) cancelled(input string) (path string) {
	s.t.Helper()
	path = s.submit(`{"workflow": "other", "input": "` + input + `"}`)
	s.want(http.StatusOK, nil, "POST", path+"/cancel", "")
	return path
}

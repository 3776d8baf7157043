package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// The server has pages and metrics beside the API, for keys with the scope read. The server asks a
// program for a password and accepts a key as the password. Style sheets need no key.
func TestPagesAndMetrics(t *testing.T) {
	said := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	s := serve(t, httpapi.Options{Pages: said("a page"), Metrics: said("up 1")})
	paths := map[string]string{"/": "a page", "/executions": "a page", "/executions/ex_1": "a page",
		"/assets/x.css": "a page", "/metrics": "up 1"}
	for _, path := range []string{"/overview", "/dead", "/workers", "/queues", "/workflows", "/workflows/x",
		"/schedules", "/schedules/x", "/webhooks", "/webhooks/x", "/notifications", "/notifications/x"} {
		paths[path] = "a page"
	}
	for path, text := range paths {
		if a := s.want(http.StatusOK, nil, http.MethodGet, path, ""); string(a.body) != text {
			t.Errorf("%s is %q", path, a.body)
		}
	}
	reader, worker := s.withKey("reader", belay.ScopeRead), s.withKey("worker", belay.ScopeWorker)
	delete(paths, "/assets/x.css")
	s.want(http.StatusOK, nil, http.MethodGet, "/assets/x.css", "") // the form for signing in needs it
	for path, text := range paths {
		a := s.do(http.MethodGet, path, "")
		if asked := strings.Contains(strings.Join(a.Header.Values("WWW-Authenticate"), " "),
			"Basic"); a.StatusCode != http.StatusUnauthorized || asked != (text == "a page") {
			t.Errorf("%s without a key: %d, asks for a password: %v", path, a.StatusCode, asked)
		}
		reader.want(http.StatusOK, nil, http.MethodGet, path, "")
		worker.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodGet, path, "")
	}
	s.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodGet, "/nothing", "")
	bare := serve(t, httpapi.Options{})
	bare.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodGet, "/metrics", "")
	bare.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodGet, "/", "")
}

// A browser at an address without a page gets the page that says so, also without a key, and never the page of another
// address; a program gets a problem in JSON.
func TestABrowserGoesAstray(t *testing.T) {
	s := serve(t, httpapi.Options{Pages: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, "%s %d headers", r.URL, len(r.Header))
	})})
	s.withKey("reader", belay.ScopeRead) // from now on the server requires keys
	accept := []string{"Accept", "text/html,application/xhtml+xml;q=0.9", "Cookie", "a=b"}
	for _, path := range []string{"/nothing", "/webhook?x=1", "/dead/", "/%2e%2e/x", "/logout"} {
		if a := s.do(http.MethodGet, path, "", accept...); a.StatusCode != http.StatusNotFound ||
			string(a.body) != "/not-found 0 headers" {
			t.Errorf("a browser at %s gets %d %q", path, a.StatusCode, a.body)
		}
	}
	for _, path := range []string{"/executions", "/executions/x", "/executions/x/y/z", "/overview", "/act"} {
		if a := s.do(http.MethodGet, path, "", accept...); !strings.HasPrefix(string(a.body), "/login?next=") {
			t.Errorf("%s needs a key, and a browser without one gets %d %q", path, a.StatusCode, a.body)
		}
	}
	for _, a := range []*answer{
		s.do(http.MethodGet, "/nothing", ""), s.do(http.MethodGet, "/v1/nothing", "", accept...),
		s.do(http.MethodPost, "/nothing", "{}", accept...),
	} {
		if got := a.Header.Get("Content-Type"); got != "application/problem+json" {
			t.Errorf("%d with the content type %q", a.StatusCode, got)
		}
	}
}

// Programs read a log as chunks. People read it as text, and may follow it to the end of the
// execution.
func TestLogIsFollowed(t *testing.T) {
	s := serve(t, httpapi.Options{})
	o := own(t, s.b)
	say := func(n int64, text string) {
		t.Helper()
		if err := s.b.Append(context.Background(), belay.Chunk{Lease: o.lease, Name: "out/put", N: n,
			Data: []byte(text)}); err != nil {
			t.Error(err)
		}
	}
	say(0, "one\n")
	say(1, "two\n")
	path := o.path + "/logs/out%2Fput"
	var list struct{ Chunks []belay.StoredChunk }
	s.want(http.StatusOK, &list, http.MethodGet, path+"?from=1&limit=5", "")
	if len(list.Chunks) != 1 || string(list.Chunks[0].Data) != "two\n" || list.Chunks[0].N != 1 {
		t.Errorf("from chunk 1 on: %+v", list.Chunks)
	}
	if a := s.want(http.StatusOK, nil, http.MethodGet, path, "", "Accept",
		"text/plain"); string(a.body) != "one\ntwo\n" {
		t.Errorf("as text: %q", a.body)
	}
	if a := s.want(http.StatusOK, nil, http.MethodGet, o.path+"/logs/nothing",
		""); string(a.body) != "{\"chunks\":[]}\n" {
		t.Errorf("a log that is not there yet: %s", a.body)
	}
	s.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodGet, somewhere+"/logs/x", "")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path+"?wait=60", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/plain")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	head := make([]byte, len("one\ntwo\n"))
	if _, err := io.ReadFull(resp.Body, head); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	say(2, "three\n")
	o.complete()
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "three\n" {
		t.Errorf("followed: %q, %v", rest, err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the end was noticed after %s", took)
	}
}

// A single request waits for a result: its answer is the execution after its end.
func TestResultIsAwaited(t *testing.T) {
	s := serve(t, httpapi.Options{})
	o := own(t, s.b)
	result := make(chan *answer, 1)
	go func() {
		a, err := s.try(t.Context(), http.MethodGet, o.path, "", "Prefer", "respond-async, wait=60")
		if err != nil {
			t.Error(err)
		}
		result <- a
	}()
	o.complete()
	if a := <-result; a == nil || !strings.Contains(string(a.body), `"state":"succeeded"`) ||
		a.Header.Get("Preference-Applied") != "wait=60" {
		t.Errorf("the awaited result: %+v", a)
	}
}

// A claim of a worker with very many slots wins no more than 128 executions, so that the answer
// stays small; the next claims win the rest.
func TestClaimsAreBounded(t *testing.T) {
	s := serve(t, httpapi.Options{})
	const due = 200
	all := make([]belay.Submission, due)
	for i := range all {
		all[i].Workflow = "w"
	}
	if _, err := s.b.Submit(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	worker := s.want(http.StatusCreated, nil, http.MethodPost, "/v1/workers",
		`{"name": "w", "workflows": [{"workflow": "w"}], "capacity": 10000}`).Header.Get("Location")
	won := 0
	for number := 1; won < due; number++ {
		var reply struct{ Assignments []json.RawMessage }
		s.want(http.StatusOK, &reply, http.MethodPost, worker+"/claim",
			fmt.Sprintf(`{"number": %d, "slots": 10000, "wait_ms": 10000}`, number))
		if n := len(reply.Assignments); n == 0 || n > 128 {
			t.Fatalf("claim %d won %d", number, n)
		}
		won += len(reply.Assignments)
	}
}

// BenchmarkNew measures how long a server needs to build the API when it starts.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		httpapi.New(nothing{}, httpapi.Options{})
	}
}

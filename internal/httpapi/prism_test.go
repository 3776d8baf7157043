package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// violation is a difference that Prism has found between the OpenAPI document and a request or an
// answer.
type violation struct {
	Location []string `json:"location"`
	Severity string   `json:"severity"`
	Message  string   `json:"message"`
}

// Prism is a proxy that compares requests and answers with the OpenAPI document. The test sends
// requests to every route through Prism, so that every documented success occurs, and Prism finds
// no violation: every answer, and every request that succeeds, is as the document says. `make
// openapi` installs Prism and runs this test.
func TestPrismFindsNoViolation(t *testing.T) {
	program := os.Getenv("BELAY_PRISM")
	if program == "" {
		t.Skip("BELAY_PRISM does not name Prism; make openapi does")
	}
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write([]byte("belay_up 1\n"))
	})
	s := serveAgentsWith(t, 100, httpapi.Options{
		Version: "test", Language: anyDocument{}, Documents: fakeDocuments{}, Metrics: metrics, Secrets: hookSecrets,
	})
	s.prism = startPrism(t, program, s.url)
	w := &walker{s, documentOf(t, s)}
	w.operations()
	w.step(200, "GET", "/health", "")
	w.executions()
	w.worker()
	w.owner()
	w.jobs()
	w.gates()
	w.documents()
	w.schedules()
	w.webhooks()
	w.targets()
	w.tasks()
	w.deletes()
	w.deadLetters()
	w.keys()
	w.key = s.withKey("another root", belay.ScopeAdmin).key
	w.responses()
	w.chats()
	// This stream does not end, and Prism passes an answer on when it is complete. TestStatesStream reads the
	// stream from the server itself.
	s.prism.passed["GET /v1/executions/events 200"] = true
	for _, r := range w.doc.routes {
		for status := range r.operation["responses"].(map[string]any) {
			if at := r.method + " " + r.path + " " + status; status < "400" && !s.prism.passed[at] {
				t.Errorf("%s is documented and did not pass through Prism", at)
			}
		}
	}
}

// prism is a running Prism, a proxy between the test and a server.
type prism struct {
	t      *testing.T
	url    string
	doc    *document
	passed map[string]bool // the answers without a violation, such as "GET /path 200"
	silent int             // the number of requests that Prism has not answered
}

// startPrism starts Prism and waits until it listens.
func startPrism(t *testing.T, program, upstream string) *prism {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	// Without the flag --errors, Prism also passes on a request that does not match the document.
	// The server refuses the request, and Prism checks that refusal.
	cmd := exec.CommandContext(t.Context(), program, "proxy", golden, upstream, "--host", "127.0.0.1", "--port", port)
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "SCARF_ANALYTICS=false", "NO_COLOR=1")
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "Prism is listening") {
	}
	if lines.Err() != nil || lines.Text() == "" {
		t.Fatalf("Prism does not listen: %v", lines.Err())
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() { // so that Prism never waits for a reader
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	return &prism{t: t, url: "http://127.0.0.1:" + port, doc: contract(t), passed: make(map[string]bool)}
}

// get sends a GET through Prism. The GET of a finished event stream once had no answer for minutes,
// and it was not known whether Prism or the server had stopped. If Prism does not answer within
// half a minute, get sends the request to the server itself, at its own url. If the server answers,
// get asks Prism once more; otherwise the test fails.
func (p *prism) get(req *http.Request, own string) (*http.Response, error) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(req.Context())
	p.t.Cleanup(cancel)
	slow := make(chan error, 1)
	timer := time.AfterFunc(30*time.Second, func() {
		defer cancel()
		direct := req.Clone(req.Context())
		var err error
		if direct.URL, err = direct.URL.Parse(own); err == nil {
			direct.Host = direct.URL.Host
			client := http.Client{Timeout: 30 * time.Second}
			var resp *http.Response
			if resp, err = client.Do(direct); err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
		slow <- err
	})
	resp, err := http.DefaultClient.Do(req.WithContext(ctx))
	if timer.Stop() {
		return resp, err
	}
	if err := <-slow; err != nil {
		p.t.Fatalf("neither Prism nor the server answers %s %s: %v", req.Method, req.URL, err)
	}
	if err == nil {
		_ = resp.Body.Close()
	}
	if p.silent++; p.silent > 2 {
		p.t.Fatalf("Prism has left %d requests unanswered that the server answers", p.silent)
	}
	p.t.Logf("Prism left %s %s unanswered, and the server answers it; once more", req.Method, req.URL)
	return http.DefaultClient.Do(req.Clone(req.Context()))
}

// takes reports whether Prism can pass on a request: Prism accepts only JSON bodies, and only the
// methods of the document.
func (p *prism) takes(method, path, body string) bool {
	_, known := p.doc.route(method, path)
	return known && (body == "" || json.Valid([]byte(body)))
}

// judge fails the test for each violation that Prism has found in a request or its answer. It
// ignores violations in a request that the server has refused.
func (p *prism) judge(method, path string, a *http.Response) {
	p.t.Helper()
	if r, ok := p.doc.route(method, path); ok {
		p.passed[fmt.Sprintf("%s %s %d", r.method, r.path, a.StatusCode)] = true
	}
	text := a.Header.Get("Sl-Violations")
	a.Header.Del("Sl-Violations")
	a.Header.Del("Keep-Alive") // this header describes Prism's own connection
	var found []violation
	if err := json.Unmarshal([]byte(text), &found); text != "" && err != nil {
		p.t.Errorf("%s %s: Prism says %s", method, path, text)
	}
	for _, v := range found {
		refused := a.StatusCode >= 400 && v.Location[0] == "request"
		// Prism parses only answers of JSON types (parseResponseBody of @stoplight/prism-http 5.12), and compares an
		// event stream as one string with the array of its events. The walker (walk_test.go) compares the events with
		// their schemas.
		stream := strings.HasPrefix(a.Header.Get("Content-Type"), "text/event-stream") &&
			slices.Equal(v.Location, []string{"response", "body"})
		// If the document has two media types for an answer, Prism uses the first that it considers equal to the
		// answer's, and it considers application/problem+json equal to application/json (wildcardMediaTypeMatch).
		// Refusals of a chat have both types.
		twofold := v.Location[0] == "response" && v.Location[1] == "body" && a.StatusCode == http.StatusForbidden &&
			path == "/v1/chat/completions" && a.Header.Get("Content-Type") == "application/problem+json"
		if !refused && !stream && !twofold {
			p.t.Errorf("%s %s %d: %s: %s", method, path, a.StatusCode, strings.Join(v.Location, "."), v.Message)
		}
	}
}

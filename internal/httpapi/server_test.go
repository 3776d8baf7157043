package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/httpapi"
)

// server is the API on a real engine, over loopback.
type server struct {
	t   testing.TB
	b   *embedded.Backend
	url string
	key string // the key of every request, if any
	log *logged
	// pretends says that the backend returns errors that no real backend returns, so answers are not
	// checked against the OpenAPI document.
	pretends bool
	// prism is the proxy through which the requests that it can pass on are sent; nil if requests
	// go to the server directly.
	prism *prism
	// ended receives a value each time that the handler of a request returns. Only serveNarrow sets
	// it.
	ended <-chan struct{}
}

// logged keeps what the API logs.
type logged struct {
	*slog.Logger
	text *syncBuffer
}

// courier makes mailboxes, and carries no queue.
type courier struct{}

func (courier) Carries(string) bool { return false }
func (courier) Ready() bool         { return true }
func (courier) Remove(string)       {}

func (courier) Open(_ context.Context, w belay.WorkerID) (string, error) {
	return "to " + w.String(), nil
}

func (courier) Send(context.Context, string, engine.Assigned) error { return nil }

// Rule: a server without a broker refuses to make a mailbox, so that the worker claims.
func TestAServerWithoutABrokerHasNoMailboxes(t *testing.T) {
	b, err := embedded.Open(t.Context(), "memory:", embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := serveOn(t, b, httpapi.Options{Keys: b})
	session := s.want(http.StatusCreated, nil, http.MethodPost, "/v1/workers",
		`{"name": "w", "workflows": [{"workflow": "w"}], "capacity": 1}`).Header.Get("Location")
	s.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodPost, session+"/mailbox", "")
}

// serve starts the API on an engine of its own, which also stores the keys.
func serve(t testing.TB, o httpapi.Options) *server {
	t.Helper()
	b, err := embedded.Open(t.Context(), "memory:", embedded.Logger(slog.New(slog.DiscardHandler)),
		embedded.Courier(courier{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if o.Keys == nil {
		o.Keys = b
	}
	s := serveOn(t, b, o)
	s.b = b
	return s
}

// serveOn starts the API on a Backend.
func serveOn(t testing.TB, b belay.Backend, o httpapi.Options) *server {
	t.Helper()
	text := &syncBuffer{}
	log := &logged{slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug})), text}
	if o.Log == nil {
		o.Log = log.Logger
	}
	if o.WriteTimeout == 0 { // clients of a busy machine are slow
		o.WriteTimeout = 10 * time.Minute
	}
	h := httptest.NewUnstartedServer(httpapi.New(b, o))
	h.Config.ReadHeaderTimeout, h.Config.IdleTimeout = time.Minute, 10*time.Second
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	h.Start()
	t.Cleanup(h.Close)
	return &server{t: t, url: h.URL, log: log}
}

// answer is a response with its body read.
type answer struct {
	*http.Response
	body []byte
}

// try sends a request.
func (s *server) try(ctx context.Context, method, path, body string, h ...string) (*answer, error) {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	at := s.url
	if s.prism != nil && s.prism.takes(method, path, body) {
		at = s.prism.url
	}
	req, err := http.NewRequestWithContext(ctx, method, at+path, r)
	if err != nil {
		return nil, err
	}
	if at != s.url {
		req.Header.Set("Accept-Encoding", "identity") // Prism would unpack the body
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	for i := 0; i+1 < len(h); i += 2 {
		req.Header.Set(h[i], h[i+1])
	}
	var resp *http.Response
	if at != s.url && method == http.MethodGet {
		resp, err = s.prism.get(req, s.url+path)
	} else {
		resp, err = http.DefaultClient.Do(req)
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if at != s.url {
		s.prism.judge(method, path, resp)
	}
	data, err := io.ReadAll(resp.Body)
	return &answer{resp, data}, err
}

// do sends a request, and fails the test if no answer arrives.
func (s *server) do(method, path, body string, h ...string) *answer {
	s.t.Helper()
	a, err := s.try(s.t.Context(), method, path, body, h...)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	if !s.pretends {
		contract(s.t).checkKnown(method, path, a)
	}
	return a
}

// want sends a request, checks the status of its answer, and reads the answer into v unless v is
// nil.
func (s *server) want(status int, v any, method, path, body string, h ...string) *answer {
	s.t.Helper()
	a := s.do(method, path, body, h...)
	if a.StatusCode != status {
		s.t.Fatalf("%s %s: %d, want %d: %s", method, path, a.StatusCode, status, a.body)
	}
	if v != nil {
		if err := json.Unmarshal(a.body, v); err != nil {
			s.t.Fatalf("%s %s: %v in %s", method, path, err, a.body)
		}
	}
	return a
}

// submit submits an execution and returns its path.
func (s *server) submit(body string, h ...string) string {
	s.t.Helper()
	a := s.want(http.StatusCreated, nil, http.MethodPost, "/v1/executions", body, h...)
	return a.Header.Get("Location")
}

// withKey makes a key with some scopes, and returns a copy of s whose requests have this key.
func (s *server) withKey(name string, scopes ...belay.Scope) *server {
	s.t.Helper()
	k, err := s.b.CreateKey(s.t.Context(), belay.KeySpec{Name: name, Scopes: scopes})
	if err != nil {
		s.t.Fatal(err)
	}
	c := *s
	c.key = k.Secret
	return &c
}

// problem is the body of a refusal.
type problem struct {
	Code   belay.Code  `json:"code"`
	Status int         `json:"status"`
	Detail string      `json:"detail"`
	Cause  belay.Cause `json:"cause"`
	Holder *struct {
		Owner       string      `json:"owner"`
		Token       belay.Token `json:"token"`
		ExpiresInMS int64       `json:"expires_in_ms"`
	} `json:"holder"`
	Errors []struct{ Location, Message string } `json:"errors"`
}

// refused sends a request, and checks that it is refused with a status and a code.
func (s *server) refused(status int, code belay.Code, method, path, body string, h ...string) problem {
	s.t.Helper()
	var p problem
	a := s.want(status, &p, method, path, body, h...)
	if kind := a.Header.Get("Content-Type"); kind != "application/problem+json" {
		s.t.Errorf("%s %s: a refusal of type %q", method, path, kind)
	}
	if p.Code != code || p.Status != status {
		s.t.Errorf("%s %s: code %q, status %d in the body; want %q, %d: %s", method, path, p.Code, p.Status, code,
			status, a.body)
	}
	return p
}

// syncBuffer is a buffer for several writers.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

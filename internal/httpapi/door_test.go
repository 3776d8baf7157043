package httpapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// A server answers only requests for its own host names, so that a web page whose own host name
// points to this machine (DNS rebinding) gets no answers.
func TestHostsAreOurs(t *testing.T) {
	s := serve(t, httpapi.Options{Hosts: []string{"localhost", "127.0.0.1", "[::1]"}})
	for host, open := range map[string]bool{
		"127.0.0.1": true, "localhost:1": true, "LOCALHOST": true, "[::1]:7420": true, "::1": true,
		"evil.test": false, "localhost.evil.test": false, "127.0.0.1.evil.test:7420": false,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.StatusCode == http.StatusOK; got != open {
			t.Errorf("host %s: %d, want open: %v", host, resp.StatusCode, open)
		}
	}
}

// A write that a page of another site makes a browser send is refused.
func TestOtherSitesDoNotWrite(t *testing.T) {
	s := serve(t, httpapi.Options{})
	for _, h := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://evil.test"}} {
		s.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPost, "/v1/executions", `{"workflow": "w"}`,
			h...)
		s.want(http.StatusOK, nil, http.MethodGet, "/v1/executions", "", h...)
	}
	s.want(http.StatusCreated, nil, http.MethodPost, "/v1/executions", `{"workflow": "w"}`, "Sec-Fetch-Site",
		"same-origin")
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "",
		"application/json; charset=latin1"} {
		s.refused(http.StatusUnsupportedMediaType, belay.CodeMalformed, http.MethodPost, "/v1/executions",
			`{"workflow": "w"}`, "Content-Type", kind)
	}
}

// Every answer has the headers that keep a browser from treating it as a page or a script.
func TestAnswersAreNotForBrowsers(t *testing.T) {
	s := serve(t, httpapi.Options{})
	for _, path := range []string{"/v1/executions", "/nowhere", "/openapi.json"} {
		h := s.do(http.MethodGet, path, "").Header
		if h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"),
			"default-src 'none'") {
			t.Errorf("%s: %v", path, h)
		}
	}
}

// A caller above the limit of requests is refused. Another caller is not affected, and requests
// over a unix socket are not counted.
func TestRateIsLimited(t *testing.T) {
	now := time.Unix(0, 0)
	s := serve(t, httpapi.Options{Rate: httpapi.Rate{PerSecond: 0.1, Burst: 3}, Now: func() time.Time { return now }})
	ci, other := s.withKey("ci", belay.ScopeRead), s.withKey("other", belay.ScopeRead)
	for range 3 {
		ci.want(http.StatusOK, nil, http.MethodGet, "/v1/executions", "")
	}
	a := ci.do(http.MethodGet, "/v1/executions", "")
	if after, err := strconv.Atoi(a.Header.Get("Retry-After")); a.StatusCode != http.StatusTooManyRequests ||
		err != nil || after < 1 || after > 10 {
		t.Errorf("%d, Retry-After %q; want 429 and up to 10: %s", a.StatusCode, a.Header.Get("Retry-After"), a.body)
	}
	other.want(http.StatusOK, nil, http.MethodGet, "/v1/executions", "")
	for range 3 { // requests with a wrong key are counted by address
		s.refused(http.StatusUnauthorized, belay.CodeUnauthorized, http.MethodGet, "/v1/executions", "")
	}
	s.refused(http.StatusTooManyRequests, belay.CodeRateLimited, http.MethodGet, "/v1/executions", "")
}

func TestUnixSocketIsNotCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, httpapi.Options{})
	srv := &http.Server{
		ReadHeaderTimeout: time.Second,
		Handler: httpapi.New(s.b, httpapi.Options{
			Rate: httpapi.Rate{PerSecond: 0.1, Burst: 1}, Hosts: []string{"localhost"},
		}),
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	defer func() {
		srv.Close()
		<-done
	}()
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	defer client.CloseIdleConnections()
	for range 5 {
		resp, err := client.Get("http://belay/v1/executions")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%d over the socket", resp.StatusCode)
		}
	}
}

// backend is a Backend whose answers a test sets.
type backend struct {
	belay.Backend
	execution func(context.Context) (belay.Execution, error)
}

func (b *backend) Execution(ctx context.Context, _ belay.ExecutionID) (belay.Execution, error) {
	return b.execution(ctx)
}

func (b *backend) Detail(ctx context.Context, _ belay.ExecutionID) (belay.ExecutionDetail, error) {
	x, err := b.execution(ctx)
	return belay.ExecutionDetail{Execution: x}, err
}

const somewhere = "/v1/executions/ex_0000000000000000000000000z"

// An error inside the server is answered with 500, and only the log has its text.
func TestInsidesStayInside(t *testing.T) {
	const secret = "disk /var/lib/secret is full"
	b := &backend{}
	s := serveOn(t, b, httpapi.Options{})
	for name, broken := range map[string]func(context.Context) (belay.Execution, error){
		"an error": func(context.Context) (belay.Execution, error) { return belay.Execution{}, errors.New(secret) },
		"a panic":  func(context.Context) (belay.Execution, error) { panic(secret) },
		"a wrapped error": func(context.Context) (belay.Execution, error) {
			return belay.Execution{}, &belay.Error{
				Code: belay.CodeInternal, Message: "the store is broken", Err: errors.New(secret),
			}
		},
	} {
		b.execution = broken
		p := s.refused(http.StatusInternalServerError, belay.CodeInternal, http.MethodGet, somewhere, "")
		if strings.Contains(p.Detail, "secret") {
			t.Errorf("%s tells: %s", name, p.Detail)
		}
		if !strings.Contains(s.log.text.String(), secret) {
			t.Errorf("%s is not in the log", name)
		}
	}
}

// Every refusal with the status 409, 423, 429 or 503 says in Retry-After when to repeat the
// request, and every refusal has the status of its code.
func TestRefusalsHaveTheirStatus(t *testing.T) {
	b := &backend{}
	s := serveOn(t, b, httpapi.Options{Log: slog.New(slog.DiscardHandler)})
	s.pretends = true
	for _, code := range []belay.Code{
		belay.CodeMalformed, belay.CodeInvalid, belay.CodeLeaseLost, belay.CodeLeaseHeld, belay.CodeIdempotencyMismatch,
		belay.CodeQueueFull,
		belay.CodeNoWorker, belay.CodeCircuitOpen, belay.CodeSwapInProgress, belay.CodePayloadTooLarge,
		belay.CodeNotFound, belay.CodeConflict,
		belay.CodeUnauthorized, belay.CodeForbidden, belay.CodeTokenRequired, belay.CodeCursorExpired,
		belay.CodeRateLimited, belay.CodeUnavailable,
		belay.CodeInternal,
	} {
		for _, after := range []time.Duration{0, 2500 * time.Millisecond} {
			b.execution = func(context.Context) (belay.Execution, error) {
				return belay.Execution{}, &belay.Error{Code: code, Message: "no", RetryAfter: after}
			}
			a := s.do(http.MethodGet, somewhere, "")
			want := ""
			switch code.Status() {
			case 409, 423, 429, 503:
				want = map[bool]string{true: "1", false: "3"}[after == 0]
			}
			if a.StatusCode != code.Status() || a.Header.Get("Retry-After") != want {
				t.Errorf("%s after %s: %d, Retry-After %q; want %d, %q", code, after, a.StatusCode,
					a.Header.Get("Retry-After"), code.Status(), want)
			}
		}
	}
}

// A request that the mux itself refuses gets a problem too.
func TestUnknownAddressesAreProblems(t *testing.T) {
	s := serve(t, httpapi.Options{})
	s.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodGet, "/v1/nothing", "")
	s.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodGet, "//v1/executions", "")
	s.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodGet, "/v1/../v1/executions", "")
	s.refused(http.StatusNotFound, belay.CodeNotFound, http.MethodGet, "/", "")
	s.refused(http.StatusMethodNotAllowed, belay.CodeMalformed, http.MethodPatch, "/v1/executions", `{}`)
	if allow := s.do(http.MethodPatch, "/v1/executions", `{}`).Header.Get("Allow"); allow != "GET, HEAD, POST" {
		t.Errorf("Allow is %q", allow)
	}
}

// When a server stops, waiting requests end: a read returns the events that exist, a claim returns
// no execution, and streams end.
func TestStoppingEndsWaits(t *testing.T) {
	stopping := make(chan struct{})
	s := serve(t, httpapi.Options{Stopping: stopping})
	path := s.submit(`{"workflow": "w"}`)
	worker := s.want(http.StatusCreated, nil, http.MethodPost, "/v1/workers",
		`{"name": "a", "workflows": [{"workflow": "other"}], "capacity": 1}`).Header.Get("Location")
	type result struct {
		what   string
		status int
		err    error
	}
	results := make(chan result)
	ask := func(want int, method, path, body string, h ...string) {
		a, err := s.try(t.Context(), method, path, body, h...)
		r := result{what: method + " " + path, err: err}
		if err == nil {
			r.status = a.StatusCode - want
		}
		results <- r
	}
	go ask(http.StatusOK, http.MethodGet, path, "", "Prefer", "wait=60")
	go ask(http.StatusNoContent, http.MethodGet, path+"/history?after=1&wait=60s", "")
	go ask(http.StatusOK, http.MethodGet, path+"/events", "")
	go ask(http.StatusNoContent, http.MethodPost, worker+"/claim", `{"number": 1, "slots": 1, "wait_ms": 60000}`)
	began := time.Now()
	close(stopping)
	for range 4 {
		if r := <-results; r.err != nil || r.status != 0 {
			t.Errorf("%s: status off by %d, %v", r.what, r.status, r.err)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the waits ended after %s", took)
	}
}

// A server that is not ready says so. It shows the message of a *belay.Error as the reason, and no
// other error's text.
func TestReadiness(t *testing.T) {
	s := serve(t, httpapi.Options{Ready: func(context.Context) ([]string, error) {
		return nil, errors.New("secret reason")
	}})
	if p := s.refused(http.StatusServiceUnavailable, belay.CodeUnavailable, http.MethodGet, "/readyz",
		""); strings.Contains(p.Detail, "secret") {
		t.Errorf("it tells: %s", p.Detail)
	}
	s.want(http.StatusOK, nil, http.MethodGet, "/healthz", "")
	s = serve(t, httpapi.Options{Ready: func(context.Context) ([]string, error) {
		return nil, &belay.Error{Code: belay.CodeInternal, Message: "it is damaged", Err: errors.New("secret reason")}
	}})
	p := s.refused(http.StatusServiceUnavailable, belay.CodeUnavailable, http.MethodGet, "/readyz", "")
	if strings.Contains(p.Detail, "secret") || !strings.Contains(p.Detail, "it is damaged") {
		t.Errorf("it tells: %s", p.Detail)
	}
	s = serve(t, httpapi.Options{Ready: func(context.Context) ([]string, error) { return []string{"a note"}, nil }})
	var h struct{ Notes []string }
	s.want(http.StatusOK, &h, http.MethodGet, "/readyz", "")
	if len(h.Notes) != 1 || h.Notes[0] != "a note" {
		t.Errorf("it notes %v", h.Notes)
	}
}

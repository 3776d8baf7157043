package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent/agentapi"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/server"
)

// soon is a deadline far beyond the time that any step of these tests takes.
const soon = 20 * time.Second

// running is a server on a port of its own.
type running struct {
	t      *testing.T
	url    string
	open   bool
	engine *embedded.Backend
	log    *buffer
	stop   context.CancelFunc // begins a graceful stop
	atOnce context.CancelFunc
	ended  chan struct{}
	err    error // the error of Run, set before ended is closed
}

// setup has the settings of a test's server.
type setup struct {
	cfg           func(*config.Config)
	services      []func(context.Context) error
	prepare       func(*embedded.Backend)
	engine        func(*embedded.Backend) server.Engine
	jobs          func(context.Context) (server.Jobs, error)
	runsForOthers func(*belay.WorkerSpec) bool
	agents        *agentapi.Options
	traces        bool // the server makes the traces for which the environment asks
}

// start starts a server and waits until it answers or has ended with an error.
func start(t *testing.T, set setup) *running {
	t.Helper()
	cfg := config.Default()
	cfg.Listen, cfg.Grace = "127.0.0.1:0", soon
	if set.cfg != nil {
		set.cfg(cfg)
	}
	r := &running{t: t, log: &buffer{}, ended: make(chan struct{})}
	ready := make(chan server.Listening, 1)
	o := server.Options{
		Version: "1.2.3", Log: slog.New(slog.NewTextHandler(r.log, nil)), Services: set.services,
		Ready: func(l server.Listening) { ready <- l },
		Jobs:  set.jobs, RunsForOthers: set.runsForOthers, Agents: set.agents,
	}
	if set.traces {
		o.Traces = server.Traces(cfg, o.Version, o.Log)
	}
	s := server.New(cfg, o)
	var err error
	if r.engine, err = embedded.Open(t.Context(), "memory:", s.Engine()...); err != nil {
		t.Fatal(err)
	}
	if set.prepare != nil {
		set.prepare(r.engine)
	}
	var engine server.Engine = r.engine
	if set.engine != nil {
		engine = set.engine(r.engine)
	}
	ctx, stop := context.WithCancel(context.Background())
	atOnce, now := context.WithCancel(context.Background())
	r.stop, r.atOnce = stop, now
	go func() {
		defer close(r.ended)
		r.err = s.Run(ctx, atOnce, engine)
	}()
	t.Cleanup(func() {
		now()
		stop()
		r.wait()
		if err := r.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	select {
	case l := <-ready:
		r.url, r.open = l.URL, l.Open
	case <-r.ended:
	case <-time.After(soon):
		t.Fatal("the server did not start")
	}
	return r
}

// wait waits for the server's end and returns its error.
func (r *running) wait() error {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(soon):
		r.t.Fatalf("the server did not end\n%s", r.log)
	}
	return r.err
}

// do makes a request and returns the answer's status and body.
func (r *running) do(c *http.Client, method, path, body string, header ...string) (int, string) {
	r.t.Helper()
	status, text, err := try(r.t.Context(), c, method, r.url+path, body, header...)
	if err != nil {
		r.t.Fatalf("%s %s: %v\n%s", method, path, err, r.log)
	}
	return status, text
}

func try(ctx context.Context, c *http.Client, method, url, body string, header ...string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// http1 makes a client that speaks HTTP/1.1 and closes idle connections at the end of the test.
func http1(t *testing.T) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// submit submits an execution that no worker will run, and returns its id.
func (r *running) submit(c *http.Client) string {
	r.t.Helper()
	status, text := r.do(c, http.MethodPost, "/v1/executions", `{"workflow":"w"}`)
	var x struct{ ID string }
	if err := json.Unmarshal([]byte(text), &x); err != nil || status != http.StatusCreated {
		r.t.Fatalf("submit: %d %s", status, text)
	}
	return x.ID
}

// counted waits until the metrics have a text: a batch is counted after its callers have their answers.
func (r *running) counted(c *http.Client, want string) {
	r.t.Helper()
	for over := time.Now().Add(soon); ; <-time.After(10 * time.Millisecond) {
		status, text := r.do(c, http.MethodGet, "/metrics", "")
		if status == http.StatusOK && strings.Contains(text, want) {
			return
		}
		if time.Now().After(over) {
			r.t.Fatalf("/metrics: %d without %s\n%s", status, want, text)
		}
	}
}

// A server answers the API, the probes, the metrics and the web UI on one port. After it has
// stopped, it answers nothing.
func TestAServerAnswersOnOnePortUntilItStops(t *testing.T) {
	r := start(t, setup{})
	c := http1(t)
	id := r.submit(c)
	r.counted(c, "belay_executions_submitted_total{")
	for path, want := range map[string]string{
		"/healthz": `"1.2.3"`, "/readyz": "ok", "/v1/executions/" + id: `"pending"`, "/openapi.json": `"openapi"`,
		"/": "</html>", "/executions/" + id: id,
		"/assets/belay.css": "{", "/overview": "</html>", "/executions": id, "/dead": "</html>", "/workers": "</html>",
		"/queues": id, "/workflows": "</html>", "/schedules": "</html>", "/webhooks": "</html>",
		"/notifications": "</html>", "/bulks": "</html>", "/start": "</html>", "/bulks/new?action=cancel": "</html>",
	} {
		if status, text := r.do(c, http.MethodGet, path, ""); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d without %s\n%.300s", path, status, want, text)
		}
	}
	document := `{"text": "name: two\ntasks:\n  - {id: a, uses: command, with: {run: [ls]}}\n` +
		`  - {id: b, uses: command, needs: a, with: {run: [ls]}}\n"}`
	if status, text := r.do(c, http.MethodPut, "/v1/workflows/two", document); status >= 300 {
		t.Fatalf("a document is not stored: %d\n%s", status, text)
	}
	if _, text := r.do(c, http.MethodGet, "/workflows/two", ""); strings.Count(text, `class="edge"`) != 1 {
		t.Errorf("the page of a document lacks the graph of its tasks\n%s", text)
	}
	if !r.open {
		t.Error("a server without keys demands a key")
	}
	r.stop()
	if err := r.wait(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	// Another process may use the port now, so only an answer with this execution is a failure.
	if status, _, err := try(t.Context(), http1(t), http.MethodGet, r.url+"/v1/executions/"+id, ""); err == nil &&
		status == http.StatusOK {
		t.Error("the server answers after its end")
	}
}

// While there is no key, the server refuses to listen on an address that other machines can reach,
// and says what to do. With a key, or with insecure_no_auth, it listens there.
func TestBeyondLoopbackOnlyWithKeys(t *testing.T) {
	for _, listen := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		r := start(t, setup{cfg: func(c *config.Config) { c.Listen = listen }})
		err := r.wait()
		if belay.CodeOf(err) != belay.CodeConflict || !strings.Contains(err.Error(), "belay keys create --name") ||
			!strings.Contains(err.Error(), "--insecure-no-auth") {
			t.Errorf("%s: %v", listen, err)
		}
	}
	for _, listen := range []string{"127.0.0.1:0", "127.8.9.10:0", "localhost:0"} {
		if r := start(t, setup{cfg: func(c *config.Config) { c.Listen = listen }}); r.url == "" {
			t.Errorf("%s: %v", listen, r.wait())
		}
	}
	everywhere := func(c *config.Config) { c.Listen = "0.0.0.0:0" }
	var secret string
	r := start(t, setup{cfg: everywhere, prepare: func(b *embedded.Backend) {
		k, err := b.CreateKey(t.Context(), belay.KeySpec{Name: "k", Scopes: []belay.Scope{belay.ScopeRead}})
		if err != nil {
			t.Fatal(err)
		}
		secret = k.Secret
	}})
	r.url = strings.Replace(r.url, "0.0.0.0", "127.0.0.1", 1)
	if status, _ := r.do(http1(t), http.MethodGet, "/v1/executions", ""); status != http.StatusUnauthorized || r.open {
		t.Errorf("without the key: %d", status)
	}
	if status, _ := r.do(http1(t), http.MethodGet, "/v1/executions", "", "Authorization",
		"Bearer "+secret); status != http.StatusOK {
		t.Errorf("with the key: %d", status)
	}
	r = start(t, setup{cfg: func(c *config.Config) { c.Listen, c.InsecureNoAuth = "0.0.0.0:0", true }})
	r.url = strings.Replace(r.url, "0.0.0.0", "127.0.0.1", 1)
	if status, _ := r.do(http1(t), http.MethodGet, "/v1/executions", ""); status != http.StatusOK || !r.open {
		t.Errorf("insecure: %d", status)
	}
}

// If the address is in use or does not belong to this machine, the error names the address.
func TestTheErrorNamesAnAddressThatCannotBeUsed(t *testing.T) {
	r := start(t, setup{})
	taken := strings.TrimPrefix(r.url, "http://")
	for _, listen := range []string{taken, "192.0.2.1:0"} { // an address for documentation, which no machine has
		err := start(t, setup{cfg: func(c *config.Config) { c.Listen, c.InsecureNoAuth = listen, true }}).wait()
		if err == nil || !strings.Contains(err.Error(), "listen on "+listen) {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

// On loopback the server answers only requests whose Host is a name of this machine or is in the
// configuration.
func TestOnLoopbackOtherHostNamesAreRefused(t *testing.T) {
	r := start(t, setup{cfg: func(c *config.Config) { c.Hosts = []string{"belay.example"} }})
	for host, want := range map[string]int{
		"localhost": 200, "127.0.0.1:1": 200, "[::1]:80": 200, "belay.example": 200, "Belay.Example:443": 200,
		"evil.example": 403, "127.0.0.1.evil.example": 403,
	} {
		if status, text := r.do(http1(t), http.MethodGet, "/healthz", "", "Host", host); status != want {
			t.Errorf("%s: %d %s, want %d", host, status, text, want)
		}
	}
}

// broken is an engine whose store fails when the test closes the channel failed.
type broken struct {
	server.Engine
	failed chan struct{}
}

func (b *broken) Failed() <-chan struct{} { return b.failed }
func (b *broken) Failure() error {
	select {
	case <-b.failed:
		return io.ErrShortWrite
	default:
		return nil
	}
}

// A store that has failed ends the server at once, with the reason, because later answers could be
// wrong.
func TestABrokenStoreEndsTheServer(t *testing.T) {
	b := &broken{failed: make(chan struct{})}
	r := start(t, setup{engine: func(e *embedded.Backend) server.Engine {
		b.Engine = e
		return b
	}})
	stream := r.watch(http1(t), r.submit(http1(t)))
	close(b.failed)
	err := r.wait()
	if err == nil || !strings.Contains(err.Error(), "the store has failed") ||
		!strings.Contains(err.Error(), io.ErrShortWrite.Error()) {
		t.Errorf("ended with %v", err)
	}
	stream.Close()
}

// A service that returns while the server runs ends the server with the service's error. A server
// that stops waits for its services.
func TestServicesEndWithTheServer(t *testing.T) {
	r := start(t, setup{services: []func(context.Context) error{func(context.Context) error {
		return io.ErrClosedPipe
	}}})
	if err := r.wait(); err == nil || !strings.Contains(err.Error(), io.ErrClosedPipe.Error()) {
		t.Errorf("the server of a service that failed ended with %v", err)
	}
	finished := make(chan struct{})
	r = start(t, setup{services: []func(context.Context) error{func(ctx context.Context) error {
		<-ctx.Done()
		defer close(finished)
		return nil
	}}})
	r.stop()
	if err := r.wait(); err != nil {
		t.Errorf("the stop: %v", err)
	}
	select {
	case <-finished:
	default:
		t.Error("the server did not wait for the service")
	}
}

// buffer is the output of a log that a test reads while the server writes it.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

package httptask

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/belaydev/belay/internal/reach"
	"github.com/belaydev/belay/internal/secretref"
)

// key is the idempotency key of the requests in these tests.
const key = "ex_01-1"

// Secrets of the tests.
const (
	token    = "t0ken-Äb/+&\"value"
	slackURL = "https://hooks.example.com/services/T0001/B0002/xyzzy"
)

// world is a simulated internet: names resolve to the addresses in names, in turns, and a connection
// to an address in servers reaches a server of the test on loopback.
type world struct {
	t      *testing.T
	caller *Caller

	mu      sync.Mutex
	names   map[string][]string
	servers map[string]string
	dialled []string
}

// begin makes a Caller in a simulated internet; patterns are the setting http.egress.
func begin(t *testing.T, patterns ...string) *world {
	t.Helper()
	policy, err := reach.Parse(patterns)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := secretref.Parse([]string{
		"TOKEN for http to api.example.com,api.example.com:8443,public.example", "SLACK for http",
		"ELSEWHERE from env:TOKEN for http to other.example", "DEPLOY from env:TOKEN for deploy to *",
	})
	if err != nil {
		t.Fatal(err)
	}
	secrets.Log = slog.New(slog.DiscardHandler)
	secrets.Env = func(name string) string { return map[string]string{"TOKEN": token, "SLACK": slackURL}[name] }
	w := &world{t: t, names: map[string][]string{}, servers: map[string]string{}}
	w.caller = &Caller{
		Agent: "belay/test", Secrets: secrets, Dialer: reach.Dialer{Policy: policy, Resolve: w.resolve, Dial: w.dial},
	}
	t.Cleanup(w.caller.Close)
	return w
}

// resolve returns the next address of a name.
func (w *world) resolve(_ context.Context, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name = strings.TrimSuffix(name, ".")
	turns := w.names[name]
	if len(turns) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	if len(turns) > 1 {
		w.names[name] = turns[1:]
	}
	return []netip.Addr{netip.MustParseAddr(turns[0])}, nil
}

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, address)
	really := w.servers[address]
	w.mu.Unlock()
	if really == "" {
		return nil, errors.New("nothing is there")
	}
	return new(net.Dialer).DialContext(ctx, network, really)
}

// serve adds a server with a name at a public address. Its certificate is trusted if it has one.
func (w *world) serve(name, port string, h http.HandlerFunc, tls bool) {
	w.t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	if tls {
		s.EnableHTTP2 = true
		s.StartTLS()
		w.caller.TLS = s.Client().Transport.(*http.Transport).TLSClientConfig
	} else {
		s.Start()
	}
	w.t.Cleanup(s.Close)
	addr := "93.184.216." + string(rune('1'+len(w.names)))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = []string{addr}
	w.servers[addr+":"+port] = s.Listener.Addr().String()
}

// send sends the request of an input.
func (w *world) send(input string) (*Response, error) {
	w.t.Helper()
	r, err := decode(json.RawMessage(input))
	if err != nil {
		return nil, err
	}
	return w.caller.send(w.t.Context(), r, w.caller.Secrets.Scope(Workflow), key)
}

// mustSend is send for a request that must succeed.
func (w *world) mustSend(input string) *Response {
	w.t.Helper()
	a, err := w.send(input)
	if err != nil {
		w.t.Fatalf("%s: %v", input, err)
	}
	return a
}

// answer returns a handler that answers with a status and a body.
func answer(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

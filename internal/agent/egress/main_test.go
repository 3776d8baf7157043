package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/reach"
)

// patience is how long a test waits for an event before the test fails, unless the test measures
// the duration itself.
const patience = 20 * time.Second

func policy(t testing.TB, patterns ...string) *reach.Policy {
	t.Helper()
	p, err := reach.Parse(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// proxy is a server under test with a simulated internet: names resolve to public addresses, and a
// connection to such an address reaches a test server on loopback.
type proxy struct {
	*Server
	t    *testing.T
	addr string

	mu      sync.Mutex
	names   map[string][]string // the addresses of each name
	servers map[string]string   // the real address for each simulated address and port
	asked   []string
	dialled []string
	logged  bytes.Buffer
}

// begin serves a policy until the test ends, and then checks that no goroutine of the server is
// left.
func begin(t *testing.T, patterns ...string) *proxy { return beginWith(t, nil, patterns...) }

func beginWith(t *testing.T, set func(s *Server), patterns ...string) *proxy {
	t.Helper()
	before := runtime.NumGoroutine()
	p := &proxy{t: t, names: map[string][]string{}, servers: map[string]string{}}
	p.Server = &Server{
		Policy: policy(t, patterns...), Log: slog.New(slog.NewTextHandler(&p.logged, nil)),
		Resolve: p.resolve, Dial: p.dial,
	}
	if set != nil {
		set(p.Server)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		settle(t, before)
	})
	return p
}

// settle waits until the number of goroutines is at most before, their number before the server was
// started.
func settle(t *testing.T, before int) {
	t.Helper()
	if !happens(func() bool { return runtime.NumGoroutine() <= before }) {
		buf := make([]byte, 1<<20)
		t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
	}
}

// next returns the next value of a channel.
func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("no value within %s", patience)
	}
	return v
}

// until waits until ok returns true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !happens(ok) {
		t.Fatalf("%s: not within %s", what, patience)
	}
}

func happens(ok func() bool) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// addServer adds a server to the simulated internet. name, addr and port are the server's address
// in the simulated internet; really is the address of the test server that answers.
func (p *proxy) addServer(name, addr, port, really string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name != "" {
		p.names[name] = append(p.names[name], addr)
	}
	p.servers[net.JoinHostPort(addr, port)] = really
}

func (p *proxy) resolve(_ context.Context, name string) (all []netip.Addr, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, name)
	for _, addr := range p.names[strings.TrimSuffix(name, ".")] {
		all = append(all, netip.MustParseAddr(addr))
	}
	if all == nil {
		err = &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return all, err
}

func (p *proxy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	p.mu.Lock()
	p.dialled = append(p.dialled, address)
	really, ok := p.servers[address]
	p.mu.Unlock()
	if _, err := netip.ParseAddrPort(address); err != nil {
		p.t.Errorf("it dials %s, which is not an address", address)
	}
	if !ok {
		return nil, errors.New("nothing is there")
	}
	return new(net.Dialer).DialContext(ctx, network, really)
}

func (p *proxy) dials() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dialled
}

func (p *proxy) lookups() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// client returns an ordinary HTTP client that uses the proxy and trusts a server.
func (p *proxy) client(trusted *httptest.Server) *http.Client {
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: p.addr})}
	if p.Token != "" {
		tr.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: p.addr, User: url.UserPassword("job", p.Token)})
	}
	if trusted != nil && trusted.TLS != nil {
		tr.TLSClientConfig = trusted.Client().Transport.(*http.Transport).TLSClientConfig
	}
	p.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// line is a TCP connection to the proxy, on which a test writes requests as text.
type line struct {
	t *testing.T
	*net.TCPConn
}

func (p *proxy) line() line {
	p.t.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return line{p.t, c.(*net.TCPConn)}
}

func (l line) send(text string) line {
	l.t.Helper()
	if _, err := io.WriteString(l, text); err != nil {
		l.t.Fatal(err)
	}
	return l
}

// readAll reads until the end of the connection.
func (l line) readAll() string {
	l.t.Helper()
	b, err := io.ReadAll(l)
	if err != nil && !strings.Contains(err.Error(), "connection reset") {
		l.t.Fatalf("%v after %q", err, b)
	}
	return string(b)
}

// reads reads n bytes.
func (l line) reads(n int) string {
	l.t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(l, b); err != nil {
		l.t.Fatal(err)
	}
	return string(b)
}

const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// ask sends a request on a new connection and returns everything that the proxy sends.
func (p *proxy) ask(request string) string {
	p.t.Helper()
	return p.line().send(request).readAll()
}

// listen runs a TCP server until the test ends, with one goroutine for each connection.
func listen(t *testing.T, serve func(c *net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

// portOf returns the port of an address.
func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

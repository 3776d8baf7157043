package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Rule: the proxy refuses a host that is not listed, whatever the spelling of the target. It
// neither resolves nor dials that host. The response names the setting agent.egress.
func TestUnlistedTargetsAreRefused(t *testing.T) {
	belay := httptest.NewServer(http.HandlerFunc(hello)) // no request of this test may reach this server
	defer belay.Close()
	port := portOf(belay.Listener.Addr().String())
	p := begin(t, "example.com", "*.example.com:443", "127.0.0.1:1", "127.0.0.0/8:2", "10.0.0.0/8:3")
	for _, target := range []string{
		"127.0.0.1:" + port, "localhost:" + port, "127.1:" + port, "2130706433:" + port, "0x7f.0.0.1:" + port,
		"0177.0.0.1:" + port, "0:" + port, "0.0.0.0:" + port,
		"[::1]:" + port, "[::]:" + port, "[::ffff:127.0.0.1]:" + port, "[::ffff:7f00:1]:" + port,
		"[0:0:0:0:0:ffff:127.0.0.1]:" + port, "[::1%25lo]:" + port, "[64:ff9b::127.0.0.1]:" + port,
		p.addr,
		"169.254.169.254:80", "169.254.169.254:443", "metadata.google.internal:80",
		"example.com:22", "example.com", "example.com:", "example.com:0443", "example.com:443@evil.org",
		"example.com:443@evil.org:443", "user@example.com:443", "user:pw@example.com:443",
		"evil.org:443#example.com:443", "evil.org:443/example.com:443", "evil.org:443?example.com:443",
		"example.com%2eevil.org:443", "example.com%00:443",
		"example.com:443,evil.org:443", "example.com\\@evil.org:443", "[example.com]:443", "example.com.evil.org:443",
		"evilexample.com:443", ".example.com:443",
		strings.Repeat("a", 5000) + ".example.com:443", "ex\u00e4mple.com:443", "-a.example.com:443",
		"/example.com:443", "http://example.com:443", "*:443", ":443",
	} {
		got := p.ask("CONNECT " + target + " HTTP/1.1\r\nHost: example.com\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 403 ") && !strings.HasPrefix(got, "HTTP/1.1 400 ") ||
			strings.HasPrefix(got, "HTTP/1.1 403 ") && !strings.Contains(got, "agent.egress") {
			t.Errorf("CONNECT %s: %q", target, got)
		}
		if strings.HasPrefix(target, "http") || strings.HasPrefix(target, "/") {
			continue
		}
		got = p.ask("GET http://" + target + "/ HTTP/1.1\r\nHost: example.com\r\n\r\n")
		if allowed := strings.HasPrefix(target, "example.com:443") || strings.HasPrefix(target, "example.com:0443") ||
			target == "example.com" || target == "example.com:"; allowed && !strings.ContainsAny(target, "@,") {
			continue
		}
		if !strings.HasPrefix(got, "HTTP/1.1 403 ") && !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("GET http://%s: %q", target, got)
		}
	}
	for _, request := range []string{
		"GET /x HTTP/1.1\r\nHost: example.com", "GET https://example.com/ HTTP/1.1\r\nHost: example.com",
		"GET ftp://example.com/ HTTP/1.1\r\nHost: example.com",
		"GET http:example.com HTTP/1.1\r\nHost: example.com", "GET //example.com/ HTTP/1.1\r\nHost: example.com",
		"OPTIONS * HTTP/1.1\r\nHost: example.com",
		"PRI * HTTP/2.0\r\n\r\nSM", "GET http:///x HTTP/1.1\r\nHost: example.com",
		"GET http://user:pw@example.com/ HTTP/1.1\r\nHost: example.com",
		"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde",
		"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0",
		"\x16\x03\x01\x02", "GET http://example.com/ HTTP/1.1\r\nHost: a\r\nHost: b",
		"GET http://example.com/ HTTP/9.9\r\nHost: a",
	} {
		if got := p.ask(request + "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 4") &&
			!strings.HasPrefix(got, "HTTP/1.1 505") {
			t.Errorf("%q: %q", request, got)
		}
	}
	for _, name := range p.lookups() {
		if name != "example.com" {
			t.Errorf("%s was resolved", name)
		}
	}
	if dials := p.dials(); len(dials) > 0 {
		t.Errorf("dialled: %q", dials)
	}
}

// Rule: the proxy refuses a name that resolves to a forbidden kind of address. If the name also
// resolves to a permitted address, the proxy uses that address. The response does not contain the
// forbidden address.
func TestNamesOfForbiddenAddressesAreRefused(t *testing.T) {
	server := listen(t, func(c *net.TCPConn) { fmt.Fprint(c, "inside") })
	p := begin(t, "git.example.org:443", "*.example.com:443", "127.0.0.2:443")
	for addr, want := range map[string]string{
		"127.0.0.1":       "a loopback address, which is only allowed if",
		"::1":             "a loopback address",
		"169.254.169.254": "an address at which a cloud hands out credentials",
		"0.0.0.0":         "an unspecified address",
		"224.0.0.1":       "a multicast address",
		"fe80::1":         "a link-local address",
		"240.0.0.1":       "a reserved address",
	} {
		p.names = map[string][]string{"git.example.org": {addr}, "a.example.com": {addr}}
		p.addServer("", addr, "443", server)
		for name := range p.names {
			if got := p.ask("CONNECT " + name + ":443 HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasPrefix(got,
				"HTTP/1.1 403 ") || !strings.Contains(got, want) || strings.Contains(got, addr) {
				t.Errorf("%s at %s: %q", name, addr, got)
			}
		}
	}
	p.names = map[string][]string{
		"git.example.org": {"10.1.2.3"}, "a.example.com": {"10.1.2.3"}, "b.example.com": {"10.1.2.3", "93.184.216.34"},
	}
	p.addServer("", "10.1.2.3", "443", server)
	p.addServer("", "93.184.216.34", "443", listen(t, func(c *net.TCPConn) { fmt.Fprint(c, "outside") }))
	for name, want := range map[string]string{"git.example.org": established + "inside", "b.example.com": established +
		"outside"} {
		if got := p.ask("CONNECT " + name + ":443 HTTP/1.1\r\nHost: x\r\n\r\n"); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := p.ask("CONNECT a.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(got,
		"a wildcard does not allow: list the whole name") {
		t.Errorf("%q", got)
	}
	if diff := cmp.Diff([]string{"10.1.2.3:443", "93.184.216.34:443"},
		slices.Sorted(slices.Values(p.dials()))); diff != "" {
		t.Errorf("dialled:\n%s", diff)
	}
}

// Rule: the proxy resolves a name once for each connection, checks the address, and dials that same
// address. So a name server that changes its answer cannot bypass the check.
func TestCheckedAddressIsTheOneDialled(t *testing.T) {
	p := begin(t, "rebind.example.com:443")
	turn := 0
	p.Resolve = func(context.Context, string) ([]netip.Addr, error) {
		turn++
		if turn%2 == 1 {
			return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	p.addServer("", "93.184.216.34", "443", listen(t, func(c *net.TCPConn) { fmt.Fprint(c, "outside") }))
	for i, want := range []string{"HTTP/1.1 200", "HTTP/1.1 403", "HTTP/1.1 200"} {
		if got := p.ask("CONNECT rebind.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasPrefix(got, want) {
			t.Errorf("%d: %q", i, got)
		}
	}
	if dials := p.dials(); len(dials) != 2 || dials[0] != "93.184.216.34:443" || turn != 3 {
		t.Errorf("after %d resolutions it dialled %q", turn, dials)
	}
}

// Rule: the proxy refuses its own address and the addresses of Belay, even if the policy lists
// them.
func TestAddressesOfBelayAreClosed(t *testing.T) {
	own := netip.MustParseAddrPort("10.0.0.5:7420")
	p := beginWith(t, func(s *Server) {
		s.Closed = func(a netip.AddrPort) bool { return a == own }
	}, "none")
	p.names["belay.example.org"] = []string{"10.0.0.5"}
	*p.Policy = *policy(t, "127.0.0.0/8", "belay.example.org:7420", "10.0.0.5:7420", "127.0.0.1:7420", p.addr)
	for _, target := range []string{p.addr, "10.0.0.5:7420", "belay.example.org:7420"} {
		if got := p.ask("CONNECT " + target + " HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasPrefix(got,
			"HTTP/1.1 403 ") || !strings.Contains(got, "Belay itself") {
			t.Errorf("%s: %q", target, got)
		}
	}
}

// Rule: after it has refused a request, the proxy reads no more bytes of that connection. So no
// further bytes can act as another request.
func TestNothingIsReadAfterARefusal(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(hello))
	defer server.Close()
	p := begin(t, "example.com")
	p.addServer("example.com", "93.184.216.34", "80", server.Listener.Addr().String())
	const good = "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n"
	for _, bad := range []string{"CONNECT evil.org:443 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http://evil.org/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST http://evil.org/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"} {
		got := p.ask(bad + good)
		if strings.Count(got, "HTTP/1.1 ") != 1 || !strings.HasPrefix(got, "HTTP/1.1 403 ") {
			t.Errorf("%q: %q", bad, got)
		}
	}
	if dials := p.dials(); len(dials) > 0 {
		t.Errorf("dialled: %q", dials)
	}
	// The proxy must check each of two requests on one connection.
	l := p.line().send(good + strings.Replace(good, "example.com/", "evil.org/", 1))
	if got := l.readAll(); !strings.Contains(got, "GET example.com/ ") || !strings.Contains(got, "403 Forbidden") {
		t.Errorf("%q", got)
	}
}

// Rule: the proxy writes every forwarded request anew: the new request has the target as its Host,
// an unambiguous length, and no headers that are meant for the proxy. It refuses a request whose
// length is ambiguous.
func TestForwardedRequestsAreRewritten(t *testing.T) {
	heard := make(chan string, 1)
	server := listen(t, func(c *net.TCPConn) {
		r := bufio.NewReader(c)
		var all strings.Builder
		for {
			text, err := r.ReadString('\n')
			all.WriteString(text)
			if err != nil || text == "\r\n" {
				break
			}
		}
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: X-Secret\r\nX-Secret: "+
			"1\r\nProxy-Connection: x\r\nKeep-Alive: 5\r\n\r\nok")
		heard <- all.String()
	})
	p := begin(t, "example.com")
	p.addServer("example.com", "93.184.216.34", "80", server)
	got := p.ask("GET http://EXAMPLE.com/a HTTP/1.1\r\nHost: evil.org\r\nConnection: close, X-Hop\r\nX-Hop: " +
		"1\r\nX-Stays: 1\r\nProxy-Authorization: Basic eA==\r\nProxy-Connection: keep-alive\r\nTE: " +
		"gzip\r\nUpgrade: h2c\r\n\r\n")
	if strings.Contains(got, "X-Secret") || strings.Contains(got, "Proxy-Connection") ||
		strings.Contains(got, "Keep-Alive:") || !strings.HasSuffix(got, "ok") {
		t.Errorf("the answer: %q", got)
	}
	const want = "GET /a HTTP/1.1\r\nHost: example.com\r\nX-Stays: 1\r\nConnection: close\r\n\r\n"
	if diff := cmp.Diff(want, next(t, heard)); diff != "" {
		t.Errorf("the request (-want +got):\n%s", diff)
	}
	const smuggled = "GET http://evil.org/ HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, framing := range []string{
		"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd", "Content-Length: +4\r\n\r\nabcd",
		"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"Content-Length : 4\r\n\r\nabcd", "X: a\r\n b\x00\r\n\r\n",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		got := p.ask("POST http://example.com/ HTTP/1.1\r\nHost: x\r\n" + framing + smuggled)
		if !strings.HasPrefix(got, "HTTP/1.1 400 ") && !strings.HasPrefix(got, "HTTP/1.1 501 ") ||
			strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%q: %q", framing, got)
		}
	}
	// If a request has a Content-Length and is also chunked, the proxy reads the chunks and forwards
	// only their content.
	p.line().send("POST http://example.com/ HTTP/1.1\r\nHost: x\r\nContent-Length: 60\r\nTransfer-Encoding: " +
		"chunked\r\n\r\n0\r\n\r\n" + smuggled).readAll()
	if got := next(t, heard); strings.Contains(got, "Content-Length: 60") || strings.Contains(got, "evil") {
		t.Errorf("the request: %q", got)
	}
}

// Rule: the proxy closes a connection if a request does not arrive completely in time, or if the
// connection carries no bytes for the idle time.
func TestIdleConnectionsAreClosed(t *testing.T) {
	server := listen(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	p := beginWith(t, func(s *Server) {
		s.Limits = Limits{
			HeaderTimeout: 30 * time.Millisecond, Keep: 30 * time.Millisecond, Idle: 60 * time.Millisecond,
		}
	}, "example.com")
	p.addServer("example.com", "93.184.216.34", "443", server)
	p.addServer("example.com", "93.184.216.34", "80", server)
	for name, request := range map[string]string{
		"nothing at all": "", "half a header": "GET http://example.com/ HTTP/1.1\r\nHost: x\r\nX",
		"a tunnel without a word": "CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
		"half a refused body":     "POST http://evil.org/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
		"no answer":               "GET http://example.com/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"half a body":             "POST http://example.com/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
	} {
		began := time.Now()
		p.line().send(request).readAll()
		if took := time.Since(began); took > patience/2 {
			t.Errorf("%s: open for %s", name, took)
		}
	}
}

// Rule: the proxy refuses a request whose header is larger than the limit.
func TestHeaderIsBounded(t *testing.T) {
	p := beginWith(t, func(s *Server) { s.Limits.Header = 4 << 10 }, "example.com")
	got := p.ask("GET http://example.com/ HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 431 ") {
		t.Errorf("a long header: %q", got)
	}
}

// Rule: a tunnel stays open as long as it carries bytes in either direction. The proxy closes a tunnel that has carried
// no bytes for the idle time.
func TestATunnelInUseStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		far, up := net.Pipe()
		near, down := net.Pipe()
		l := &singleListener{conn: down, over: make(chan struct{})}
		s := &Server{
			Policy: policy(t, "10.0.0.1:443"), Limits: Limits{Idle: idle},
			Dial: func(context.Context, string, string) (net.Conn, error) { return up, nil },
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		fmt.Fprint(near, "CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: x\r\n\r\n")
		b := make([]byte, len(established))
		if _, err := io.ReadFull(near, b); err != nil || string(b) != established {
			t.Fatalf("%q, %v", b, err)
		}
		for i := range 20 {
			time.Sleep(idle * 2 / 3)
			from, to := near, far
			if i%2 == 1 {
				from, to = far, near
			}
			fmt.Fprint(from, "x")
			if _, err := io.ReadFull(to, b[:1]); err != nil {
				t.Fatalf("after %d: %v", i, err)
			}
		}
		began := time.Now()
		if n, err := near.Read(b); err == nil {
			t.Errorf("the server received %q", b[:n])
		}
		if took := time.Since(began); took != idle {
			t.Errorf("closed after %s", took)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// singleListener is a listener that accepts a single connection.
type singleListener struct {
	conn net.Conn
	over chan struct{}
	once sync.Once
}

func (l *singleListener) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.over
	return nil, net.ErrClosed
}

func (l *singleListener) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

func (l *singleListener) Addr() net.Addr { return &net.UnixAddr{Name: "single", Net: "unix"} }

// Rule: the number of open connections of a job is limited. The proxy accepts a further connection
// as soon as another connection has ended.
func TestConnectionsAreBounded(t *testing.T) {
	server := listen(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	p := beginWith(t, func(s *Server) { s.Limits.Connections = 3 }, "example.com")
	p.addServer("example.com", "93.184.216.34", "443", server)
	var lines []line
	for range 4 {
		lines = append(lines, p.line().send("CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n"))
	}
	for _, l := range lines[:3] {
		l.reads(len(established))
	}
	_ = lines[3].SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := lines[3].Read(make([]byte, 1)); err == nil {
		t.Fatalf("the fourth connection got a response, %d", n)
	}
	lines[0].Close()
	_ = lines[3].SetReadDeadline(time.Now().Add(patience))
	if got := lines[3].reads(len(established)); got != established {
		t.Errorf("%q", got)
	}
}

// Rule: Close ends all connections to the job and to the targets, and all goroutines of the server.
func TestCloseEndsEverything(t *testing.T) {
	ended := make(chan struct{}, 2)
	server := listen(t, func(c *net.TCPConn) {
		_, _ = io.Copy(io.Discard, c)
		ended <- struct{}{}
	})
	p := begin(t, "example.com", "slow.example.com")
	p.addServer("example.com", "93.184.216.34", "443", server)
	p.addServer("example.com", "93.184.216.34", "80", server)
	resolving := make(chan struct{}, 1)
	resolve := p.Resolve
	p.Resolve = func(ctx context.Context, name string) ([]netip.Addr, error) {
		if name == "slow.example.com" {
			resolving <- struct{}{}
			<-ctx.Done()
		}
		return resolve(ctx, name)
	}
	l := p.line().send("CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	l.reads(len(established))
	p.line().send("GET http://example.com/ HTTP/1.1\r\nHost: x\r\n\r\n")
	p.line().send("CONNECT slow.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	p.line()
	next(t, resolving)
	until(t, "both targets are dialled", func() bool { return len(p.dials()) == 2 })
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if got := l.readAll(); got != "" {
		t.Errorf("%q", got)
	}
	next(t, ended)
	next(t, ended)
	if _, err := net.Dial("tcp", p.addr); err == nil {
		t.Error("it still listens")
	}
	if err := p.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := p.Serve(onlyCloses{}); err == nil {
		t.Error("it served after Close")
	}
}

// Rule: when the listener is closed, the server closes all its connections, and Serve returns.
func TestEndOfTheListenerEndsTheServer(t *testing.T) {
	server := listen(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Policy: policy(t, server)}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	p := &proxy{Server: s, t: t, addr: l.Addr().String()}
	c := p.line().send("CONNECT " + server + " HTTP/1.1\r\nHost: x\r\n\r\n")
	c.reads(len(established))
	l.Close()
	if got := c.readAll(); got != "" {
		t.Errorf("%q", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// onlyCloses is a listener that has only the method Close, which does nothing; every other method
// panics.
type onlyCloses struct{ net.Listener }

func (onlyCloses) Close() error { return nil }

// Rule: the server logs each refused target once, in printable ASCII, and counts every refusal. It
// counts a limited number of targets separately.
func TestRefusalsAreLoggedOnce(t *testing.T) {
	p := begin(t, "example.com")
	for range 3 {
		p.ask("CONNECT evil.org:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	p.ask("CONNECT \u202eevil\u0085:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	p.ask("GET http://a%1b%5bm.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n")
	want := []Refusal{
		{`"\u202eevil\u0085:443"`, "the target of the request cannot be read: a name outside of ASCII is written " +
			"in its encoded form, which begins with xn--", 1},
		{"evil.org:443", "it is not listed there", 3},
	}
	if diff := cmp.Diff(want, p.Refused()); diff != "" {
		t.Error(diff)
	}
	if log := p.logged.String(); strings.Count(log, "target=evil.org:443") != 1 ||
		strings.ContainsFunc(log, func(r rune) bool { return r > 126 || r < 32 && r != '\n' }) {
		t.Errorf("logged: %q", log)
	}
	for i := range mostRefusals + 50 {
		p.refused.count(fmt.Sprint(i), "x")
	}
	all := p.Refused()
	if i := slices.IndexFunc(all, func(r Refusal) bool {
		return r.Target == others
	}); len(all) != mostRefusals+1 || i < 0 || all[i].Count != 52 {
		t.Errorf("%d targets", len(all))
	}
	lines := p.Summary()
	if len(lines) != maxSummary+1 || lines[0] != "agent.egress refused others, 52 times: targets after the first 200, "+
		"counted together" {
		t.Errorf("summary: %q", lines)
	}
	for _, line := range lines {
		if len(line) > maxLine+3 || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("summary: %q", line)
		}
	}
}

package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// listen listens on the configured address, and reports whether callers need no key. It refuses an
// address that other machines can reach while the store has no key. demand is the reason why every
// caller needs a key, even while the store has no key; it is empty if there is no such reason.
func (s *Server) listen(ctx context.Context, b Engine, demand string) (l net.Listener, open bool, err error) {
	op := "listen on " + s.cfg.Listen
	has, err := b.HasKeys(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("%s: look for keys: %w", op, err)
	}
	addr, err := net.DefaultResolver.LookupIPAddr(ctx, hostOf(s.cfg.Listen))
	if err != nil && hostOf(s.cfg.Listen) != "" {
		return nil, false, &belay.Error{Code: belay.CodeInvalid, Op: op, Message: "there is no such address", Err: err}
	}
	beyond := len(addr) == 0
	for _, a := range addr {
		beyond = beyond || !a.IP.IsLoopback()
	}
	if beyond && !has && !s.cfg.InsecureNoAuth {
		return nil, false, &belay.Error{Code: belay.CodeConflict, Op: op, Message: s.refusal()}
	}
	open = s.cfg.InsecureNoAuth || !has && demand == ""
	if !has && demand != "" {
		s.log.Warn("every caller needs a key", "why", demand)
	}
	var config net.ListenConfig
	inner, err := config.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return nil, false, &belay.Error{
			Code: belay.CodeConflict, Op: op, Message: "the address cannot be used; name another with --listen",
			Err: err,
		}
	}
	return newBounded(inner, s.cfg.Limits.Connections, s.cfg.TLS()), open, nil
}

func (s *Server) refusal() string {
	return "other machines can reach this address, and there is no API key yet; make one with\n\n  " +
		s.keysCreate("NAME",
			"read,submit,worker") +
		"\n\nor listen on loopback, or let every caller do everything with --insecure-no-auth"
}

func hostOf(listen string) string {
	host, _, _ := net.SplitHostPort(listen) // package config has checked the address
	return host
}

// url is the URL of the server at an address.
func (s *Server) url(addr net.Addr) string {
	scheme := "http://"
	if s.cfg.TLS() {
		scheme = "https://"
	}
	return scheme + addr.String()
}

// hosts returns the host names under which the server answers; nil means any name.
func (s *Server) hosts(addr net.Addr) []string {
	tcp, ok := addr.(*net.TCPAddr)
	if (!ok || !tcp.IP.IsLoopback()) && len(s.cfg.Hosts) == 0 {
		return nil
	}
	names := []string{"localhost", "127.0.0.1", "::1"}
	if ok && !tcp.IP.IsUnspecified() {
		names = append(names, tcp.IP.String())
	}
	if host := hostOf(s.cfg.Listen); host != "" {
		names = append(names, host)
	}
	return append(names, s.cfg.Hosts...)
}

// bounded is a listener that accepts a limited number of connections at the same time; further
// connections wait in the kernel. A single address gets three quarters of the connections at most.
// A further connection from this address is answered with 429 and closed, so that clients from
// other addresses can connect.
type bounded struct {
	net.Listener
	room   chan struct{}
	closed chan struct{}
	once   sync.Once
	share  int
	tls    bool

	mu   sync.Mutex
	from map[netip.Addr]int
}

func newBounded(l net.Listener, most int, tls bool) *bounded {
	return &bounded{
		Listener: l, room: make(chan struct{}, most), closed: make(chan struct{}),
		share: most - most/4, tls: tls, from: make(map[netip.Addr]int),
	}
}

// Accept waits until the number of connections is below the limit, and then for a connection.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.room <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			<-b.room
			return nil, err
		}
		at := origin(c)
		if b.take(at) {
			return &counted{Conn: c, leave: sync.OnceFunc(func() {
				b.give(at)
				<-b.room
			})}, nil
		}
		b.turnAway(c)
	}
}

// origin returns the address from which a connection comes. For IPv6 it returns the /64 network,
// because one machine may use any number of addresses in it.
func origin(c net.Conn) netip.Addr {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if p, err := ip.Prefix(64); err == nil && ip.Is6() && !ip.IsLoopback() {
		return p.Addr()
	}
	return ip
}

func (b *bounded) take(at netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.from[at] >= b.share {
		return false
	}
	b.from[at]++
	return true
}

func (b *bounded) give(at netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.from[at]--; b.from[at] == 0 {
		delete(b.from, at)
	}
}

const tooMany = `{"type":"urn:belay:error:rate_limited","title":"Too Many Requests","status":429,"detail":"too many connections from one address","code":"rate_limited"}` + "\n"

// turnAway closes a connection that exceeds the share of its address. Without TLS it first sends an
// answer with status 429.
func (b *bounded) turnAway(c net.Conn) {
	if !b.tls {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // the answer fits into the kernel's buffer
		_, _ = fmt.Fprintf(c, "HTTP/1.1 429 Too Many Requests\r\nContent-Type: "+
			"application/problem+json\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
			len(tooMany), tooMany)
	}
	_ = c.Close()
}

// Close also ends an Accept that waits because of the limit.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

// counted is a connection of a bounded listener. When it is closed, the listener may accept another
// connection.
type counted struct {
	net.Conn
	leave func()
}

// Close closes the connection, so that the listener may accept another connection.
func (c *counted) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

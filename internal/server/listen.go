package server

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/belaydev/belay"
)

// listen takes the address, and reports whether nobody needs a key there. An
// address that others can reach is refused while everybody could do everything. With a
// demand every caller needs a key, also while there is none.
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
		s.log.Warn(demand)
	}
	var config net.ListenConfig
	inner, err := config.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return nil, false, &belay.Error{
			Code: belay.CodeConflict, Op: op, Message: "the address cannot be had; name another with --listen", Err: err,
		}
	}
	return newBounded(inner, s.cfg.Limits.Connections), open, nil
}

func (s *Server) refusal() string {
	return "others can reach this address, and there is no key yet; make one with\n\n  " + s.keysCreate("NAME", "read,submit,worker") +
		"\n\nor listen on loopback, or say with --insecure-no-auth that whoever reaches the address may do everything"
}

func hostOf(listen string) string {
	host, _, _ := net.SplitHostPort(listen) // checked by config
	return host
}

// url is what to call the server by.
func (s *Server) url(addr net.Addr) string {
	scheme := "http://"
	if s.cfg.TLS() {
		scheme = "https://"
	}
	return scheme + addr.String()
}

// hosts are the names under which the server answers; none for any.
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

// bounded is a listener with so many connections at the same time; others wait
// in the kernel.
type bounded struct {
	net.Listener
	room   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newBounded(l net.Listener, most int) *bounded {
	return &bounded{Listener: l, room: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept waits for room, and then for a connection.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.room <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.room
		return nil, err
	}
	return &counted{Conn: c, leave: sync.OnceFunc(func() { <-b.room })}, nil
}

// Close also ends an Accept that waits for room.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

// counted is a connection that makes room when it is closed.
type counted struct {
	net.Conn
	leave func()
}

// Close closes the connection and makes room for another.
func (c *counted) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

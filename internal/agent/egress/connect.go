package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/belaydev/belay/internal/reach"
)

// connect connects to an allowed target, at an address that the policy permits for that target.
func (s *Server) connect(ctx context.Context, t reach.Target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Connect)
	defer cancel()
	unhook := context.AfterFunc(s.life, cancel)
	defer unhook()
	d := reach.Dialer{Policy: s.Policy, Resolve: s.Resolve, Dial: s.dial, Closed: s.isOwn}
	return d.Connect(ctx, t)
}

// dial connects to an address, and tracks the connection so that the server can close it.
func (s *Server) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dial := s.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	c, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d := &dialled{Conn: c, server: s}
	if !s.track(d) {
		return nil, errors.Join(errOver, c.Close())
	}
	return d, nil
}

// isOwn reports whether an address belongs to the proxy itself or to Belay.
func (s *Server) isOwn(at netip.AddrPort) bool {
	listener := at.Port() == s.own.Port() && (at.Addr() == s.own.Addr() || s.own.Addr().IsUnspecified())
	return listener || s.Closed != nil && s.Closed(at)
}

// dialled is a connection to a target. Server.Close and the end of the listener close it.
type dialled struct {
	net.Conn
	server *Server
}

// Close closes the connection.
func (d *dialled) Close() error {
	d.server.untrack(d)
	return d.Conn.Close()
}

// CloseWrite closes the direction to the target; the target may still send.
func (d *dialled) CloseWrite() error { return closeWrite(d.Conn) }

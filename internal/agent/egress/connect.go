package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

const (
	// mostAddresses is the maximum number of addresses that the proxy tries for one name.
	mostAddresses = 8
	// attempt is the time limit for connecting to one address, if a target has several addresses.
	attempt = 5 * time.Second
)

// errNowhere means that a name resolves to no address.
var errNowhere = errors.New("the name has no address")

// connect connects to an allowed target, at an address that the policy permits for that target. It
// resolves a name once and dials the addresses that it has checked.
func (s *Server) connect(ctx context.Context, t target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Connect)
	defer cancel()
	unhook := context.AfterFunc(s.life, cancel)
	defer unhook()
	addresses, err := s.addresses(ctx, t)
	if err != nil {
		return nil, err
	}
	for i, a := range addresses[:min(len(addresses), mostAddresses)] {
		var c net.Conn
		if c, err = s.dial(ctx, a, i < len(addresses)-1); err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return nil, err
}

func (s *Server) dial(ctx context.Context, a netip.AddrPort, others bool) (net.Conn, error) {
	if others {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attempt)
		defer cancel()
	}
	dial := s.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	c, err := dial(ctx, "tcp", a.String())
	if err != nil {
		return nil, err
	}
	d := &dialled{Conn: c, server: s}
	if !s.track(d) {
		return nil, errors.Join(errOver, c.Close())
	}
	return d, nil
}

// addresses returns the addresses of a target that the policy permits the proxy to dial. If there
// is none, the error says why the first address is refused.
func (s *Server) addresses(ctx context.Context, t target) (good []netip.AddrPort, err error) {
	all := []netip.Addr{t.addr}
	if t.name != "" {
		if all, err = s.resolve(ctx, t); err != nil {
			return nil, err
		}
	}
	for _, addr := range all {
		addr = addr.Unmap().WithZone("")
		at := netip.AddrPortFrom(addr, uint16(t.port))
		switch {
		case s.isOwn(at):
			err = errors.Join(err, errOwn)
		case s.Policy.admits(t, addr):
			good = append(good, at)
		default:
			err = errors.Join(err, errKind(kindOf(addr)))
		}
	}
	switch {
	case len(good) > 0:
		return good, nil
	case err == nil:
		return nil, errNowhere
	}
	return nil, firstOf(err)
}

// isOwn reports whether an address belongs to the proxy itself or to Belay.
func (s *Server) isOwn(at netip.AddrPort) bool {
	listener := at.Port() == s.own.Port() && (at.Addr() == s.own.Addr() || s.own.Addr().IsUnspecified())
	return listener || s.Closed != nil && s.Closed(at)
}

// firstOf returns the first of several joined errors.
func firstOf(err error) error {
	for {
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok || len(joined.Unwrap()) == 0 {
			return err
		}
		err = joined.Unwrap()[0]
	}
}

// resolve resolves a name. If only a wildcard allows the name, resolve treats it as fully
// qualified, because this machine's search list could otherwise turn the name into a name of
// another domain. A name that the operator has listed exactly is resolved with the search list.
func (s *Server) resolve(ctx context.Context, t target) ([]netip.Addr, error) {
	name := t.name
	if !s.Policy.exact(t) {
		name += "."
	}
	if s.Resolve != nil {
		return s.Resolve(ctx, name)
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
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

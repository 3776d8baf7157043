package reach

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

const (
	// mostAddresses is the maximum number of addresses that a Dialer tries for one name.
	mostAddresses = 8
	// attempt is the time limit for connecting to one address, if a target has several addresses.
	attempt = 5 * time.Second
)

// A Dialer connects to the targets that a policy lists, at addresses that the policy permits.
type Dialer struct {
	Policy *Policy
	// Resolve returns the addresses of a name; nil means this machine's resolver.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Dial connects to an IP address and port that the Dialer has checked; nil means a net.Dialer.
	// Dial must not resolve names.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Closed, if set, returns true for addresses that no policy may allow: the addresses of Belay
	// itself.
	Closed func(address netip.AddrPort) bool
}

// Errors of Connect. Their texts complete the sentence "TARGET is refused: …".
var (
	// ErrUnlisted means that no pattern lists the target.
	ErrUnlisted = errors.New("it is not listed there")
	// ErrOwn means that the target is at an address for which Dialer.Closed returned true.
	ErrOwn = errors.New("it is an address of Belay itself, which no list can allow")
	// ErrNowhere means that the name of the target resolves to no address.
	ErrNowhere = errors.New("the name has no address")
)

// AddressError means that a target leads to an address of a kind that the policy does not permit
// for the target. Its text names the kind and not the address, because the addresses of the
// operator's network are not for callers to know.
type AddressError struct {
	kind kind
}

// Error completes the sentence "TARGET is refused: …".
func (e *AddressError) Error() string {
	text := "the name resolves to " + string(e.kind)
	if e.kind == private {
		return text + ", which a wildcard does not allow: list the whole name"
	}
	return text + ", which is only allowed if the address is listed"
}

// Denied reports whether err means that the policy refuses the target, and not that the connection
// failed.
func Denied(err error) bool {
	var a *AddressError
	return errors.As(err, &a) || errors.Is(err, ErrOwn) || errors.Is(err, ErrUnlisted)
}

// Connect connects to a target. It resolves a name once and dials the addresses that it has
// checked, so that a name server cannot give one answer to the check and another to the dialer.
func (d *Dialer) Connect(ctx context.Context, t Target) (net.Conn, error) {
	if !d.Policy.Lists(t) {
		return nil, ErrUnlisted
	}
	addresses, err := d.addresses(ctx, t)
	if err != nil {
		return nil, err
	}
	for i, a := range addresses[:min(len(addresses), mostAddresses)] {
		var c net.Conn
		if c, err = d.dial(ctx, a, i < len(addresses)-1); err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return nil, err
}

func (d *Dialer) dial(ctx context.Context, a netip.AddrPort, others bool) (net.Conn, error) {
	if others {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attempt)
		defer cancel()
	}
	if d.Dial != nil {
		return d.Dial(ctx, "tcp", a.String())
	}
	return new(net.Dialer).DialContext(ctx, "tcp", a.String())
}

// addresses returns the addresses of a target that the policy permits to dial. If there is none, the
// error says why the first address is refused.
func (d *Dialer) addresses(ctx context.Context, t Target) (good []netip.AddrPort, err error) {
	all := []netip.Addr{t.addr}
	if t.name != "" {
		if all, err = d.resolve(ctx, t); err != nil {
			return nil, err
		}
	}
	var refused error
	for _, addr := range all {
		addr = addr.Unmap().WithZone("")
		at := netip.AddrPortFrom(addr, uint16(t.port))
		var why error
		switch {
		case d.Closed != nil && d.Closed(at):
			why = ErrOwn
		case d.Policy.admits(t, addr):
			good = append(good, at)
		default:
			why = &AddressError{kindOf(addr)}
		}
		if refused == nil {
			refused = why
		}
	}
	switch {
	case len(good) > 0:
		return good, nil
	case refused == nil:
		return nil, ErrNowhere
	}
	return nil, refused
}

// resolve resolves a name. If only a wildcard or the word public allows the name, resolve treats it
// as fully qualified, because this machine's search list could otherwise turn the name into a name
// of another domain. A name that the operator has listed exactly is resolved with the search list.
func (d *Dialer) resolve(ctx context.Context, t Target) ([]netip.Addr, error) {
	name := t.name
	if !d.Policy.exact(t) {
		name += "."
	}
	if d.Resolve != nil {
		return d.Resolve(ctx, name)
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

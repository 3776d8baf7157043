package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Rules limit the addresses that a server probes.
type Rules struct {
	// Allow are the networks in which a server also probes an address that differs from the address
	// from which the worker connects.
	Allow []netip.Prefix
}

// leastPort is the lowest port that a server probes. Lower ports belong to services of the system.
const leastPort = 1024

// Target returns the address to probe for a worker, or an error that says why the server does not
// probe the worker. health is the address that the worker asked the server to probe. from is the
// address from which the worker connects; it is the zero Addr if a proxy passes the worker's
// requests on, because the server does not know the address then.
func (r *Rules) Target(health string, from netip.Addr) (netip.AddrPort, error) {
	from = from.Unmap()
	text, implied := health, strings.HasPrefix(health, ":")
	if implied {
		if !from.IsValid() {
			return netip.AddrPort{}, fmt.Errorf("it connects through a proxy, so the server does not know its "+
				"address: write the worker's own address, IP%s, and add it to health_check_allow", health)
		}
		text = netip.AddrPortFrom(from, 0).String()
		text = strings.TrimSuffix(text, ":0") + health
	}
	to, err := netip.ParseAddrPort(text)
	if err != nil || to.Addr().Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("%q is not IP:PORT or :PORT", health)
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	ip := to.Addr()
	switch {
	case to.Port() < leastPort:
		return netip.AddrPort{}, fmt.Errorf("port %d is below %d", to.Port(), leastPort)
	case ip.IsUnspecified(), ip.IsMulticast(), ip.IsLinkLocalUnicast(), ip == broadcast:
		return netip.AddrPort{}, fmt.Errorf("%s is not the address of one machine in a network", ip)
	case implied, from.IsValid() && (ip == from || ip.IsLoopback() && from.IsLoopback()), r.allows(ip):
		return to, nil
	case !from.IsValid():
		return netip.AddrPort{}, fmt.Errorf("it connects through a proxy, and health_check_allow does not contain %s",
			ip)
	}
	return netip.AddrPort{}, fmt.Errorf("it connects from %s, and health_check_allow does not contain %s", from, ip)
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// allows reports whether the configuration allows the address. A network that is not itself within
// the loopback network does not allow loopback addresses: 0.0.0.0/0 must not open the services on the
// server's own machine to workers on other machines.
func (r *Rules) allows(ip netip.Addr) bool {
	return slices.ContainsFunc(r.Allow, func(p netip.Prefix) bool {
		return p.Contains(ip) && (!ip.IsLoopback() || p.Addr().IsLoopback())
	})
}

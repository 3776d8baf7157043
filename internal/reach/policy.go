package reach

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Policy is a set of hosts that a program may reach. [Parse] makes a Policy; the zero Policy and a
// nil Policy allow no host. A Policy does not change, and is safe for concurrent use.
type Policy struct {
	rules []rule
}

// rule is one pattern of the list.
type rule struct {
	name   string       // name of the host, or of the domain of a wildcard
	below  bool         // the rule is a wildcard: it matches the names below name, without name itself
	public bool         // the rule matches every name, and every public address
	prefix netip.Prefix // range of addresses; for a rule without a name
	ports  []int
}

// defaultPorts are the ports of a pattern that names no port.
var defaultPorts = []int{443, 80}

// None reports whether the policy allows no host, so that the program needs no network.
func (p *Policy) None() bool { return p == nil || len(p.rules) == 0 }

// Allows reports whether the program may request this host (a name, or an IP address without brackets) at
// this port. It does not resolve the name: an allowed name may still resolve to an address that is
// refused; see the package documentation.
func (p *Policy) Allows(host string, port int) bool {
	t, err := NewTarget(host, port)
	return err == nil && p.Lists(t)
}

// Lists reports whether a pattern lists the target: Allows, for a target.
func (p *Policy) Lists(t Target) bool {
	if p == nil {
		return false
	}
	if t.name == "" {
		return p.opens(t.addr, t.port)
	}
	return slices.ContainsFunc(p.rules, func(r rule) bool { return r.named(t) })
}

// exact reports whether a pattern lists the whole name of the target. A wildcard that matches the
// name does not count.
func (p *Policy) exact(t Target) bool {
	return slices.ContainsFunc(p.rules, func(r rule) bool { return !r.below && !r.public && r.named(t) })
}

// opens reports whether a pattern lists this address itself, or a range that contains it, and not
// only a name.
func (p *Policy) opens(addr netip.Addr, port int) bool {
	return slices.ContainsFunc(p.rules, func(r rule) bool {
		return r.name == "" && slices.Contains(r.ports, port) && r.holds(addr)
	})
}

// admits reports whether the program may reach the listed target t at the address addr, to which the
// name of t resolves.
func (p *Policy) admits(t Target, addr netip.Addr) bool {
	switch kindOf(addr) {
	case public:
		return t.name != "" || p.opens(addr, t.port)
	case private:
		return t.name != "" && p.exact(t) || p.opens(addr, t.port)
	default:
		return p.opens(addr, t.port)
	}
}

// ownNames are the names that programs use for their own machine.
var ownNames = []string{"localhost", "127.0.0.1", "::1", "[::1]"}

// Direct lists the names of a job's own machine, to which programs in the job connect without the
// proxy. It omits an address that the policy lists, because that address then means the host
// outside the job's network.
func (p *Policy) Direct() []string {
	return slices.DeleteFunc(slices.Clone(ownNames), func(name string) bool {
		addr, err := netip.ParseAddr(strings.Trim(name, "[]"))
		return err == nil && p != nil && slices.ContainsFunc(p.rules, func(r rule) bool {
			return r.name == "" && r.holds(addr)
		})
	})
}

// named reports whether a rule allows the name of a target.
func (r rule) named(t Target) bool {
	if r.public {
		return t.name != "" && !isLocalhost(t.name) && slices.Contains(r.ports, t.port)
	}
	if r.name == "" || !slices.Contains(r.ports, t.port) {
		return false
	}
	if r.below {
		return strings.HasSuffix(t.name, "."+r.name)
	}
	return t.name == r.name
}

// holds reports whether the range of a rule allows an address. If the address is not public, all
// addresses of the range must be of the same kind as that address, so that a large range does not
// allow such an address by accident.
func (r rule) holds(addr netip.Addr) bool {
	k := kindOf(addr)
	if r.public {
		return k == public
	}
	if !r.prefix.Contains(addr) {
		return false
	}
	return k == public || kindOf(r.prefix.Addr()) == k && kindOf(last(r.prefix)) == k
}

// String returns the pattern in canonical form.
func (r rule) String() string {
	host := r.name
	switch {
	case r.public:
		host = publicHosts
	case r.below:
		host = "*." + r.name
	case r.name == "" && r.prefix.IsSingleIP():
		host = r.prefix.Addr().String()
	case r.name == "":
		host = r.prefix.String()
	}
	if r.name == "" && !r.public && r.prefix.Addr().Is6() {
		host = "[" + host + "]"
	}
	if slices.Equal(r.ports, defaultPorts) {
		return host
	}
	return host + ":" + strconv.Itoa(r.ports[0])
}

// String returns the patterns, separated by commas; Parse makes the same policy from this text.
func (p *Policy) String() string {
	if p.None() {
		return noHosts
	}
	all := make([]string, len(p.rules))
	for i, r := range p.rules {
		all[i] = r.String()
	}
	return strings.Join(all, ",")
}

package reach

import "net/netip"

// kind is the kind of an IP address; its text completes the sentence "it resolves to …".
type kind string

const (
	public      kind = "a public address"
	private     kind = "a private address"
	loopback    kind = "a loopback address"
	linkLocal   kind = "a link-local address"
	unspecified kind = "an unspecified address"
	multicast   kind = "a multicast address"
	metadata    kind = "an address at which a cloud hands out credentials"
	reserved    kind = "a reserved address"
)

// ranges lists ranges of addresses with their kinds. A small range stands before a larger range
// that contains it, because the first range that contains an address gives the kind of the address.
// The ranges follow the IANA registries of special-purpose addresses. IPv6 addresses are public
// only in 2000::/3.
var ranges = table(
	// The metadata services of AWS, ECS, EKS, Azure, Alibaba, Oracle and Google.
	metadata, "169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "168.63.129.16/32", "100.100.100.200/32",
	"192.0.0.192/32",
	metadata, "fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128",
	unspecified, "0.0.0.0/8", "::/128",
	loopback, "127.0.0.0/8", "::1/128",
	linkLocal, "169.254.0.0/16", "fe80::/10",
	multicast, "224.0.0.0/4", "ff00::/8",
	private, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7",
	reserved, "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"240.0.0.0/4",
	// Teredo and 6to4 addresses contain an IPv4 address. They are reserved here, because the kind of
	// that IPv4 address is not checked.
	reserved, "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	public, "2000::/3", "0.0.0.0/0",
	reserved, "::/0",
)

type ranged struct {
	prefix netip.Prefix
	kind   kind
}

// table builds the ranges from rows, in which each kind is followed by the ranges of that kind.
func table(rows ...any) (all []ranged) {
	var current kind
	for _, row := range rows {
		switch row := row.(type) {
		case kind:
			current = row
		case string:
			all = append(all, ranged{netip.MustParsePrefix(row), current})
		}
	}
	return all
}

// nat64 is the prefix of IPv6 addresses that stand for IPv4 addresses in a network without IPv4.
// The last 32 bits are the IPv4 address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func kindOf(addr netip.Addr) kind {
	addr = addr.Unmap()
	if nat64.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	for _, r := range ranges {
		if r.prefix.Contains(addr) {
			return r.kind
		}
	}
	return reserved
}

// last returns the last address of a range.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

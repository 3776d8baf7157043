// Package reach decides which hosts and addresses a program may reach over the network, and
// connects to these only. It is the only place in Belay that knows which addresses are private.
//
// # The policy
//
// [Parse] reads a list of patterns, one for each host that the program may reach:
//
//	api.anthropic.com          this name, ports 443 and 80
//	git.example.org:443        this name, this port
//	*.githubusercontent.com    every name below this one, at any depth, and not the name itself
//	127.0.0.1:11434            an address; IPv6 addresses are in brackets
//	10.20.0.0/16:5432          every address of a range
//	public                     every name and address of the public internet, ports 443 and 80
//	public:8443                the same at this port
//	none                       nothing at all
//
// Names are compared as in DNS: case and a dot at the end make no difference. Names that are not
// ASCII, addresses in unusual notation (127.1, 0x7f000001, 010.0.0.1) and addresses with a zone are
// refused, in patterns and in requests, because two programs may interpret such a text differently.
//
// # Names and addresses
//
// A [Dialer] resolves names itself, but only listed names, and connects to the address that it has
// checked. A listed name does not allow every address to which it may resolve:
//
//	public address             any listed name
//	private address            a name that is listed exactly. A wildcard or the word public is not
//	(10/8, 172.16/12,          enough, because the owner of a domain, or a person who may add names
//	192.168/16, 100.64/10,     to it, could make a name resolve to the operator's own network. A
//	fc00::/7)                  host in that network, such as a git server at 10.1.2.3, is listed by
//	                           its whole name
//	all others: loopback,      no name. The address itself must be listed, or a range all of
//	link-local, unspecified,   whose addresses are of that kind; the addresses at which clouds
//	multicast, reserved,       hand out credentials (169.254.169.254 and others) must be
//	metadata of a cloud        listed one by one
//
// An IPv6 address that contains an IPv4 address (::ffff:10.0.0.1, 64:ff9b::10.0.0.1) has the kind of
// that IPv4 address, or is reserved (6to4, Teredo). A request for an address instead of a name needs
// a pattern with that address, or with a range that contains it, or the word public.
package reach

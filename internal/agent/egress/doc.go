// Package egress is the only connection of a job with a closed network to other hosts: a forward
// proxy that connects only to the hosts that the operator has listed.
//
// # The policy
//
// [Parse] reads a list of patterns, one for each host that jobs may reach:
//
//	api.anthropic.com          this name, ports 443 and 80
//	git.example.org:443        this name, this port
//	*.githubusercontent.com    every name below this one, at any depth, and not the name itself
//	127.0.0.1:11434            an address; IPv6 addresses are in brackets
//	10.20.0.0/16:5432          every address of a range
//	none                       nothing at all
//
// Names are compared as in DNS: case and a dot at the end make no difference. Names that are not
// ASCII, addresses in unusual notation (127.1, 0x7f000001, 010.0.0.1) and addresses with a zone are
// refused, in patterns and in requests, because two programs may interpret such a text differently.
//
// # Names and addresses
//
// The proxy itself resolves names, but only listed names, and connects to the address that it has
// checked. A listed name does not allow every address to which it may resolve:
//
//	public address             any listed name
//	private address            a name that is listed exactly. A wildcard is not enough, because the
//	(10/8, 172.16/12,          owner of a domain, or a person who may add names to it, could make a
//	192.168/16, 100.64/10,     name resolve to the operator's own network. A host in that network,
//	fc00::/7)                  such as a git server at 10.1.2.3, is listed by its whole name
//	all others: loopback,      no name. The address itself must be listed, or a range all of
//	link-local, unspecified,   whose addresses are of that kind; the addresses at which clouds
//	multicast, reserved,       hand out credentials (169.254.169.254 and others) must be
//	metadata of a cloud        listed one by one
//
// A request for an address instead of a name needs a pattern with that address or with a range
// that contains it.
//
// # The server
//
// [Server] speaks HTTP/1.1: CONNECT, and requests whose target is a whole http URL. net/http parses
// requests and writes new ones, and httputil.ReverseProxy removes headers that are meant for one
// connection only, so that a client cannot hide a second request in the bytes of the first. The
// Host of a forwarded request is the host of its target, and each request gets a new connection to
// its server. A refused request ends the job's connection: the proxy reads no bytes after it.
//
// # Limits of the proxy
//
// The proxy does not read the contents of a tunnel. If several sites share a server, a job that may
// reach one site can request another site inside the encrypted connection. A job can also send data
// to the name servers of a wildcard's domain, in the names that it requests. And a job can send any
// data to an allowed host.
package egress

// Package egress is the one way out of a job whose network is closed: a forward
// proxy that connects to what the operator has listed, and to nothing else.
//
// # The policy
//
// [Parse] reads a list of patterns, one for each place that jobs may reach:
//
//	api.anthropic.com          this name, ports 443 and 80
//	git.example.org:443        this name, this port
//	*.githubusercontent.com    every name below this one, at any depth, and not the name itself
//	127.0.0.1:11434            an address; IPv6 addresses stand in brackets
//	10.20.0.0/16:5432          every address of a range
//	none                       nothing at all
//
// Names are compared as DNS does: without case, without the dot at the end. Names
// that are not ASCII, addresses in unusual notation (127.1, 0x7f000001, 010.0.0.1) and
// addresses with a zone are refused, in patterns and in requests: two programs may
// read such a text differently.
//
// # Names and addresses
//
// The proxy resolves names itself, only those that are listed, and connects to the
// very address that it has checked. A name that is listed does not open every
// address to which it may resolve:
//
//	public address             any name that is listed
//	private address            a name that is listed exactly; no wildcard, because the owner of a
//	(10/8, 172.16/12,          domain, or whoever may add names to it, could point one at the
//	192.168/16, 100.64/10,     operator's own network. A host within that network, such as a git
//	fc00::/7)                  server at 10.1.2.3, is listed by its whole name
//	all others: loopback,      no name. The address itself has to be listed, or a range all of
//	link-local, unspecified,   whose addresses are of that kind; the addresses at which clouds
//	multicast, reserved,       hand out credentials (169.254.169.254 and others) have to be
//	metadata of a cloud        listed one by one
//
// A request that names an address instead of a host needs a pattern with that
// address or a range.
//
// # The server
//
// [Server] speaks HTTP/1.1: CONNECT, and requests whose target is a whole http
// address. net/http reads requests and writes them anew, and httputil.ReverseProxy
// takes out what belongs to one connection only, so that nothing of the client's own
// framing reaches another server. The Host of a request is that of its target, and each
// request has a connection of its own there. A refused request ends the job's
// connection: nothing that was sent after it is read.
//
// # Beyond its reach
//
// The proxy does not look into a tunnel. If several sites share a server, a job that may
// reach one of them may ask for another inside of the encrypted connection. A job
// may also tell the name servers of a wildcard's domain something by the names that
// it asks for. And whatever may be sent to an allowed host may be sent there.
package egress

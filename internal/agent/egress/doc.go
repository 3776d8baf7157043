// Package egress is the only connection of a job with a closed network to other hosts: a forward
// proxy that connects only to the hosts that the operator has listed. Package reach describes the
// list, and checks the addresses.
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

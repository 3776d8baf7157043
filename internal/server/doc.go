// Package server listens: it serves the HTTP API, the pages and the metrics of
// an engine to whoever can reach a port, and stops in order.
//
// # Who may reach it
//
// On a loopback address it answers only under names of this machine, so that no
// web page can point a name of its own at it. On any other address it does not
// start without keys, unless it was told that this is meant.
//
// Where jobs run on this machine, a caller without a key must be shown by the kernel to
// be none of them, by the user and the process of the connection. Where that cannot be
// told, and where jobs run on other machines, every caller needs a key, on loopback too.
//
// # What one client can cost
//
// Connections, requests on one connection, headers and the time that each part of
// a request may take are bounded. An answer has no time of its own, since a long
// poll takes a minute and a stream of events has no end; package httpapi bounds
// each write instead.
//
// # Stopping
//
// When the context of Run ends, /readyz says so and what waits is answered, so
// that clients go on elsewhere; requests in flight and the services beside the
// server finish; then Run returns nil. What takes longer than the grace is cut
// off. When the other context ends, everything is cut off at once.
//
// A store that can keep nothing any more ends Run with an error at once: nothing
// more may be answered, and whether the last writes are there is known only to
// the next process.
package server

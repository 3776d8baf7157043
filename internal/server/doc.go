// Package server listens on a port: it serves the HTTP API, the web UI and the metrics of an
// engine, and shuts down gracefully.
//
// # Access
//
// On a loopback address the server answers only under names of this machine, so that no web page
// can reach it under a name of the page's own. On any other address the server does not start
// without API keys, unless the configuration sets insecure_no_auth.
//
// Where jobs run on this machine, a caller without a key is answered only if the kernel shows, by
// the user and the process of the connection, that the caller is no job. Where the kernel cannot
// show that, and where jobs run on other machines, every caller needs a key, on loopback too.
//
// # Limits for one client
//
// Connections, requests on one connection, headers and the time for each part of a request are
// bounded. The time for an answer is not, since a long poll takes a minute and a stream of events
// has no end; package httpapi bounds each write instead.
//
// # Stopping
//
// When the context of Run ends, a graceful shutdown begins: /readyz reports it, long polls are
// answered early and streams end, so that clients go on with other servers; requests in flight and
// the services beside the server finish; then Run returns nil. Requests and services that take
// longer than the grace are cut off. When the context atOnce ends, everything is cut off at once.
//
// When the store fails for good, Run returns an error at once: the server must not answer any
// more, since only the next process can find out whether the last writes are on the disk.
package server

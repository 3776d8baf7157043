// Package server listens on a port: it serves the HTTP API, the web UI and the metrics of an
// engine, and shuts down gracefully.
//
// # Access
//
// On a loopback address the server answers only requests for host names of this machine, so that a
// web page cannot reach it under a host name of the page's own site. On any other address the
// server does not start without API keys, unless the configuration sets insecure_no_auth.
//
// If jobs run on this machine, the server answers a caller without a key only if the kernel shows,
// by the user and the process of the connection, that the caller does not belong to a job. If the
// kernel cannot show that, or if jobs run on other machines, every caller needs a key, also on
// loopback.
//
// # Limits for one client
//
// The server bounds the connections of a client, the requests on one connection, the size of
// headers, and the time for each part of a request. It does not bound the time for an answer,
// because a long poll takes a minute and a stream of events has no end; package httpapi bounds each
// write instead.
//
// # Stopping
//
// When the context of Run ends, a graceful shutdown begins. /readyz reports the shutdown. Long
// polls are answered early and streams end, so that clients continue with other servers. Run waits
// until the requests in flight and the services beside the server have finished, and returns nil.
// Requests and services that take longer than the grace period are cut off. When the context atOnce
// ends, all requests and services are cut off at once.
//
// When the store fails for good, Run returns an error at once. The server must answer nothing more,
// because only the next process can find out whether the last writes are on the disk.
package server

// Package httpapi is the JSON API of Belay on any Backend.
//
// # What is promised
//
// Every answer that is no success is a problem (RFC 9457). It has a stable code, and the status
// that package belay assigns to the code. Problems with the status 409, 423, 429 or 503 say in
// Retry-After when to repeat the request. An error inside the server is logged, and its answer has
// the code "internal" and no details. The server refuses a bad request early, at little cost: a
// request with another host's name, an unknown key or an unknown field, or with a body that is not
// JSON, is nested too deep or is too large.
//
// A write is safe to repeat under its Idempotency-Key. A read that waits (a history with wait,
// Prefer: wait, a claim) blocks no thread and ends early when the server stops. A stream of events
// has every seq once and in order, and a client may continue it after any seq.
//
// # What its http.Server must set
//
// ReadHeaderTimeout, IdleTimeout and MaxHeaderBytes protect the server from clients that are slow
// before their request reaches this package. ReadTimeout and WriteTimeout must be zero: this
// package sets the deadlines of bodies and answers itself (Options.BodyTimeout,
// Options.WriteTimeout), because a long poll may take a minute and a stream of events has no end.
// HTTP/2 and HTTP/1.1 both work. Handlers end when Options.Stopping is closed, so that a graceful
// Shutdown needs no more than WriteTimeout.
package httpapi

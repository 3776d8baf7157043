// Package httpapi is the JSON API of Belay on any Backend.
//
// # What is promised
//
// Every answer that is no success is a problem (RFC 9457) with a stable code and
// the status of the one table in package belay; those with 409, 423, 429 and 503
// say in Retry-After when to ask again. What goes wrong inside is logged and
// answered with "internal" and nothing more. A request is refused before it costs
// anything: a name or host that is not ours, a key that is none, a body that is
// no JSON, is too deep or too large, a field nobody knows.
//
// A write is safe to repeat under its Idempotency-Key. A read that waits (a
// history with wait, Prefer: wait, a claim) holds no thread and ends early when
// the server stops. A stream of events shows every seq once and in order, and goes
// on from any.
//
// # What its http.Server must set
//
// ReadHeaderTimeout, IdleTimeout and MaxHeaderBytes, against clients that are slow
// before a request is one. ReadTimeout and WriteTimeout must be zero: this package
// sets the deadlines of bodies and answers itself (Options.BodyTimeout,
// Options.WriteTimeout), because a long poll may take a minute and a stream of
// events has no end. HTTP/2 and HTTP/1.1 both work. Handlers end when
// Options.Stopping is closed, so that a graceful Shutdown needs no more than
// WriteTimeout.
package httpapi

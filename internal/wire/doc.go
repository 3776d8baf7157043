// Package wire holds the bodies of the HTTP API as Go types: what package client
// writes and package httpapi reads, and the other way round.
//
// Where a noun of package belay is fit to be read by programs it is sent as it
// is. What stands here differs from its noun: durations are integers of
// milliseconds (…_ms), secrets are sent instead of hidden, errors are problems
// (RFC 9457). Tags doc, enum, maxLength and the like describe a field to whoever
// reads the OpenAPI document.
package wire

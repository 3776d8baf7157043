// Package wire has the bodies of the HTTP API as Go types. Package client writes the requests and
// reads the answers, and package httpapi reads the requests and writes the answers.
//
// A type of package belay whose JSON suits programs is sent unchanged. For other types of package
// belay this package has a type of its own, in which durations are integers of milliseconds (…_ms),
// secrets are sent instead of hidden, and errors are problems (RFC 9457). The tags doc, enum,
// maxLength and the like describe a field for readers of the OpenAPI document.
package wire

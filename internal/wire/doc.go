// Package wire has the bodies of the HTTP API as Go types. Package client writes the requests and
// reads the answers, and package httpapi reads the requests and writes the answers.
//
// A type of package belay is sent as it is if its JSON is fit for programs. A type of this package
// differs from the type of package belay that it stands for: durations are integers of milliseconds
// (…_ms), secrets are sent instead of hidden, errors are problems (RFC 9457). The tags doc, enum,
// maxLength and the like describe a field for readers of the OpenAPI document.
package wire

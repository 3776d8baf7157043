package httpapi

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// maxRequestID is the most bytes of a request id that a caller chooses.
const maxRequestID = 64

// requestID is the id of a request: the id that the caller has sent, if it is one short word, or
// else a new id. Logs and problems repeat it, so it must not contain text that could look like
// another field.
func requestID(r *http.Request) string {
	if said := r.Header[http.CanonicalHeaderKey(wire.HeaderRequest)]; len(said) == 1 && isWord(said[0]) {
		return said[0]
	}
	var id belay.OpID
	_, _ = rand.Read(id[:]) // never fails
	return id.String()
}

// isWord reports whether s consists of ASCII letters, digits, dots, hyphens and underscores, at
// most maxRequestID of them.
func isWord(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return s != "" && len(s) <= maxRequestID
}

// RequestID is the id of the request that a handler answers.
func RequestID(ctx context.Context) string {
	if in, ok := ctx.Value(admittedKey{}).(*admitted); ok {
		return in.id
	}
	return ""
}

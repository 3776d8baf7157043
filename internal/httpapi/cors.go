package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/belaydev/belay/internal/wire"
)

// The headers that a page of a listed origin may send and read. No answer has
// Access-Control-Allow-Credentials: a page must send its key itself, and a password that the
// browser remembers does not give the page access.
var (
	allowedHeaders = strings.Join([]string{
		"Accept", "Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID",
		"Lease-Id", "Lease-Token", "Prefer", "traceparent", "tracestate", wire.HeaderOnly, wire.HeaderRequest,
	}, ", ")
	exposedHeaders = strings.Join([]string{
		wire.HeaderWarning,
		"ETag", "Idempotency-Replayed", "Lease-Id", "Lease-Token", "Location", "Preference-Applied", "RateLimit-Limit",
		"RateLimit-Remaining", "RateLimit-Reset", "Retry-After", "WWW-Authenticate", "X-Execution-Id",
		wire.HeaderRequest, "X-Should-Retry",
	}, ", ")
	allowedMethods = strings.Join([]string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete,
	}, ", ")
)

// cors lets a page of a listed origin read the answer, and reports whether the request is a
// preflight, by which the browser asks whether the page may send another request.
func (g *gate) cors(h http.Header, r *http.Request) (preflight bool) {
	origin := r.Header["Origin"]
	if len(origin) != 1 || !slices.Contains(g.origins, origin[0]) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin[0])
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		h.Set("Access-Control-Expose-Headers", exposedHeaders)
		return false
	}
	h.Set("Access-Control-Allow-Methods", allowedMethods)
	h.Set("Access-Control-Allow-Headers", allowedHeaders)
	h.Set("Access-Control-Max-Age", "600")
	return true
}

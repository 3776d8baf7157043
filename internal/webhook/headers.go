package webhook

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

const (
	// maxHeaders is the largest number of headers that Headers returns.
	maxHeaders = 50
	// maxValue is the largest length of a value that Headers returns, in bytes.
	maxValue = 1 << 10
)

// secretParts lists parts of the names of headers that may have a secret or a signature.
var secretParts = []string{
	"auth", "cookie", "credential", "jwt", "key", "oidc", "passw", "secret", "session", "signature", "token",
}

// Headers returns the headers that are safe to keep and to give to expressions: all except those that may have a
// secret, which it knows by their names, and the header with the signature. Names are in lower case. The values of a
// repeated header are joined by a comma and a space. Spaces replace characters that cannot be printed, and the text is
// cut after 1 KiB. Of more than 50 headers Headers returns the first in the order of their names.
func Headers(scheme belay.WebhookScheme, h *belay.WebhookHMAC, header http.Header) map[string]string {
	values := make(map[string][]string)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		lower := strings.ToLower(name)
		signs := scheme == belay.SchemeHMAC && h != nil && strings.EqualFold(name, h.Header)
		if signs || name == "" || len(name) > maxName || !token(name) || secretName(lower) {
			continue
		}
		values[lower] = append(values[lower], header[name]...)
	}
	kept := slices.Sorted(maps.Keys(values))
	kept = kept[:min(len(kept), maxHeaders)]
	all := make(map[string]string, len(kept))
	for _, name := range kept {
		all[name] = clean(strings.Join(values[name], ", "), maxValue)
	}
	return all
}

// secretName reports whether a header, whose name is in lower case, may have a secret.
func secretName(lower string) bool {
	if lower == "idempotency-key" {
		return false
	}
	return strings.HasPrefix(lower, "proxy-") || slices.ContainsFunc(secretParts, func(part string) bool {
		return strings.Contains(lower, part)
	})
}

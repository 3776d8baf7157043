package webhook

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

const (
	// maxName is the largest length of the name of a header, in bytes.
	maxName = 100
	// maxPrefix is the largest length of WebhookHMAC.Prefix, in bytes.
	maxPrefix = 50
)

// The values of WebhookHMAC.Algorithm and WebhookHMAC.Encoding. Empty texts stand for the first of each.
const (
	algorithmSHA256, algorithmSHA512 = "sha256", "sha512"
	encodingHex, encodingBase64      = "hex", "base64"
)

// reserved lists headers that WebhookHMAC cannot name: they have another meaning, proxies change them, or they carry
// the credentials of a person.
var reserved = []string{
	"authorization", "connection", "content-encoding", "content-length", "content-type", "cookie", "expect",
	"forwarded", "host", "keep-alive", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade",
}

// Check returns CodeInvalid if there is no such scheme, or if h does not describe its signatures: h is nil for every
// scheme except SchemeHMAC.
func Check(scheme belay.WebhookScheme, h *belay.WebhookHMAC) error {
	switch scheme {
	case belay.SchemeHMAC:
		if h == nil {
			return invalid("the scheme hmac needs a description of the signature; set hmac")
		}
		return checkHMAC(h)
	case belay.SchemeStandard, belay.SchemeGitHub, belay.SchemeGitLab, belay.SchemeStripe, belay.SchemeSlack:
		if h != nil {
			return invalid("hmac describes signatures of the scheme hmac, and the scheme is %s", scheme)
		}
		return nil
	case belay.SchemeCloudEvents:
		return invalid("events of the scheme cloudevents have no signatures")
	case belay.SchemeAMQP:
		return invalid("messages of the scheme amqp have no signatures")
	}
	return invalid("there is no scheme %.40q; schemes are hmac, standard, github, gitlab, stripe, slack, "+
		"cloudevents and amqp", scheme)
}

func checkHMAC(h *belay.WebhookHMAC) error {
	if h.Header == "" {
		return invalid("hmac.header is missing; it names the header with the signature")
	}
	names := []struct{ field, name string }{
		{"header", h.Header}, {"timestamp_header", h.TimestampHeader}, {"id_header", h.IDHeader},
	}
	for i, n := range names {
		if err := checkName("hmac."+n.field, n.name); err != nil {
			return err
		}
		for _, other := range names[:i] {
			if n.name != "" && strings.EqualFold(n.name, other.name) {
				return invalid("hmac.%s and hmac.%s are the same header", other.field, n.field)
			}
		}
	}
	switch {
	case len(h.Prefix) > maxPrefix:
		return invalid("hmac.prefix has %d bytes; the limit is %d", len(h.Prefix), maxPrefix)
	case !printable(h.Prefix) || strings.HasPrefix(h.Prefix, " "):
		return invalid("hmac.prefix is printable ASCII and does not begin with a space")
	case !slices.Contains([]string{"", algorithmSHA256, algorithmSHA512}, h.Algorithm):
		return invalid("hmac.algorithm is %.40q; it can be sha256 or sha512", h.Algorithm)
	case !slices.Contains([]string{"", encodingHex, encodingBase64}, h.Encoding):
		return invalid("hmac.encoding is %.40q; it can be hex or base64", h.Encoding)
	}
	return nil
}

// checkName checks the name of a header. An empty name is right.
func checkName(field, name string) error {
	lower := strings.ToLower(name)
	switch {
	case len(name) > maxName:
		return invalid("%s has %d bytes; the limit is %d", field, len(name), maxName)
	case !token(name):
		return invalid("%s is %q, which is no name of a header", field, name)
	case slices.Contains(reserved, lower) || strings.HasPrefix(lower, "proxy-"):
		return invalid("%s cannot be %s, which has another meaning", field, name)
	}
	return nil
}

// token reports whether a text has only the characters of a token of HTTP,
// https://www.rfc-editor.org/rfc/rfc9110#name-tokens.
func token(text string) bool {
	for i := range len(text) {
		c := text[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// printable reports whether a text has only printable characters of ASCII, and spaces.
func printable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

func invalid(format string, args ...any) error {
	return &belay.Error{Code: belay.CodeInvalid, Op: "webhook", Message: fmt.Sprintf(format, args...)}
}

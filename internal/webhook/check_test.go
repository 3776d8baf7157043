package webhook

import (
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

func TestCheck(t *testing.T) {
	type H = belay.WebhookHMAC
	const hmac = belay.SchemeHMAC
	for _, c := range []struct {
		scheme belay.WebhookScheme
		h      *H
		says   string // "" if it is right
	}{
		{"standard", nil, ""}, {"github", nil, ""}, {"gitlab", nil, ""}, {"stripe", nil, ""}, {"slack", nil, ""},
		{"", nil, "there is no scheme"},
		{"GitHub", nil, `there is no scheme "GitHub"`},
		{hmac, nil, "set hmac"},
		{"github", &H{Header: "X-A"}, "the scheme is github"},
		{"slack", &H{}, "the scheme is slack"},
		{hmac, &H{Header: "X-A"}, ""},
		{hmac, &H{Header: "x-a", Prefix: "sha512=", Algorithm: "sha512", Encoding: "base64", TimestampHeader: "x-t",
			IDHeader: "Idempotency-Key"}, ""},
		{hmac, &H{Header: "X-A", Algorithm: "sha256", Encoding: "hex", Prefix: "HMAC "}, ""},
		{hmac, &H{}, "hmac.header is missing"},
		{hmac, &H{Header: "X A"}, "hmac.header is"},
		{hmac, &H{Header: "X-A:"}, "hmac.header is"},
		{hmac, &H{Header: "X-Ä"}, "hmac.header is"},
		{hmac, &H{Header: "X-A\n"}, "hmac.header is"},
		{hmac, &H{Header: strings.Repeat("x", 100)}, ""},
		{hmac, &H{Header: strings.Repeat("x", 101)}, "the limit is 100"},
		{hmac, &H{Header: "authorization"}, "another meaning"},
		{hmac, &H{Header: "Cookie"}, "another meaning"},
		{hmac, &H{Header: "HOST"}, "another meaning"},
		{hmac, &H{Header: "Proxy-Authorization"}, "another meaning"},
		{hmac, &H{Header: "X-A", TimestampHeader: "Content-Length"}, "hmac.timestamp_header cannot be"},
		{hmac, &H{Header: "X-A", TimestampHeader: "a b"}, "hmac.timestamp_header is"},
		{hmac, &H{Header: "X-A", IDHeader: "Transfer-Encoding"}, "hmac.id_header cannot be"},
		{hmac, &H{Header: "X-A", IDHeader: "é"}, "hmac.id_header is"},
		{hmac, &H{Header: "X-A", IDHeader: "x-a"}, "hmac.header and hmac.id_header are the same"},
		{hmac, &H{Header: "X-A", TimestampHeader: "x-a"}, "hmac.header and hmac.timestamp_header are the same"},
		{hmac, &H{Header: "X-A", TimestampHeader: "B", IDHeader: "b"},
			"hmac.timestamp_header and hmac.id_header are the same"},
		{hmac, &H{Header: "X-A", Prefix: strings.Repeat("p", 50)}, ""},
		{hmac, &H{Header: "X-A", Prefix: strings.Repeat("p", 51)}, "the limit is 50"},
		{hmac, &H{Header: "X-A", Prefix: "é"}, "printable ASCII"},
		{hmac, &H{Header: "X-A", Prefix: "a\t"}, "printable ASCII"},
		{hmac, &H{Header: "X-A", Prefix: " a"}, "printable ASCII"},
		{hmac, &H{Header: "X-A", Algorithm: "sha1"}, `hmac.algorithm is "sha1"`},
		{hmac, &H{Header: "X-A", Algorithm: "SHA256"}, "hmac.algorithm is"},
		{hmac, &H{Header: "X-A", Encoding: "base64url"}, `hmac.encoding is "base64url"`},
	} {
		err := Check(c.scheme, c.h)
		if c.says == "" && err == nil {
			continue
		}
		if belay.CodeOf(err) != belay.CodeInvalid || c.says == "" || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %+v: the error is %v, want %q", c.scheme, c.h, err, c.says)
		}
	}
}

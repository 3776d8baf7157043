package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// Rule: headers that may have a secret, or the signature, are left out.
func TestHeaders(t *testing.T) {
	header := http.Header{
		"Content-Type": {"application/json"}, "X-Github-Event": {"push"}, "Idempotency-Key": {"7"},
		"Accept": {"a", "b"}, "X-Empty": {""}, "X-Nothing": nil, "x-lower": {"y"}, "X-Lower": {"x"},
		"X-Odd": {" a\x00\xffb\t"}, "X-My-Sign": {"abc"},
	}
	for _, name := range []string{
		"Authorization", "Cookie", "Set-Cookie", "Proxy-Authorization", "Proxy-Connection", "X-Gitlab-Token",
		"X-Api-Key", "X-Hub-Signature", "X-Hub-Signature-256", "Webhook-Signature", "Stripe-Signature",
		"X-Slack-Signature", "X-Secret-Value", "X-Auth", "X-SECRET", "x-access-TOKEN", "X-Key", "X-Idempotency-Key",
		"X-Password", "X-Goog-Iap-Jwt-Assertion", "X-Amzn-Oidc-Data", "X-Session-Id", "Bad Name", "", "Näme",
		strings.Repeat("n", 101),
	} {
		header[name] = []string{"hidden"}
	}
	want := map[string]string{
		"content-type": "application/json", "x-github-event": "push", "idempotency-key": "7", "accept": "a, b",
		"x-empty": "", "x-nothing": "", "x-lower": "x, y", "x-odd": "a \ufffdb", "x-my-sign": "abc",
	}
	if diff := cmp.Diff(want, Headers(belay.SchemeGitHub, nil, header)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	delete(want, "x-my-sign")
	h := &belay.WebhookHMAC{Header: "x-my-SIGN"}
	if diff := cmp.Diff(want, Headers(belay.SchemeHMAC, h, header)); diff != "" {
		t.Errorf("with the header of hmac, -want +got\n%s", diff)
	}
	if got := Headers(belay.SchemeHMAC, nil, nil); got == nil || len(got) != 0 {
		t.Errorf("no headers: %v", got)
	}
}

// Rule: the headers of every scheme's signatures are left out.
func TestHeadersOfSignatures(t *testing.T) {
	for _, v := range vectors() {
		for name, value := range Headers(v.scheme, v.hmac, v.request().Header) {
			if value == v.header[v.signed[0]] || strings.EqualFold(name, v.signed[0]) {
				t.Errorf("%s: %s is kept", v.name, name)
			}
		}
	}
}

// Rule: there are at most 50 headers, the first by name, and values are cut after 1 KiB.
func TestHeadersAreBounded(t *testing.T) {
	header := http.Header{"A": {strings.Repeat("v", 2000)}, "B": {strings.Repeat("v", 1023) + "ü"}}
	for i := range 60 {
		header[fmt.Sprintf("X-%02d", i)] = []string{"v"}
	}
	got := Headers(belay.SchemeGitHub, nil, header)
	if len(got) != 50 || got["x-47"] != "v" || got["x-48"] != "" {
		t.Errorf("%d headers: %v", len(got), got)
	}
	if got["a"] != strings.Repeat("v", 1024) || got["b"] != strings.Repeat("v", 1023) {
		t.Errorf("the values have %d and %d bytes", len(got["a"]), len(got["b"]))
	}
}

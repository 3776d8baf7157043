package webhook

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// vector is a request with its signature from the documentation of its sender, or from a test of the sender's library.
type vector struct {
	name   string
	scheme belay.WebhookScheme
	hmac   *belay.WebhookHMAC
	secret string
	header map[string]string
	body   string
	now    int64
	want   Delivery
	// signed lists the header with the signature, and then the headers that it covers.
	signed []string
	// open says that nothing protects the body.
	open bool
}

func (v *vector) request() *Request {
	r := &Request{Header: http.Header{}, Body: []byte(v.body), Now: time.Unix(v.now, 0)}
	for name, value := range v.header {
		r.Header.Set(name, value)
	}
	return r
}

func (v *vector) verify(r *Request) (Delivery, error) {
	return Verify(v.scheme, v.hmac, [][]byte{[]byte(v.secret)}, r)
}

// Hashes from sha256sum: of "Hello, World!", of an empty object, and of what Slack signs in its example.
const (
	helloSum = "dffd6021bb2bd5b0af676290809ec3a53191dd81c7f70a4b28688a362182986f"
	emptySum = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	slackSum = "825d85f1380c13692f843f77083a8bbf4bc9df455f355b153a64590c7cc195e1"
)

// slackBody is the body of the example in Slack's documentation.
const slackBody = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&" +
	"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&" +
	"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&" +
	"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"

// stripeBody is the file event_test_signature.json of stripe-dotnet.
const stripeBody = `{
  "id": "evt_123",
  "object": "event",
  "account": "acct_123",
  "api_version": "2017-05-25",
  "created": 1533204620,
  "data": {
    "object": {
      "id": "cus_123",
      "object": "customer",
      "created": 123456789,
      "email": "test@stripe.com",
      "livemode": false,
      "metadata": {}
    }
  },
  "livemode": false,
  "pending_webhooks": 1,
  "request": {
    "id": "req_123",
    "idempotency_key": "idempotency-key-123"
  },
  "type": "customer.created"
}
`

// vectors returns requests of all schemes with signatures that other programs have computed.
func vectors() []*vector {
	return append(hmacVectors(), []*vector{
		{
			// https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries#testing-the-webhook-payload-validation
			name: "github", scheme: belay.SchemeGitHub, secret: "It's a Secret to Everybody", body: "Hello, World!",
			header: map[string]string{
				"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
				"X-GitHub-Delivery":   "72d3162e-cc78-11e3-81ab-4c9367dc0958", "X-GitHub-Event": "issues",
			},
			want:   Delivery{ID: "72d3162e-cc78-11e3-81ab-4c9367dc0958", Event: "issues"},
			signed: []string{"X-Hub-Signature-256"},
		},
		{
			// https://github.com/standard-webhooks/standard-webhooks/blob/main/libraries/go/webhook_test.go
			name: "standard", scheme: belay.SchemeStandard, secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
			body: `{"test": 2432232314}`, now: 1614265330, header: standardHeader(),
			want:   Delivery{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", At: time.Unix(1614265330, 0).UTC()},
			signed: []string{standardSignature, standardTimestamp, standardID},
		},
		{
			// GitLab publishes no vector. It signs as Standard Webhooks describes.
			name: "gitlab signing token", scheme: belay.SchemeGitLab, secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
			body: `{"test": 2432232314}`, now: 1614265330, header: with(standardHeader(), "X-Gitlab-Event", "Push Hook"),
			want: Delivery{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", At: time.Unix(1614265330, 0).UTC(),
				Event: "Push Hook"},
			signed: []string{standardSignature, standardTimestamp, standardID},
		},
		{
			// the header and the id of https://docs.gitlab.com/user/project/integrations/webhooks#delivery-headers
			name: "gitlab secret token", scheme: belay.SchemeGitLab, secret: "a secret token", body: "{}",
			header: map[string]string{
				"X-Gitlab-Token": "a secret token", "X-Gitlab-Event": "Push Hook",
				"Idempotency-Key": "f5e5f430-f57b-4e6e-9fac-d9128cd7232f",
			},
			want:   Delivery{ID: "f5e5f430-f57b-4e6e-9fac-d9128cd7232f", Event: "Push Hook"},
			signed: []string{"X-Gitlab-Token"}, open: true,
		},
		{
			// https://github.com/stripe/stripe-dotnet/blob/master/src/StripeTests/Services/Events/EventUtilityTest.cs
			name: "stripe", scheme: belay.SchemeStripe, secret: "webhook_secret", body: stripeBody, now: 1533204620,
			header: map[string]string{
				"Stripe-Signature": "t=1533204620,v1=2220f87ef101a04665f11cdf770523143f875572008577fa0f20882ddb9cc3c7",
			},
			want:   Delivery{ID: "evt_123", Event: "customer.created", At: time.Unix(1533204620, 0).UTC()},
			signed: []string{"Stripe-Signature"},
		},
		{
			// https://docs.slack.dev/authentication/verifying-requests-from-slack
			name: "slack", scheme: belay.SchemeSlack, secret: "8f742231b10e8888abcd99yyyzzz85a5", body: slackBody,
			now: 1531420618,
			header: map[string]string{
				"X-Slack-Signature":         "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
				"X-Slack-Request-Timestamp": "1531420618", "Content-Type": formType,
			},
			want: Delivery{ID: slackSum, Event: "/webhook-collect",
				At: time.Unix(1531420618, 0).UTC()},
			signed: []string{"X-Slack-Signature", "X-Slack-Request-Timestamp"},
		},
	}...)
}

// hmacVectors has requests of the scheme hmac.
func hmacVectors() []*vector {
	return []*vector{
		{
			// the vector of GitHub without its prefix, in the header of Gitea
			name: "hmac", scheme: belay.SchemeHMAC, hmac: &belay.WebhookHMAC{Header: "X-Gitea-Signature"},
			secret: "It's a Secret to Everybody", body: "Hello, World!",
			header: map[string]string{
				"X-Gitea-Signature": "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
			},
			want: Delivery{ID: helloSum}, signed: []string{"X-Gitea-Signature"},
		},
		{
			// https://www.rfc-editor.org/rfc/rfc4231#section-4.3
			name: "hmac sha512", scheme: belay.SchemeHMAC, secret: "Jefe", body: "what do ya want for nothing?",
			hmac: &belay.WebhookHMAC{Header: "X-Signature", Prefix: "sha512=", Algorithm: "sha512", IDHeader: "X-Id"},
			header: map[string]string{
				"X-Id": "17",
				"X-Signature": "sha512=164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554" +
					"9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
			},
			want: Delivery{ID: "17"}, signed: []string{"X-Signature"},
		},
		{
			// printf '1700000000.{}' | openssl dgst -sha256 -hmac key -binary | base64
			name: "hmac base64 with time", scheme: belay.SchemeHMAC, secret: "key", body: "{}", now: 1700000000,
			hmac: &belay.WebhookHMAC{Header: "X-Signature", Encoding: "base64", TimestampHeader: "X-Time"},
			header: map[string]string{
				"X-Time": "1700000000", "X-Signature": "nXE+1Aa7cHbUEj8NwsOdLfXGVO1LDNVrUsi0yUC9Y64=",
			},
			want:   Delivery{ID: emptySum, At: time.Unix(1700000000, 0).UTC()},
			signed: []string{"X-Signature", "X-Time"},
		},
	}
}

func standardHeader() map[string]string {
	return map[string]string{
		standardID: "msg_p5jXN8AQM9LWM0D4loKWxJek", standardTimestamp: "1614265330",
		standardSignature: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
	}
}

// with returns a copy of headers with another one.
func with(header map[string]string, name, value string) map[string]string {
	header = maps.Clone(header)
	header[name] = value
	return header
}

// named returns the vector with a name.
func named(t testing.TB, name string) *vector {
	t.Helper()
	all := vectors()
	i := slices.IndexFunc(all, func(v *vector) bool { return v.name == name })
	if i < 0 {
		t.Fatalf("there is no vector %s", name)
	}
	return all[i]
}

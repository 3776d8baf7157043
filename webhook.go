package belay

import "time"

const (
	// MaxWebhooks is the largest number of webhooks.
	MaxWebhooks = 1000
	// MaxWebhookBytes is the largest size of a webhook as JSON, in bytes.
	MaxWebhookBytes = 64 << 10
	// MaxDeliveryBytes is the largest size of a delivery's body, in bytes. DefaultDeliveryBytes is the limit of a
	// webhook that sets none.
	MaxDeliveryBytes, DefaultDeliveryBytes = 8 << 20, 1 << 20
	// DefaultDeliveryRate is the number of deliveries per second that a server accepts for a webhook that sets none.
	DefaultDeliveryRate = 50
	// WebhookTolerance is how far the time that a sender has signed may be from the server's clock.
	WebhookTolerance = 5 * time.Minute
)

// LabelWebhook is the label of an execution that a webhook has started. Its value is the name of the webhook.
const LabelWebhook = "webhook"

// WebhookScheme says how the senders of a webhook sign their deliveries.
type WebhookScheme string

// The values of WebhookScheme.
const (
	SchemeHMAC     WebhookScheme = "hmac"     // a WebhookHMAC describes the signature
	SchemeStandard WebhookScheme = "standard" // Standard Webhooks, https://www.standardwebhooks.com
	SchemeGitHub   WebhookScheme = "github"
	SchemeGitLab   WebhookScheme = "gitlab" // the secret itself in a header, so that nothing protects the body
	SchemeStripe   WebhookScheme = "stripe"
	SchemeSlack    WebhookScheme = "slack"
)

// WebhookHMAC describes signatures that are keyed hashes of the body.
type WebhookHMAC struct {
	// Header is the header with the signature, and Prefix a text before it, such as "sha256=".
	Header string `json:"header"`
	Prefix string `json:"prefix,omitempty"`
	// Algorithm is sha256 (the default) or sha512, and Encoding hex (the default) or base64.
	Algorithm string `json:"algorithm,omitempty"`
	Encoding  string `json:"encoding,omitempty"`
	// TimestampHeader, if it is set, is the header with the time of the delivery in seconds since 1970. The hash is
	// then that of the time, a dot and the body.
	TimestampHeader string `json:"timestamp_header,omitempty"`
	// IDHeader is the header with the id of the delivery. The signature does not cover it. Without it, the id is the
	// hash of the body.
	IDHeader string `json:"id_header,omitempty"`
}

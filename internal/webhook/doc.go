// Package webhook verifies and decodes deliveries of webhooks: HTTP requests with which other systems report events.
// Its functions decide only by their arguments. They read no clock, open no connection and keep nothing between calls.
//
// Verify promises:
//
//   - It parses the body only after it has found the signature right.
//   - It compares signatures and secrets in constant time. An empty secret verifies nothing.
//   - It refuses a header that it reads if the header is repeated, because a program in between could have read the
//     other value.
//   - Its errors contain neither a secret nor the expected signature.
//   - A repeated delivery has the ID of the first, if the sender repeats its own id.
//
// Signatures do not cover everything that a Delivery says:
//
//   - standard, stripe and slack: they cover the id, the event and the time.
//   - hmac: they cover the body, and the time if there is one. The id is in a header of its own.
//   - github: they cover the body. The id and the event are in headers, and there is no time.
//   - gitlab with a signing token: they cover the id, the time and the body. The event is in a header.
//   - gitlab with a secret token: there is no signature, so nothing protects the id, the event and the body.
//
// An attacker who has recorded a delivery of GitHub, for example, can send it again later under another id. HTTPS
// prevents that attackers record deliveries.
package webhook

package webhook

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"strings"

	"github.com/belaydev/belay"
)

func verifyHMAC(h *belay.WebhookHMAC, secrets [][]byte, r *Request) (d Delivery, err error) {
	s, err := describedSignature(h, r)
	if err != nil {
		return d, err
	}
	if err = s.verify(secrets, r); err != nil {
		return d, err
	}
	id := ""
	if h.IDHeader != "" {
		if id, err = one(r.Header, h.IDHeader); err != nil {
			return d, err
		}
	}
	return Delivery{ID: identify(id, r.Body), At: s.at}, nil
}

// describedSignature reads the signature that a WebhookHMAC describes. Digits of hexadecimal signatures may all be in
// upper case, as some senders write them.
func describedSignature(h *belay.WebhookHMAC, r *Request) (*signature, error) {
	s := &signature{header: h.Header, hash: sha256.New, encode: hex.EncodeToString}
	if h.Algorithm == algorithmSHA512 {
		s.hash = sha512.New
	}
	given, err := needPrefix(r, h.Header, h.Prefix)
	if err != nil {
		return nil, err
	}
	if h.Encoding == encodingBase64 {
		s.encode = base64.StdEncoding.EncodeToString
	} else if given == strings.ToUpper(given) {
		given = strings.ToLower(given)
	}
	s.given = []string{given}
	if h.TimestampHeader != "" {
		if s.before, s.at, err = needTime(r.Header, h.TimestampHeader); err != nil {
			return nil, err
		}
		s.before += "."
	}
	return s, nil
}

// needPrefix returns the value of a header after a prefix.
func needPrefix(r *Request, name, prefix string) (string, error) {
	value, err := need(r.Header, name)
	if err != nil {
		return "", err
	}
	rest, ok := strings.CutPrefix(value, prefix)
	if !ok {
		return "", unauthorized("the header %s does not begin with %s", name, prefix)
	}
	return rest, nil
}

// verifyStandard verifies Standard Webhooks,
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md. It reads signatures of
// the version v1, which are symmetric, and ignores others.
func verifyStandard(secrets [][]byte, r *Request) (Delivery, error) {
	keys, others := signingKeys(secrets)
	d, err := verifySigned(append(keys, others...), r)
	if err != nil {
		return d, err
	}
	d.Event = clean(textOf(fields(r.Body)["type"]), maxEvent)
	return d, nil
}

// signingPrefix begins a secret of Standard Webhooks. The key follows in Base64.
const signingPrefix = "whsec_"

// signingKeys returns the keys in the secrets of Standard Webhooks, and the other secrets. It leaves out secrets that
// begin with whsec_ and do not go on with Base64.
func signingKeys(secrets [][]byte) (keys, others [][]byte) {
	for _, secret := range secrets {
		text, ok := strings.CutPrefix(string(secret), signingPrefix)
		if !ok {
			others = append(others, secret)
		} else if key, err := base64.StdEncoding.DecodeString(text); err == nil {
			keys = append(keys, key)
		}
	}
	return keys, others
}

// The headers of Standard Webhooks.
const (
	standardID        = "Webhook-Id"
	standardTimestamp = "Webhook-Timestamp"
	standardSignature = "Webhook-Signature"
)

// verifySigned verifies the headers of Standard Webhooks. It refuses ids with a dot, of which the specification
// warns: dots separate the parts of the signed content, so with such an id one content could be read in two ways.
func verifySigned(keys [][]byte, r *Request) (d Delivery, err error) {
	list, err := need(r.Header, standardSignature)
	if err != nil {
		return d, err
	}
	id, err := need(r.Header, standardID)
	if err != nil {
		return d, err
	}
	if strings.Contains(id, ".") {
		return d, unauthorized("the header %s contains a dot", standardID)
	}
	text, at, err := needTime(r.Header, standardTimestamp)
	if err != nil {
		return d, err
	}
	s := &signature{header: standardSignature, hash: sha256.New, encode: base64.StdEncoding.EncodeToString,
		before: id + "." + text + ".", at: at}
	for item := range strings.SplitSeq(list, " ") {
		if given, ok := strings.CutPrefix(item, "v1,"); ok {
			s.given = append(s.given, given)
		}
	}
	return Delivery{ID: identify(id), At: at}, s.verify(keys, r)
}

// verifyGitHub verifies deliveries of GitHub,
// https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries and
// https://docs.github.com/en/webhooks/webhook-events-and-payloads#delivery-headers.
func verifyGitHub(secrets [][]byte, r *Request) (d Delivery, err error) {
	s := &signature{header: "X-Hub-Signature-256", hash: sha256.New, encode: hex.EncodeToString}
	given, err := needPrefix(r, s.header, "sha256=")
	if err != nil {
		return d, err
	}
	s.given = []string{given}
	if err = s.verify(secrets, r); err != nil {
		return d, err
	}
	id, err := one(r.Header, "X-Github-Delivery")
	if err != nil {
		return d, err
	}
	event, err := one(r.Header, "X-Github-Event")
	if err != nil {
		return d, err
	}
	return Delivery{ID: identify(id, r.Body), Event: clean(event, maxEvent), Ping: event == "ping"}, nil
}

// verifyStripe verifies deliveries of Stripe, https://docs.stripe.com/webhooks#verify-manually.
func verifyStripe(secrets [][]byte, r *Request) (d Delivery, err error) {
	const header = "Stripe-Signature"
	value, err := need(r.Header, header)
	if err != nil {
		return d, err
	}
	s := &signature{header: header, hash: sha256.New, encode: hex.EncodeToString}
	for item := range strings.SplitSeq(value, ",") {
		switch name, text, _ := strings.Cut(item, "="); name {
		case "t":
			if s.before != "" {
				return d, unauthorized("the header %s has two times", header)
			}
			if s.at, err = seconds(text, "the header "+header); err != nil {
				return d, err
			}
			s.before = text + "."
		case "v1":
			s.given = append(s.given, text)
		}
	}
	if s.before == "" {
		return d, unauthorized("the header %s has no time", header)
	}
	if err = s.verify(secrets, r); err != nil {
		return d, err
	}
	body := fields(r.Body)
	id, event := textOf(body["id"]), textOf(body["type"])
	return Delivery{ID: identify(id, r.Body), Event: clean(event, maxEvent), At: s.at}, nil
}

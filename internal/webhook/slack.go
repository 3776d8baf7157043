package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// verifySlack verifies requests of Slack, https://docs.slack.dev/authentication/verifying-requests-from-slack.
func verifySlack(secrets [][]byte, r *Request) (d Delivery, err error) {
	s := &signature{header: "X-Slack-Signature", hash: sha256.New, encode: hex.EncodeToString}
	given, err := needPrefix(r, s.header, "v0=")
	if err != nil {
		return d, err
	}
	var text string
	if text, s.at, err = needTime(r.Header, "X-Slack-Request-Timestamp"); err != nil {
		return d, err
	}
	s.given, s.before = []string{given}, "v0:"+text+":"
	if err = s.verify(secrets, r); err != nil {
		return d, err
	}
	return slackDelivery(r, s.before, s.at), nil
}

// slackDelivery reads what Slack sends: an event, https://docs.slack.dev/apis/events-api, or a form with a command or
// an interaction. Slack repeats only events, which have ids; for other requests the signed content is the id.
func slackDelivery(r *Request, before string, at time.Time) Delivery {
	d := Delivery{At: at}
	if mediaType(r.Header) == formType {
		d.ID, d.Event = sum([]byte(before), r.Body), clean(slackForm(r.Body), maxEvent)
		return d
	}
	body := fields(r.Body)
	kind := textOf(body["type"])
	event := textOf(fields(body["event"])["type"])
	if event == "" {
		event = kind
	}
	if kind == "url_verification" { // https://docs.slack.dev/reference/events/url_verification
		d.Challenge = textOf(body["challenge"])
	}
	d.ID, d.Event = identify(textOf(body["event_id"]), []byte(before), r.Body), clean(event, maxEvent)
	return d
}

// slackForm returns the command in a form, or the type of the interaction.
func slackForm(body []byte) string {
	form, err := decodeForm(body)
	if err != nil {
		return ""
	}
	if command, ok := form["command"].(string); ok {
		return command
	}
	payload, _ := form["payload"].(map[string]any)
	kind, _ := payload["type"].(string)
	return kind
}

package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"
)

// slackRequest returns a signed request of Slack.
func slackRequest(kind, body string, at int64) *Request {
	stamp := strconv.FormatInt(at, 10)
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte("v0:" + stamp + ":" + body))
	return &Request{Body: []byte(body), Now: time.Unix(at, 0), Header: http.Header{
		"Content-Type": {kind}, "X-Slack-Request-Timestamp": {stamp},
		"X-Slack-Signature": {"v0=" + hex.EncodeToString(mac.Sum(nil))},
	}}
}

// Rule: a delivery of Slack has the event's id and type, the command, or the type of the interaction.
func TestSlackDeliveries(t *testing.T) {
	const at, js = 1700000000, "application/json"
	own := func(body string) string { return sum([]byte("v0:1700000000:" + body)) }
	verification := `{"token":"Jhj5dZrVaK7ZwHHjRyZWjbDl","challenge":"3eZbrw1a","type":"url_verification"}`
	action := "payload=" + url.QueryEscape(`{"type":"block_actions","team":{"id":"T9"}}`)
	for _, c := range []struct{ kind, body, id, event, challenge string }{
		{js, `{"type":"event_callback","event_id":"Ev08","event":{"type":"app_mention"}}`, "Ev08", "app_mention", ""},
		{js, `{"type":"app_rate_limited","event":null}`, "", "app_rate_limited", ""},
		{js, verification, "", "url_verification", "3eZbrw1a"},
		{js, `{"type":"event_callback","challenge":"x","event":{"type":"url_verification"}}`, "", "url_verification", ""},
		{js, `{"type":7,"challenge":"x","event_id":{}}`, "", "", ""},
		{js, `["url_verification"]`, "", "", ""},
		{js, `{`, "", "", ""},
		{formType + "; charset=utf-8", action, "", "block_actions", ""},
		{formType, "command=%2Fweather&text=94070", "", "/weather", ""},
		{formType, "payload=1", "", "", ""},
		{formType, "%zz", "", "", ""},
		{formType, verification, "", "", ""},
	} {
		d, err := Verify("slack", nil, [][]byte{[]byte("secret")}, slackRequest(c.kind, c.body, at))
		if c.id == "" {
			c.id = own(c.body)
		}
		if err != nil || d.ID != c.id || d.Event != c.event || d.Challenge != c.challenge || d.Ping {
			t.Errorf("%s: %+v, %v, want %+v", c.body, d, err, c)
		}
	}
}

// Rule: a repeated event has the id of the first, although it has another time. The same command, sent twice by a
// person, has two ids.
func TestSlackRepeats(t *testing.T) {
	id := func(kind, body string, at int64) string {
		d, err := Verify("slack", nil, [][]byte{[]byte("secret")}, slackRequest(kind, body, at))
		if err != nil {
			t.Fatal(err)
		}
		return d.ID
	}
	event := `{"type":"event_callback","event_id":"Ev08"}`
	if id("application/json", event, 1700000000) != id("application/json", event, 1700000060) {
		t.Error("the repeated event has another id")
	}
	first := id(formType, "command=a", 1700000000)
	if first == id(formType, "command=a", 1700000001) {
		t.Error("two commands have the same id")
	}
	if first != id(formType, "command=a", 1700000000) {
		t.Error("a request that is sent again has another id")
	}
}

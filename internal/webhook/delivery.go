package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
	"unicode"
)

const (
	// maxID and maxEvent are the largest lengths of Delivery.ID and Delivery.Event, in bytes.
	maxID, maxEvent = 150, 100
)

// Delivery says what a verified request reports.
type Delivery struct {
	// ID is the sender's id of the delivery. It is the same when the sender repeats the delivery. It has at most
	// 150 bytes of printable ASCII without spaces; another id is replaced by its SHA-256 in hexadecimal. Without an
	// id of the sender, it is the SHA-256 of the body.
	ID string
	// Event is the sender's name of the event, cut after 100 bytes, with spaces for characters that cannot be
	// printed. It is empty if the request does not say it.
	Event string
	// At is the signed time in UTC, and zero if the scheme has none.
	At time.Time
	// Challenge is not empty if Slack verifies the address of the webhook. The response must contain it, and the
	// delivery starts nothing.
	Challenge string
	// Ping reports that GitHub tests the webhook. The delivery starts nothing.
	Ping bool
}

// identify returns the ID of a delivery for the id that the sender has given, if any, and the content that identifies
// a delivery without one.
func identify(given string, content ...[]byte) string {
	switch {
	case given == "":
		return sum(content...)
	case len(given) > maxID || !printable(given) || strings.Contains(given, " "):
		return sum([]byte(given))
	}
	return given
}

// sum is the SHA-256 of all parts.
func sum(parts ...[]byte) string {
	h := sha256.New()
	for _, part := range parts {
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// clean makes a text printable: spaces replace all characters that are not, and the text is cut if it is too long.
func clean(text string, most int) string {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text))
	if len(text) > most {
		text = strings.TrimSpace(strings.ToValidUTF8(text[:most], ""))
	}
	return text
}

// fields returns the fields of a JSON object, and none if the body is something else.
func fields(body []byte) (all map[string]json.RawMessage) {
	if json.Unmarshal(body, &all) != nil {
		return nil
	}
	return all
}

// textOf returns a text in JSON, and "" if it is something else.
func textOf(raw json.RawMessage) (text string) {
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

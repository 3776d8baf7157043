package webhook

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/belaydev/belay"
)

type Request struct {
	Header http.Header
	Body   []byte
	Now    time.Time
}

type Delivery struct {
	ID, Event, Challenge string
	At                   time.Time
	Ping                 bool
}

func Verify(belay.WebhookScheme, *belay.WebhookHMAC, [][]byte, *Request) (Delivery, error) {
	return Delivery{}, &belay.Error{Code: belay.CodeUnauthorized, Message: "no signature is known yet"}
}
func Decode(h http.Header, b []byte) (v any, err error)                              { err = json.Unmarshal(b, &v); return }
func Headers(belay.WebhookScheme, *belay.WebhookHMAC, http.Header) map[string]string { return nil }

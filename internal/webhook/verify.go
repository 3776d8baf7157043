package webhook

import (
	"crypto/hmac"
	"fmt"
	"hash"
	"net/http"
	"strconv"
	"time"

	"github.com/belaydev/belay"
)

// Request is one HTTP request to a webhook. Header is as package http makes it, and Now is the time of the server.
type Request struct {
	Header http.Header
	Body   []byte
	Now    time.Time
}

// Verify checks that one of the secrets has signed the request, and that the signed time, if the scheme has one, is no
// further than belay.WebhookTolerance from r.Now. It returns CodeUnauthorized if not, and CodeInvalid if Check does.
func Verify(scheme belay.WebhookScheme, h *belay.WebhookHMAC, secrets [][]byte, r *Request) (Delivery, error) {
	if err := Check(scheme, h); err != nil {
		return Delivery{}, err
	}
	var d Delivery
	var err error
	switch scheme {
	case belay.SchemeHMAC:
		d, err = verifyHMAC(h, secrets, r)
	case belay.SchemeStandard:
		d, err = verifyStandard(secrets, r)
	case belay.SchemeGitHub:
		d, err = verifyGitHub(secrets, r)
	case belay.SchemeGitLab:
		d, err = verifyGitLab(secrets, r)
	case belay.SchemeStripe:
		d, err = verifyStripe(secrets, r)
	case belay.SchemeSlack:
		d, err = verifySlack(secrets, r)
	case belay.SchemeCloudEvents, belay.SchemeAMQP: // Check refuses them
	}
	if err != nil {
		return Delivery{}, err
	}
	return d, nil
}

// signature is the signature of a request: a keyed hash of a text and the body.
type signature struct {
	header string // the header that has it
	hash   func() hash.Hash
	encode func([]byte) string
	// before is the part of the signed content that precedes the body.
	before string
	// at is the time in before, and zero if it has none.
	at time.Time
	// given lists the signatures in the request, of which at least one must be right. They are compared as texts, so
	// that there is only one way to write a signature.
	given []string
}

// verify returns CodeUnauthorized if no key has made the signature, or if the signed time is too far from r.Now. It
// looks at the time last, so that its error about the time is true.
func (s *signature) verify(keys [][]byte, r *Request) error {
	if !s.madeBy(keys, r.Body) {
		return unauthorized("the signature in the header %s is wrong: the secret is another, or the body has changed",
			s.header)
	}
	if s.at.IsZero() {
		return nil
	}
	return near(s.at, r.Now)
}

func (s *signature) madeBy(keys [][]byte, body []byte) bool {
	made := false
	for _, key := range keys {
		if len(key) == 0 {
			continue
		}
		mac := hmac.New(s.hash, key)
		mac.Write([]byte(s.before))
		mac.Write(body)
		expected := []byte(s.encode(mac.Sum(nil)))
		for _, given := range s.given {
			if hmac.Equal(expected, []byte(given)) {
				made = true
			}
		}
	}
	return made
}

// near returns CodeUnauthorized if the signed time is too far from the server's.
func near(at, now time.Time) error {
	const most = belay.WebhookTolerance
	off := now.Sub(at).Abs().Round(time.Millisecond)
	switch {
	case at.Before(now.Add(-most)):
		return unauthorized("the signed time is %s ago; the limit is %s", off, most)
	case at.After(now.Add(most)):
		return unauthorized("the signed time is %s ahead of the server's; the limit is %s", off, most)
	}
	return nil
}

// maxSeconds is the largest number of digits of a time, which is before the year 5139 then, so that computing with it
// cannot overflow.
const maxSeconds = 11

// seconds reads a time in seconds since 1970. where names its place in the request, for the error.
func seconds(text, where string) (time.Time, error) {
	wrong := unauthorized("the time in %s is not a number of seconds since 1970", where)
	if text == "" || len(text) > maxSeconds {
		return time.Time{}, wrong
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return time.Time{}, wrong
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, wrong
	}
	return time.Unix(n, 0).UTC(), nil
}

// one returns the value of a header, and "" if there is none. It refuses a repeated header.
func one(header http.Header, name string) (string, error) {
	switch values := header.Values(name); len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", unauthorized("the header %s is repeated", name)
}

// need is one for a header that must be there.
func need(header http.Header, name string) (string, error) {
	value, err := one(header, name)
	if err == nil && value == "" {
		err = unauthorized("the header %s is missing", name)
	}
	return value, err
}

// needTime is need for a header with a time. It returns the header's text, which is signed, and the time.
func needTime(header http.Header, name string) (string, time.Time, error) {
	text, err := need(header, name)
	if err != nil {
		return "", time.Time{}, err
	}
	at, err := seconds(text, "the header "+name)
	return text, at, err
}

func unauthorized(format string, args ...any) error {
	return &belay.Error{Code: belay.CodeUnauthorized, Op: "webhook", Message: fmt.Sprintf(format, args...)}
}

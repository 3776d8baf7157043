package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// noAnswer is the error of a call that got no answer. It leaves out the URL, which may contain the
// secret id of a lock.
func noAnswer(r *request, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &belay.Error{Code: belay.CodeUnavailable, Op: r.op, Message: r.describe(err), Err: err}
}

// describe returns the message for a call that got no answer.
func (r *request) describe(err error) string {
	var way *net.OpError
	var certificate *tls.CertificateVerificationError
	var signer x509.UnknownAuthorityError
	switch {
	case errors.As(err, &way) && way.Op == "dial":
		return "no server answers at this address"
	case errors.As(err, &signer):
		return "this machine does not trust the signer of the server's certificate; if you do, name the file of the " +
			"signer's certificate in SSL_CERT_FILE"
	case errors.As(err, &certificate):
		return "the server's certificate is not valid"
	case r.bare && otherProtocol(err):
		return "no answer in HTTP/2: is that the address of a Belay server, and is it http or https?"
	case r.read || r.bare:
		return "no answer"
	}
	return outcomeUnknown
}

// otherProtocol reports whether the server answered in another protocol, or closed the connection
// because it did not understand HTTP/2. It returns false if the server did not answer at all.
func otherProtocol(err error) bool {
	var slow net.Error
	return !(errors.As(err, &slow) && slow.Timeout()) && !errors.Is(err, errSlow) &&
		!errors.Is(err, context.Canceled) &&
		!strings.Contains(err.Error(), "connection lost") // the text of the error if a ping was not answered
}

// refusal returns the error for an answer whose status is not a success.
func refusal(op string, resp *http.Response, body []byte) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	var p wire.Problem
	if kind != wire.ProblemType || json.Unmarshal(body, &p) != nil || p.Code == "" {
		return foreignAnswer(op, resp)
	}
	e := problem(&p)
	if e.Op == "" {
		e.Op = op
	}
	if e.RetryAfter == 0 {
		e.RetryAfter = retryAfter(resp.Header)
	}
	return e
}

// problem converts a problem of the HTTP API to an error. If this version does not know the
// problem's code, the error has CodeInvalid.
func problem(p *wire.Problem) *belay.Error {
	e := p.Error()
	if e.Code.Status() == belay.CodeInternal.Status() && p.Status != 0 && p.Status < 500 {
		e.Code, e.Message = belay.CodeInvalid, string(p.Code)+": "+e.Message
	}
	return e
}

// foreignAnswer returns the error for an answer that no Belay server gives, usually the answer of a proxy between
// client and server. If the call may succeed once the proxy is repaired, the error has the code of a temporary error.
func foreignAnswer(op string, resp *http.Response) error {
	e := &belay.Error{
		Code: belay.CodeUnavailable, Op: op, RetryAfter: retryAfter(resp.Header),
		Message: fmt.Sprintf("the answer %q does not come from a Belay server: check the address and any proxy",
			resp.Status),
	}
	switch code := resp.StatusCode; {
	case code >= 300 && code < 400:
		e.Code, e.Message = belay.CodeInvalid,
			"the answer is a redirect, which the client does not follow: give the server's own address"
	case code == http.StatusUnauthorized:
		e.Code = belay.CodeUnauthorized
	case code == http.StatusRequestEntityTooLarge:
		e.Code = belay.CodePayloadTooLarge
	case code == http.StatusTooManyRequests:
		e.Code = belay.CodeRateLimited
	}
	return e
}

// retryAfter reads the header Retry-After if it is a number of seconds.
func retryAfter(h http.Header) time.Duration {
	s, err := strconv.ParseInt(h.Get("Retry-After"), 10, 32)
	if err != nil || s < 0 {
		return 0
	}
	return time.Duration(s) * time.Second
}

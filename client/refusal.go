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

// unreached is the error of a call that got no answer. The address is left out:
// it may hold the id of a lock.
func unreached(r *request, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &belay.Error{Code: belay.CodeUnavailable, Op: r.op, Message: r.unanswered(err), Err: err}
}

// unanswered says what is known of a call that got no answer.
func (r *request) unanswered(err error) string {
	var way *net.OpError
	var certificate *tls.CertificateVerificationError
	var signer x509.UnknownAuthorityError
	switch {
	case errors.As(err, &way) && way.Op == "dial":
		return "nobody answers there"
	case errors.As(err, &signer):
		return "nobody whom this machine trusts has signed its certificate; if you do, name the file of its " +
			"signer in SSL_CERT_FILE"
	case errors.As(err, &certificate):
		return "its certificate is not to be trusted"
	case r.bare && garbled(err):
		return "no answer in HTTP/2: is that the address of a Belay server, and is it http or https?"
	case r.read || r.bare:
		return "no answer"
	}
	return unknown
}

// garbled reports whether somebody answered in another protocol, or hung up on
// ours, and was not just silent.
func garbled(err error) bool {
	var slow net.Error
	return !(errors.As(err, &slow) && slow.Timeout()) && !errors.Is(err, errSlow) &&
		!errors.Is(err, context.Canceled) &&
		!strings.Contains(err.Error(), "connection lost") // what a ping without an answer is called
}

// refusal is what a server that answered with a status refuses with.
func refusal(op string, resp *http.Response, body []byte) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	var p wire.Problem
	if kind != wire.ProblemType || json.Unmarshal(body, &p) != nil || p.Code == "" {
		return stranger(op, resp)
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

// problem is a problem as an error with a code of the closed list.
func problem(p *wire.Problem) *belay.Error {
	e := p.Error()
	if e.Code.Status() == belay.CodeInternal.Status() && p.Status != 0 && p.Status < 500 { // a newer server's
		e.Code, e.Message = belay.CodeInvalid, string(p.Code)+": "+e.Message
	}
	return e
}

// stranger is the error for an answer that Belay does not give: mostly that of a
// proxy on the way. It fails nothing for good that may go well once the proxy is
// mended.
func stranger(op string, resp *http.Response) error {
	e := &belay.Error{
		Code: belay.CodeUnavailable, Op: op, RetryAfter: retryAfter(resp.Header),
		Message: fmt.Sprintf("answered %q, and not as Belay does: is that its address, or a proxy on the way?",
			resp.Status),
	}
	switch code := resp.StatusCode; {
	case code >= 300 && code < 400:
		e.Code, e.Message = belay.CodeInvalid,
			"answered with a redirect, and none is followed: give the server's own address"
	case code == http.StatusUnauthorized:
		e.Code = belay.CodeUnauthorized
	case code == http.StatusRequestEntityTooLarge:
		e.Code = belay.CodePayloadTooLarge
	case code == http.StatusTooManyRequests:
		e.Code = belay.CodeRateLimited
	}
	return e
}

// retryAfter reads the header Retry-After in its form of seconds.
func retryAfter(h http.Header) time.Duration {
	s, err := strconv.ParseInt(h.Get("Retry-After"), 10, 32)
	if err != nil || s < 0 {
		return 0
	}
	return time.Duration(s) * time.Second
}

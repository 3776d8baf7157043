package httptask

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/reach"
	"github.com/belaydev/belay/workflow"
)

const (
	// maxDelay is the longest Retry-After that is respected.
	maxDelay = time.Hour
	// maxExcerpt is the maximum size of the part of an answer, and of the text of an error of the
	// network, in the error of a run, in bytes.
	maxExcerpt = 500
)

// timeoutError is the error of a request that exceeded its timeout. The run then ends as timed out.
type timeoutError struct{ text string }

// Error names the request and its timeout.
func (e *timeoutError) Error() string { return e.text }

// Is reports whether the target is an error of a run that timed out.
func (e *timeoutError) Is(target error) bool {
	return target == workflow.ErrTimedOut || target == context.DeadlineExceeded
}

// judge returns nil for an expected answer, and otherwise the error of the run, with the answer as
// its output.
func (c *call) judge(a *Response) error {
	expect, retry := c.in.Expect, c.in.RetryOn
	if expect == nil {
		expect = success
	}
	if retry == nil {
		retry = retrying
	}
	if expect.has(a.Status) {
		return nil
	}
	text := fmt.Sprintf("%s %s answered %d", c.method, c.shown, a.Status)
	if name := http.StatusText(a.Status); name != "" {
		text += " " + name
	}
	if said := oneLine(a.text()); said != "" {
		text += ": " + said
	}
	err := belay.WithOutput(errors.New(text), a)
	if !retry.has(a.Status) {
		return belay.Permanent(err)
	}
	return belay.RetryAfter(err, retryAfter(a.Headers["retry-after"], time.Now()))
}

// retryAfter returns the delay that a Retry-After demands: a number of seconds or a date. It is 0 if
// there is none, and an hour at most.
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxDelay)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxDelay)
	}
	return 0
}

// failure returns the error of a run without an answer.
func (c *call) failure(err error) error {
	what := c.method + " " + c.shown
	if belay.IsPermanent(err) || belay.CodeOf(err) != belay.CodeInternal {
		return hidden{fmt.Errorf("%s: %w", what, err), c.hide(what + ": " + err.Error())}
	}
	if reach.Denied(err) {
		return belay.Permanent(&belay.Error{Code: belay.CodeForbidden, Message: c.hide(fmt.Sprintf(
			"%s: the host is refused by the setting http.egress of the process that runs the request: %s", what, err))})
	}
	text, lasting := describe(err)
	cause := errors.New(c.hide(what + ": " + text))
	if lasting {
		return belay.Permanent(cause)
	}
	return cause
}

// hidden is an error with a text from which secrets were removed.
type hidden struct {
	err  error
	text string
}

// Error returns the text without secrets.
func (h hidden) Error() string { return h.text }

// Unwrap returns the error, so that its marks count.
func (h hidden) Unwrap() error { return h.err }

// hide removes secrets from the text of an error.
func (c *call) hide(text string) string { return oneLine(c.scope.Hider().Text(text)) }

// describe describes an error of the network without addresses of this machine's network. lasting
// reports whether a repetition would give the same error.
func describe(err error) (text string, lasting bool) {
	var (
		dns         *net.DNSError
		op          *net.OpError
		certificate *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &certificate):
		return "the certificate is not valid: " + certificate.Err.Error(), true
	case errors.As(err, &dns) && dns.IsNotFound, errors.Is(err, reach.ErrNowhere):
		return "there is no such host", false
	case errors.As(err, &dns):
		return "the name of the host cannot be resolved", false
	case errors.As(err, &op) && op.Err != nil:
		return op.Op + ": " + op.Err.Error(), false
	}
	return err.Error(), false
}

// oneLine returns a short, printable line of a text from outside.
func oneLine(text string) string {
	cut := ""
	if len(text) > maxExcerpt {
		text, cut = text[:maxExcerpt], "…"
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return strings.Join(strings.Fields(text), " ") + cut
}

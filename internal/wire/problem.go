package wire

import (
	"errors"
	"net/http"
	"time"

	"github.com/belaydev/belay"
)

// HeaderRequest is the header with the id of a request.
const HeaderRequest = "X-Request-Id"

// ProblemType is the media type of a Problem.
const ProblemType = "application/problem+json"

// Problem is an error on the wire, as RFC 9457 has it. Code, not Title, is what
// programs switch on.
type Problem struct {
	Type   string     `json:"type" doc:"urn:belay:error: and the code."`
	Title  string     `json:"title"`
	Status int        `json:"status"`
	Detail string     `json:"detail,omitempty" doc:"What is wrong and what to do, in one sentence."`
	Code   belay.Code `json:"code"`
	// Op is what was attempted.
	Op string `json:"op,omitempty"`
	// Cause says why a lease is lost.
	Cause        belay.Cause `json:"cause,omitempty" enum:"expired,reassigned,cancelled,finished"`
	RetryAfterMS int64       `json:"retry_after_ms,omitempty"`
	Holder       *Holder     `json:"holder,omitempty"`
	RequestID    string      `json:"request_id,omitempty" doc:"The request that was refused, as the header X-Request-Id and the server's log name it."`
	Errors       []Detail    `json:"errors,omitempty" doc:"The fields that break the schema, where that is what is wrong."`
}

// Holder is who owns an execution.
type Holder struct {
	Owner       string         `json:"owner"`
	Worker      belay.WorkerID `json:"worker"`
	Token       belay.Token    `json:"token"`
	ExpiresInMS int64          `json:"expires_in_ms"`
}

// Detail is one thing wrong with a request.
type Detail struct {
	Location string `json:"location" doc:"Where, as in body.labels.team."`
	Message  string `json:"message"`
}

// ProblemOf is an error for the wire. What is no *belay.Error is CodeInternal,
// and its text stays here: it may name what is none of the caller's business.
func ProblemOf(err error) Problem {
	var e *belay.Error
	if !errors.As(err, &e) {
		e = &belay.Error{Code: belay.CodeInternal, Message: "something went wrong in the server; its log says what"}
	}
	p := Problem{
		Type: "urn:belay:error:" + string(e.Code), Status: e.Code.Status(), Detail: e.Message,
		Code: e.Code, Op: e.Op, Cause: e.Cause, RetryAfterMS: Millis(e.RetryAfter),
	}
	p.Title = http.StatusText(p.Status)
	if h := e.Holder; h != nil {
		p.Holder = &Holder{h.Owner, h.Worker, h.Token, Millis(h.ExpiresIn)}
	}
	return p
}

// Error is the problem as its noun.
func (p *Problem) Error() *belay.Error {
	e := &belay.Error{Code: p.Code, Op: p.Op, Message: p.Detail, Cause: p.Cause, RetryAfter: Duration(p.RetryAfterMS)}
	for _, d := range p.Errors {
		e.Message += "; " + d.Location + ": " + d.Message
	}
	if h := p.Holder; h != nil {
		e.Holder = &belay.Holder{Owner: h.Owner, Worker: h.Worker, Token: h.Token, ExpiresIn: Duration(h.ExpiresInMS)}
	}
	return e
}

// RetryAfter is the value of the header Retry-After for a wait: whole seconds,
// at least one.
func RetryAfter(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

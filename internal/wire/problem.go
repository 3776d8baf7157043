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

// Problem is an error on the wire, in the form of RFC 9457. Programs must compare Code, not Title.
type Problem struct {
	Type   string     `json:"type" doc:"urn:belay:error: followed by the code."`
	Title  string     `json:"title"`
	Status int        `json:"status"`
	Detail string     `json:"detail,omitempty" doc:"What is wrong and what to do, in one sentence."`
	Code   belay.Code `json:"code"`
	// Op is the operation that failed.
	Op string `json:"op,omitempty"`
	// Cause says why a lease was lost.
	Cause        belay.Cause `json:"cause,omitempty" enum:"expired,reassigned,cancelled,finished"`
	RetryAfterMS int64       `json:"retry_after_ms,omitempty"`
	Holder       *Holder     `json:"holder,omitempty"`
	RequestID    string      `json:"request_id,omitempty" doc:"The id of the refused request, as in the header X-Request-Id and in the server's log."`
	Errors       []Detail    `json:"errors,omitempty" doc:"The fields that break the schema, if any."`
	// Fault repeats the problem for clients of OpenAI's API. It is set for an address below /v1/ that has no route,
	// on a server that runs agents.
	Fault *ChatFault `json:"error,omitempty" doc:"The problem in OpenAI's format, if a server with agents has no route at an address below /v1/."`
}

// ChatFault is an error in OpenAI's format.
type ChatFault struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param" nullable:"true"`
	Code    string  `json:"code"`
}

// Holder is the owner of an execution.
type Holder struct {
	Owner       string         `json:"owner"`
	Worker      belay.WorkerID `json:"worker"`
	Token       belay.Token    `json:"token"`
	ExpiresInMS int64          `json:"expires_in_ms"`
}

// Detail is one fault of a request.
type Detail struct {
	Location string `json:"location" doc:"The place of the fault, for example body.labels.team."`
	Message  string `json:"message"`
}

// ProblemOf converts an error for the wire. An error that is no *belay.Error gets CodeInternal, and
// its text is left out, because it may have details that the caller must not see.
func ProblemOf(err error) Problem {
	var e *belay.Error
	if !errors.As(err, &e) {
		e = &belay.Error{Code: belay.CodeInternal, Message: "an error inside the server; see its log"}
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

// Error converts the problem from the wire.
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

// RetryAfter converts a wait to the value of the header Retry-After: whole seconds, at least one.
func RetryAfter(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

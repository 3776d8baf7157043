package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

const (
	// maxDetails bounds how many wrong fields one answer names, and maxDetail
	// the bytes of each.
	maxDetails = 20
	maxDetail  = 200
)

// refusal is an answer that is no success: a problem and its headers. It implements the interfaces
// that huma needs from an error.
type refusal struct {
	problem wire.Problem
	header  http.Header
	cause   error // for the log, if the server is at fault
}

func (f *refusal) Error() string           { return f.problem.Error().Error() }
func (f *refusal) Unwrap() error           { return f.cause }
func (f *refusal) GetStatus() int          { return f.problem.Status }
func (f *refusal) GetHeaders() http.Header { return f.header }

// ContentType is the type of problems, whatever the client accepts.
func (f *refusal) ContentType(string) string { return wire.ProblemType }

// MarshalJSON writes only the problem, without the headers.
func (f *refusal) MarshalJSON() ([]byte, error) { return json.Marshal(&f.problem) }

// refuse turns an error into its refusal. An error that is no *belay.Error is an error inside the
// server.
func refuse(err error) *refusal {
	var f *refusal
	if errors.As(err, &f) {
		return f
	}
	var e *belay.Error
	switch {
	case errors.As(err, &e):
	case errors.Is(err, errStopping), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		err = &belay.Error{
			Code: belay.CodeUnavailable, Message: "the request was not finished in time; try again",
			RetryAfter: time.Second,
		}
	}
	f = &refusal{problem: wire.ProblemOf(err), header: http.Header{}, cause: err}
	f.retry()
	return f
}

// errStopping is the cause with which the server ends the contexts of waiting requests when it
// begins to stop.
var errStopping = errors.New("the server is stopping")

// retry sets Retry-After if repeating the request may help.
func (f *refusal) retry() {
	after := wire.Duration(f.problem.RetryAfterMS)
	switch f.problem.Status {
	case http.StatusConflict, http.StatusLocked, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if after == 0 && f.problem.Holder != nil {
			after = wire.Duration(f.problem.Holder.ExpiresInMS)
		}
		f.header.Set("Retry-After", strconv.FormatInt(wire.RetryAfter(after), 10))
	}
}

// malformed refuses a request that cannot be read.
func malformed(message string) *refusal {
	return refuse(&belay.Error{Code: belay.CodeMalformed, Message: message})
}

// invalid refuses a field that breaks a rule.
func invalid(location, message string) *refusal {
	f := refuse(&belay.Error{Code: belay.CodeInvalid, Message: "the request breaks the schema"})
	f.detail(location, message)
	return f
}

func (f *refusal) detail(location, message string) {
	if len(f.problem.Errors) < maxDetails {
		f.problem.Errors = append(f.problem.Errors, wire.Detail{Location: short(location), Message: short(message)})
	}
}

// as replaces the status of the refusal, which follows from its code, by a status that describes
// the fault more exactly.
func (f *refusal) as(status int) *refusal {
	f.problem.Status, f.problem.Title = status, http.StatusText(status)
	f.retry()
	return f
}

func short(s string) string {
	if len(s) > maxDetail {
		s = s[:maxDetail] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}

// humaError makes the refusal of a request that huma itself refuses: its body or a parameter breaks
// the schema.
func humaError(status int, message string, errs ...error) huma.StatusError {
	var code belay.Code
	switch {
	case status == http.StatusUnprocessableEntity && inBody(errs):
		code, message = belay.CodeInvalid, "the request breaks the schema"
	case status == http.StatusUnprocessableEntity:
		code, status, message = belay.CodeMalformed, http.StatusBadRequest, "the request's parameters cannot be read"
	case status == http.StatusBadRequest:
		code = belay.CodeMalformed
	default:
		f := refuse(errors.Join(append(errs, errors.New(message))...))
		return f
	}
	f := refuse(&belay.Error{Code: code, Message: message}).as(status)
	for _, err := range errs {
		var d *huma.ErrorDetail
		switch {
		case errors.As(err, &d): // the value is left out, because it may be a secret
			f.detail(d.Location, strings.TrimPrefix(d.Message, "invalid value: "))
		case err != nil:
			f.detail("", err.Error())
		}
	}
	return f
}

// inBody reports whether any of the errors is about the body.
func inBody(errs []error) bool {
	for _, err := range errs {
		var d *huma.ErrorDetail
		if !errors.As(err, &d) || strings.HasPrefix(d.Location, "body") {
			return true
		}
	}
	return len(errs) == 0
}

// write answers with the refusal.
func (f *refusal) write(w http.ResponseWriter) {
	h := w.Header()
	for k, values := range f.header {
		h[k] = values
	}
	h.Set("Content-Type", wire.ProblemType)
	f.problem.RequestID = h.Get(wire.HeaderRequest)
	body, err := json.Marshal(&f.problem)
	if err != nil { // a struct of texts and numbers always marshals
		body = nil
	}
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(f.problem.Status)
	_, _ = w.Write(append(body, '\n'))
}

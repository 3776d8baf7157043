package agentapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/wire"
)

// decode decodes the JSON body of a request; the server has already checked that the body is valid
// JSON. If strict is true, decode refuses unknown fields.
func decode(r *http.Request, strict bool, v any) error {
	d := json.NewDecoder(r.Body)
	if strict {
		d.DisallowUnknownFields()
	}
	err := d.Decode(v)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		return &belay.Error{Code: belay.CodeMalformed, Message: "a JSON body is needed"}
	case errors.As(err, &wrong) && wrong.Field == "":
		return &belay.Error{Code: belay.CodeInvalid, Message: "the body must be a JSON object"}
	case errors.As(err, &wrong):
		return wrongField(wrong.Field, "the field "+wrong.Field+" is of the wrong type")
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return &belay.Error{
			Code: belay.CodeInvalid, Message: "there is no field " + strings.TrimPrefix(err.Error(),
				"json: unknown field "),
		}
	}
	var e *belay.Error
	if errors.As(err, &e) {
		return e
	}
	return &belay.Error{Code: belay.CodeInvalid, Message: "a value does not have the form of its field"}
}

// fieldError is an error that names the invalid field of the request.
type fieldError struct {
	field string
	err   *belay.Error
}

func (e *fieldError) Error() string { return e.err.Error() }

func (e *fieldError) Unwrap() error { return e.err }

func wrongField(field, message string) error {
	return &fieldError{field, &belay.Error{Code: belay.CodeInvalid, Message: message}}
}

// jsonOf encodes v as JSON with a newline at the end.
func jsonOf(v any) *bytes.Buffer {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // never happens, because v consists of strings, numbers and JSON from the store
	}
	return &b
}

// reply sends a JSON response.
func reply(w http.ResponseWriter, status int, v any) {
	b := jsonOf(v)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// problem converts an error to the body of an error response, and logs the error if it is internal.
func (s *Service) problem(r *http.Request, err error) wire.Problem {
	if ctx := r.Context(); ctx.Err() != nil && belay.CodeOf(err) == belay.CodeInternal {
		err = &belay.Error{
			Code: belay.CodeUnavailable, Message: "the request was not finished in time; try again",
			RetryAfter: time.Second,
		}
	}
	p := wire.ProblemOf(err)
	if p.Code == belay.CodeInternal {
		s.o.Log.ErrorContext(r.Context(), "belay: a request about agents failed", "route", r.Pattern, "request",
			httpapi.RequestID(r.Context()), "error", err)
	}
	return p
}

// refuse sends an error response.
func (s *Service) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := s.problem(r, err)
	retry(w, &p)
	p.RequestID = httpapi.RequestID(r.Context())
	w.Header().Set("Content-Type", wire.ProblemType)
	body, err := json.Marshal(&p)
	if err != nil { // never happens, because strings and numbers can always be marshalled
		body = nil
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

// retry sets the header Retry-After for an error after which a retry may succeed.
func retry(w http.ResponseWriter, p *wire.Problem) {
	switch p.Status {
	case http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if w.Header().Get("Retry-After") == "" {
			w.Header().Set("Retry-After", strconv.FormatInt(wire.RetryAfter(wire.Duration(p.RetryAfterMS)), 10))
		}
	}
}

// stream writes server-sent events to a client. The client must accept each event within the
// duration timeout.
type stream struct {
	w       http.ResponseWriter
	timeout time.Duration
}

func (s *Service) stream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	return &stream{w, s.o.WriteTimeout}
}

// send writes text to the client and reports whether the client accepted it.
func (s *stream) send(text []byte) bool {
	c := http.NewResponseController(s.w)
	// the error is ignored, because the response writers of some tests support no deadline
	_ = c.SetWriteDeadline(time.Now().Add(s.timeout))
	if _, err := s.w.Write(text); err != nil {
		return false
	}
	if err := c.Flush(); err != nil {
		return false
	}
	_ = c.SetWriteDeadline(time.Time{}) // over HTTP/2 the deadline would end an idle stream
	return true
}

func (s *stream) ping() bool { return s.send([]byte(": ping\n\n")) }

// event writes one event; name and id may be empty.
func (s *stream) event(name, id string, v any) bool {
	data, err := json.Marshal(v)
	if err != nil {
		return false
	}
	var b bytes.Buffer
	if name != "" {
		b.WriteString("event: " + name + "\n")
	}
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	b.WriteString("data: ")
	b.Write(data)
	b.WriteString("\n\n")
	return s.send(b.Bytes())
}

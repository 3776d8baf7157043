package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/belaydev/belay"
)

const (
	// attempt is how long a server may take for one try of a call, beside what
	// it was asked to wait.
	attempt = 10 * time.Second
	// maxAnswer bounds what is read of one answer.
	maxAnswer = 256 << 20
	// smallBody is how large a request is that travels with heartbeats, and that
	// nothing but a dead connection can hold up.
	smallBody = 64 << 10
)

// request is one call.
type request struct {
	op     string // for errors, without secrets
	method string
	path   string // below the server's own
	query  url.Values
	header http.Header
	body   []byte // JSON, or nil
	// reply takes a successful answer's JSON.
	reply any
	// wait is how long the server was asked to wait; longer, how much longer
	// than usual the call may take besides.
	wait   time.Duration
	longer time.Duration
	// read says that the call changes nothing.
	read bool
	// alive says that the call keeps a session, and travels with what is small however long it is.
	alive bool
	// bare takes any answer of a working server for a success.
	bare bool

	status int         // of the answer
	answer http.Header // of the answer
}

// once makes the call one time.
func (c *Client) once(ctx context.Context, r *request) error {
	done, err := c.begin()
	if err != nil {
		return err
	}
	defer done()
	return c.try(ctx, r)
}

// try makes the call within the time it may take. What only reads or waits ends
// with Close.
func (c *Client) try(ctx context.Context, r *request) error {
	sub, cancel := context.WithTimeoutCause(ctx, attempt+r.wait+r.longer, errSlow)
	defer cancel()
	small := r.alive || len(r.body) <= smallBody
	link := c.large
	if small {
		link = c.small
	}
	over := link.line()
	sub, end := context.WithCancelCause(sub)
	defer end(nil)
	if r.read || r.wait > 0 {
		stop := context.AfterFunc(c.open, func() { end(errClosed) })
		defer stop()
	}
	if small {
		stop := context.AfterFunc(over.good, func() { end(errSuspect) })
		defer stop()
	}
	err := c.exchange(sub, over, r)
	long := small && len(r.body) > smallBody // a line on which it takes too long may do for all others
	if err != nil && r.wait == 0 && !long && errors.Is(sub.Err(), context.DeadlineExceeded) {
		if link.suspect(over) && small {
			c.large.suspect(c.large.line()) // the same way, on which it would take long to be told
		}
	}
	switch {
	case err == nil || sub.Err() == nil || belay.CodeOf(err) != belay.CodeUnavailable:
		return err
	case ctx.Err() == nil: // the time of this try is over, or the Client's
		return unreached(r, context.Cause(sub))
	case r.read:
		return context.Cause(ctx)
	}
	return &belay.Error{Code: belay.CodeUnavailable, Op: r.op, Err: context.Cause(ctx), Message: unknown}
}

// unknown is what is known of a write without an answer.
const unknown = "no answer; it may have happened or not"

var (
	errSlow    = errors.New("the server took too long")
	errSuspect = errors.New("another call on the same connection was not answered")
)

// exchange sends the request and reads the answer.
func (c *Client) exchange(ctx context.Context, over *line, r *request) error {
	req, err := c.request(ctx, r)
	if err != nil {
		return &belay.Error{Code: belay.CodeInvalid, Op: r.op, Message: err.Error()}
	}
	resp, err := over.Do(req)
	if err != nil {
		return unreached(r, err)
	}
	defer func() { _ = resp.Body.Close() }()
	r.status, r.answer = resp.StatusCode, resp.Header
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return unreached(r, err)
	case len(body) > maxAnswer:
		return &belay.Error{
			Code: belay.CodePayloadTooLarge, Op: r.op, Message: fmt.Sprintf("the answer has more than %d bytes",
				maxAnswer),
		}
	case r.bare && (resp.StatusCode < 300 || resp.StatusCode >= 400) && resp.StatusCode < 500:
		return nil
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return refusal(r.op, resp, body)
	}
	if resp.Header.Get("Idempotency-Replayed") == "true" {
		belay.NoteReplay(ctx)
	}
	if r.reply == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.Unmarshal(body, r.reply); err != nil {
		return &belay.Error{Code: belay.CodeInternal, Op: r.op, Message: "the server's answer cannot be read", Err: err}
	}
	return nil
}

// answer is one that comes little by little. It must be closed.
type answer struct {
	body  io.Reader
	ctx   context.Context // ends with it
	close func()
}

// stream makes a call whose answer begins at once and goes on for as long as the
// server was asked to wait.
func (c *Client) stream(ctx context.Context, r *request) (*answer, error) {
	over := c.small.line()
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(over.good, func() { end(errSuspect) })
	late := time.AfterFunc(attempt, func() { end(errSlow) })
	closing := func() {
		late.Stop()
		stop()
		end(nil)
	}
	resp, err := c.begun(ctx, over, r) //nolint:bodyclose // by the answer
	if err != nil {
		defer closing()
		if cause := context.Cause(ctx); cause != nil {
			return nil, unreached(r, cause)
		}
		return nil, err
	}
	late.Reset(r.wait + attempt)
	return &answer{resp.Body, ctx, func() {
		closing()
		_ = resp.Body.Close()
	}}, nil
}

// begun sends the request and reads how the answer begins.
func (c *Client) begun(ctx context.Context, over *line, r *request) (*http.Response, error) {
	req, err := c.request(ctx, r)
	if err != nil {
		return nil, &belay.Error{Code: belay.CodeInvalid, Op: r.op, Message: err.Error()}
	}
	resp, err := over.Do(req)
	if err != nil {
		return nil, unreached(r, err)
	}
	r.status = resp.StatusCode
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); r.status == http.StatusOK &&
		kind == "text/event-stream" {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, smallBody))
	if err != nil {
		return nil, unreached(r, err)
	}
	return nil, refusal(r.op, resp, body)
}

func (c *Client) request(ctx context.Context, r *request) (*http.Request, error) {
	u := *c.target.base
	u.RawPath = u.Path + r.path
	path, err := url.PathUnescape(u.RawPath)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawQuery = path, r.query.Encode()
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, err
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.set.userAgent)
	if c.set.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.set.key)
	}
	return req, nil
}

// marshal writes JSON as it is, without escapes for browsers: they would make a
// payload longer than it is.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// body is marshal for a request whose caller may have given what is no JSON.
func body(op string, v any) ([]byte, error) {
	b, err := marshal(v)
	if err != nil {
		return nil, &belay.Error{Code: belay.CodeInvalid, Op: op, Message: "it is not valid JSON", Err: err}
	}
	return b, nil
}

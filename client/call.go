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
	// attempt is how long a server may take to answer one try of a call, in addition to the time
	// that the call requests the server to wait.
	attempt = 10 * time.Second
	// maxAnswer is the largest size of an answer, in bytes.
	maxAnswer = 256 << 20
	// smallBody is the largest body of a request that uses the same connection as heartbeats, in
	// bytes. So no large request delays heartbeats.
	smallBody = 64 << 10
)

// request describes one HTTP call.
type request struct {
	op     string // the name of the call in errors; it contains no secret
	method string
	path   string // relative to the path of the server's URL
	query  url.Values
	header http.Header
	body   []byte // the body as JSON, or nil
	// reply points to the value into which the client decodes the JSON of a successful answer.
	reply any
	// wait is how long the call requests the server to wait. longer is how much more time than
	// attempt+wait the call may take, for example because its body is large.
	wait   time.Duration
	longer time.Duration
	// read says that the call changes nothing.
	read bool
	// alive says that the call keeps a session alive. Such a call uses the connection for small
	// requests even if its body is large.
	alive bool
	// bare says that the call only checks that a server works: any answer is a success.
	bare bool

	status int         // the HTTP status of the answer
	answer http.Header // the header of the answer
}

// once makes a single try of the call. It counts the call as running, so that Close waits for the
// call.
func (c *Client) once(ctx context.Context, r *request) error {
	done, err := c.begin()
	if err != nil {
		return err
	}
	defer done()
	return c.try(ctx, r)
}

// try makes the call with a deadline. A call that only reads or waits ends when Close is called.
func (c *Client) try(ctx context.Context, r *request) error {
	sub, cancel := context.WithTimeoutCause(ctx, attempt+r.wait+r.longer, errSlow)
	defer cancel()
	small := r.alive || len(r.body) <= smallBody
	link := c.large
	if small {
		link = c.small
	}
	on := link.connection()
	sub, end := context.WithCancelCause(sub)
	defer end(nil)
	if r.read || r.wait > 0 {
		stop := context.AfterFunc(c.open, func() { end(errClosed) })
		defer stop()
	}
	if small {
		stop := context.AfterFunc(on.usable, func() { end(errSuspect) })
		defer stop()
	}
	err := c.exchange(sub, on, r)
	long := small && len(r.body) > smallBody // a long body may reach the deadline only because the connection is slow
	if err != nil && r.wait == 0 && !long && errors.Is(sub.Err(), context.DeadlineExceeded) {
		if link.retire(on) && small {
			// The connection for large requests takes the same route to the server. The client
			// replaces this connection too, because a ping on it would detect a broken route much
			// later.
			c.large.retire(c.large.connection())
		}
	}
	switch {
	case err == nil || sub.Err() == nil || belay.CodeOf(err) != belay.CodeUnavailable:
		return err
	case ctx.Err() == nil: // the deadline of this try has passed, or the Client was closed
		return noAnswer(r, context.Cause(sub))
	case r.read:
		return context.Cause(ctx)
	}
	return &belay.Error{Code: belay.CodeUnavailable, Op: r.op, Err: context.Cause(ctx), Message: outcomeUnknown}
}

// outcomeUnknown is the message for a write that got no answer.
const outcomeUnknown = "no answer; the write may have happened or not"

var (
	errSlow    = errors.New("the server took too long")
	errSuspect = errors.New("another call on the same connection was not answered")
)

// exchange sends the request over a connection and reads the answer.
func (c *Client) exchange(ctx context.Context, on *connection, r *request) error {
	req, err := c.request(ctx, r)
	if err != nil {
		return &belay.Error{Code: belay.CodeInvalid, Op: r.op, Message: err.Error()}
	}
	resp, err := on.Do(req)
	if err != nil {
		return noAnswer(r, err)
	}
	defer func() { _ = resp.Body.Close() }()
	r.status, r.answer = resp.StatusCode, resp.Header
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return noAnswer(r, err)
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

// answer is an answer that the server streams. The caller must close it.
type answer struct {
	body  io.Reader
	ctx   context.Context // ends when the answer is closed, or when its time is over
	close func()
	late  *time.Timer
}

// within ends the answer after the time d; 0 means never.
func (a *answer) within(d time.Duration) {
	if a.late.Stop(); d > 0 {
		a.late.Reset(d)
	}
}

// stream makes a call over a connection, whose answer is a stream of events. The answer must begin
// within the time attempt, and may last for the time r.wait longer, unless within sets another time.
func (c *Client) stream(ctx context.Context, on *connection, r *request) (*answer, error) {
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(on.usable, func() { end(errSuspect) })
	late := time.AfterFunc(attempt, func() { end(errSlow) })
	closing := func() {
		late.Stop()
		stop()
		end(nil)
	}
	resp, err := c.openStream(ctx, on, r) //nolint:bodyclose // closing the answer closes the body
	if err != nil {
		defer closing()
		if cause := context.Cause(ctx); cause != nil {
			return nil, noAnswer(r, cause)
		}
		return nil, err
	}
	late.Reset(r.wait + attempt)
	return &answer{resp.Body, ctx, func() {
		closing()
		_ = resp.Body.Close()
	}, late}, nil
}

// openStream sends the request and reads the status and the header of the answer.
func (c *Client) openStream(ctx context.Context, on *connection, r *request) (*http.Response, error) {
	req, err := c.request(ctx, r)
	if err != nil {
		return nil, &belay.Error{Code: belay.CodeInvalid, Op: r.op, Message: err.Error()}
	}
	resp, err := on.Do(req)
	if err != nil {
		return nil, noAnswer(r, err)
	}
	r.status = resp.StatusCode
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); r.status == http.StatusOK &&
		kind == "text/event-stream" {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, smallBody))
	if err != nil {
		return nil, noAnswer(r, err)
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
		if req.Header.Get("Content-Type") == "" {
			req.Header.Set("Content-Type", "application/json")
		}
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.set.userAgent)
	if c.set.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.set.key)
	}
	return req, nil
}

// marshal writes JSON without the HTML escapes of encoding/json, which would make a payload longer.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// body marshals the body of a request. If the body contains invalid JSON of the caller, the error
// has CodeInvalid.
func body(op string, v any) ([]byte, error) {
	b, err := marshal(v)
	if err != nil {
		return nil, &belay.Error{Code: belay.CodeInvalid, Op: op, Message: "the input is not valid JSON", Err: err}
	}
	return b, nil
}

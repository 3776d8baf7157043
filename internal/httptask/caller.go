package httptask

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/reach"
	"github.com/belaydev/belay/internal/run"
	"github.com/belaydev/belay/internal/secretref"
	"github.com/belaydev/belay/workflow"
)

// Caller sends the requests of executions. Its fields must be set before the first call of Run and
// not changed afterwards. A Caller is safe for concurrent use.
type Caller struct {
	// Dialer connects to the hosts that requests may reach.
	Dialer reach.Dialer
	// Proxy is a forward proxy to which all connections are made; nil for none. The proxy resolves
	// the names, so it must refuse addresses that requests may not reach.
	Proxy *url.URL
	// Secrets are the secrets to which requests may refer; nil for none.
	Secrets *secretref.Store
	// Owners returns the names of the workflows to which a child of an execution belongs, in addition
	// to its own workflow; for a task of a document that is the workflow document. Rules about
	// secrets may name them. nil means that there are none.
	Owners func(ctx context.Context, parent belay.ExecutionID) ([]string, error)
	// Agent is the header User-Agent, unless a request has its own.
	Agent string
	// TLS has the certificates that the Caller trusts; nil for those of this machine.
	TLS *tls.Config

	once      sync.Once
	transport *http.Transport
}

// maxAnswerHeader is the maximum size of the headers of an answer, in bytes.
const maxAnswerHeader = 64 << 10

func (c *Caller) client() *http.Transport {
	c.once.Do(func() {
		c.transport = &http.Transport{
			DialContext: c.dial, TLSClientConfig: c.TLS, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: maxAnswerHeader,
			MaxIdleConns: 64, MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second,
		}
		if c.Proxy != nil {
			c.transport.Proxy = http.ProxyURL(c.Proxy)
		}
	})
	return c.transport
}

// dial connects to a host and port, or to the proxy.
func (c *Caller) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.Proxy != nil {
		return new(net.Dialer).DialContext(ctx, network, address) // the transport connects to nothing else
	}
	t, err := reach.ParseTarget(address, 0)
	if err != nil {
		return nil, err
	}
	return c.Dialer.Connect(ctx, t)
}

// Close closes connections that are not in use.
func (c *Caller) Close() { c.client().CloseIdleConnections() }

// Run is the workflow function: it sends the request once, and returns the answer.
func (c *Caller) Run(ctx context.Context, input json.RawMessage) (*Response, error) {
	in, err := decode(input)
	if err != nil {
		return nil, belay.Permanent(err)
	}
	a := run.From(ctx).Assignment()
	names := []string{a.Workflow}
	if a.Parent != (belay.ExecutionID{}) && c.Owners != nil && c.Secrets != nil {
		more, err := c.Owners(ctx, a.Parent)
		if err != nil {
			return nil, fmt.Errorf("find out to which workflow the request belongs: %w", err)
		}
		names = append(names, more...)
	}
	key := fmt.Sprintf("%s-%d", a.Lease.Execution, a.Generation)
	return c.send(ctx, in, c.Secrets.Scope(names...), key)
}

// RunAny is Run for a caller that knows no type of the output.
func (c *Caller) RunAny(ctx context.Context, input json.RawMessage) (any, error) {
	return c.Run(ctx, input)
}

// send sends a request, with its redirects, and returns the answer or the error of the run.
func (c *Caller) send(ctx context.Context, in *Request, scope *secretref.Scope, key string) (*Response, error) {
	began := time.Now()
	req, err := prepare(in, scope, key, c.Agent, workflow.Trace(ctx))
	if err == nil {
		err = req.sign(key, began)
	}
	if err != nil {
		return nil, err
	}
	limit := in.Timeout.D()
	if limit == 0 {
		limit = DefaultTimeout
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := c.exchange(within, req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, fmt.Errorf("%s %s: %w", req.method, req.shown, cause)
		}
		what := req.method + " " + req.shown
		if within.Err() != nil {
			return nil, &timeoutError{fmt.Sprintf("%s: it took longer than its timeout of %s", what, limit)}
		}
		if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
			return nil, &timeoutError{what + ": the connection timed out"}
		}
		return nil, req.failure(err)
	}
	answer.DurationMS = time.Since(began).Milliseconds()
	answer.Notes = req.notes
	answer.fit()
	return answer, req.judge(answer)
}

// exchange sends a request and follows its redirects, and reads the answer.
func (c *Caller) exchange(ctx context.Context, req *call) (*Response, error) {
	most := DefaultRedirects
	if req.in.MaxRedirects != nil {
		most = *req.in.MaxRedirects
	}
	for hops := 0; ; hops++ {
		resp, err := c.roundTrip(ctx, req)
		if err != nil {
			return nil, err
		}
		next, err := req.redirect(resp, hops, most)
		if err == nil && next == nil {
			var answer *Response
			answer, err = req.read(resp)
			if err == nil {
				answer.Redirects = hops
			}
			_ = resp.Body.Close()
			return answer, err
		}
		_ = resp.Body.Close()
		if err != nil {
			return nil, err
		}
		req = next
	}
}

// roundTrip sends one request to one host, after all checks.
func (c *Caller) roundTrip(ctx context.Context, req *call) (*http.Response, error) {
	if !c.Dialer.Policy.Lists(req.target) {
		return nil, reach.ErrUnlisted
	}
	if !req.stripped {
		if err := req.scope.CheckHost(req.target, req.own); err != nil {
			return nil, err
		}
	}
	r := (&http.Request{
		Method: req.method, URL: req.url, Header: req.header, Host: req.url.Host, Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1,
	}).WithContext(ctx)
	if req.body != nil {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(req.body)), int64(len(req.body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(req.body)), nil }
	}
	if err := workflow.Guard(ctx); err != nil && !errors.Is(err, run.ErrNoRun) {
		return nil, err
	}
	return c.client().RoundTrip(r)
}

// redirects are the statuses of redirects that are followed.
var redirects = []int{301, 302, 303, 307, 308}

// redirect returns the request to which an answer leads; nil if the answer is no redirect, or is
// expected as it is.
func (c *call) redirect(resp *http.Response, hops, most int) (*call, error) {
	location := resp.Header.Get("Location")
	if !slices.Contains(redirects, resp.StatusCode) || location == "" || most == 0 || c.in.Expect.has(resp.StatusCode) {
		return nil, nil
	}
	if hops == most {
		return nil, belay.Permanent(fmt.Errorf("there are more than %d redirects", most))
	}
	if len(location) > maxURL {
		return nil, belay.Permanent(errors.New("the address of a redirect is too long"))
	}
	relative, err := c.url.Parse(location)
	if err != nil {
		return nil, belay.Permanent(errors.New("the address of a redirect is not valid"))
	}
	next := *c
	if next.url, next.target, err = parseURL(relative.String()); err != nil {
		// The reason may quote a part of the address, and that part may be a part of a secret.
		return nil, belay.Permanent(errors.New("a redirect leads to an address that is not valid"))
	}
	next.header = c.header.Clone()
	if resp.StatusCode <= http.StatusSeeOther && c.method != http.MethodGet && c.method != http.MethodHead {
		next.method, next.body = http.MethodGet, nil
		next.header.Del("Content-Type")
	}
	if next.url.Scheme != c.url.Scheme || next.target != c.target {
		return next.leave(c, location)
	}
	return &next, nil
}

// leave prepares a request for another origin, to which a redirect leads: it removes all that may be
// a credential, and refuses the redirect if that is not possible. from is the request before.
func (c *call) leave(from *call, location string) (*call, error) {
	hider := c.scope.Hider()
	switch {
	case from.url.Scheme == "https" && c.url.Scheme == "http":
		return nil, belay.Permanent(errors.New("a redirect leads from https to http"))
	case c.body != nil && (c.private || c.in.SigningSecret != ""):
		return nil, belay.Permanent(errors.New("a redirect would send a body with secrets to another origin"))
	case hider.Text(location) != location || hider.Text(c.url.String()) != c.url.String():
		return nil, belay.Permanent(errors.New("a redirect would send a secret to another origin"))
	}
	for name, values := range c.header {
		kept := slices.Contains(travelling, name) || name == http.CanonicalHeaderKey(c.in.keyHeader())
		if !kept || hider.Text(values[0]) != values[0] {
			c.header.Del(name)
		}
	}
	c.stripped = true
	return c, nil
}

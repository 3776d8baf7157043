package client

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Client is a belay.Backend over HTTP. Make one with Dial.
type Client struct {
	set     settings
	target  target
	small   *link // heartbeats, claims, and all else that is no larger
	large   *link
	conns   conns
	batches batcher
	awaits  awaiter

	open  context.Context // ends with Close
	close context.CancelFunc

	mu      sync.Mutex     // makes begin and Close one after the other
	running sync.WaitGroup // calls and batches
}

var _ belay.Backend = (*Client)(nil)

// Dial makes a Client of the server at
//
//	http://HOST:PORT   HTTP/2 without TLS
//	https://HOST       HTTP/2, or HTTP/1.1 if no more is offered
//	unix:PATH          HTTP/2 over a socket of this host
//
// It looks once whether a server answers there, CodeUnavailable if none does,
// unless the option Lazy is given. Close ends the Client.
func Dial(ctx context.Context, url string, options ...Option) (*Client, error) {
	t, err := parseTarget(url)
	if err != nil {
		return nil, err
	}
	c := &Client{set: defaults(), target: t}
	c.open, c.close = context.WithCancel(context.WithoutCancel(ctx))
	for _, o := range options {
		o(&c.set)
	}
	if strings.ContainsFunc(c.set.key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &belay.Error{
			Code: belay.CodeInvalid, Op: "dial " + t.name(),
			Message: "the key is none: it holds spaces or what is no ASCII",
		}
	}
	c.small, c.large = c.link(brisk), c.link(roomy)
	c.batches.c, c.awaits.c = c, c
	if c.set.key != "" && t.exposes() {
		c.set.log.Warn("the key travels unencrypted; use https beyond this host", "server", t.name())
	}
	if c.set.lazy {
		return c, nil
	}
	if err := c.greet(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// greet looks whether somebody answers.
func (c *Client) greet(ctx context.Context) error {
	r := request{op: "dial " + c.target.name(), method: http.MethodGet, path: "/healthz", bare: true}
	return c.once(ctx, &r)
}

// Ready asks whether the server takes work: CodeUnavailable, with the reason, if not.
// Notes are worth knowing besides, such as that its clock was set.
func (c *Client) Ready(ctx context.Context) (notes []string, err error) {
	var h wire.Health
	err = c.once(ctx, &request{
		op: "ask " + c.target.name(), method: http.MethodGet, path: "/readyz", reply: &h, read: true,
	})
	return h.Notes, err
}

// Close refuses new calls, ends those that only wait, waits for the others, which
// takes as long as one may take at most, and closes the connections.
func (c *Client) Close() error {
	c.mu.Lock()
	c.close()
	c.mu.Unlock()
	c.running.Wait()
	c.conns.close()
	return nil
}

var errClosed = &belay.Error{Code: belay.CodeUnavailable, Message: "the client was closed"}

// begin counts a call until the function it returns is called.
func (c *Client) begin() (done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open.Err() != nil {
		return nil, errClosed
	}
	c.running.Add(1)
	return c.running.Done, nil
}

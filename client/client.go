package client

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Client is a belay.Backend over HTTP. Dial makes a Client.
type Client struct {
	set     settings
	target  target
	small   *link // for heartbeats, claims and other small requests
	large   *link // for requests with a large body
	conns   conns
	batches batcher
	awaits  awaiter

	open  context.Context // a context that ends with Close
	close context.CancelFunc

	mu      sync.Mutex     // locked by begin and Close, so that they do not run at the same time
	running sync.WaitGroup // counts calls and batches in progress
}

var _ belay.Backend = (*Client)(nil)

// Dial makes a Client that sends its calls to the server at one of these addresses:
//
//	http://HOST:PORT   HTTP/2 without TLS
//	https://HOST       HTTP/2, or HTTP/1.1 if the server offers no more
//	unix:PATH          HTTP/2 over a socket of this host
//
// Dial checks once that a server answers at the address, and returns CodeUnavailable if none does.
// With the option Lazy it does not check. Close ends the Client.
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
			Message: "the key is not valid: it has spaces or characters beyond ASCII",
		}
	}
	c.small, c.large = c.link(smallTuning), c.link(largeTuning)
	c.batches.c, c.awaits.c = c, c
	if c.set.key != "" && t.unencrypted() {
		c.set.log.Warn("the key is sent unencrypted; use https to reach other hosts", "server", t.name())
	}
	if c.set.lazy {
		return c, nil
	}
	if err := c.probe(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// probe checks that a server answers.
func (c *Client) probe(ctx context.Context) error {
	r := request{op: "dial " + c.target.name(), method: http.MethodGet, path: "/healthz", bare: true}
	return c.once(ctx, &r)
}

// Ready requests the server's health. It returns CodeUnavailable with the reason if the server does
// not take work. The notes are further notices for operators, for example that the server's clock
// was set.
func (c *Client) Ready(ctx context.Context) (notes []string, err error) {
	var h wire.Health
	err = c.once(ctx, &request{
		op: "ask " + c.target.name(), method: http.MethodGet, path: "/readyz", reply: &h, read: true,
	})
	return h.Notes, err
}

// Close refuses new calls, ends calls that only read or wait, and waits until all other calls have ended, at most as
// long as one call may take. Then it closes the connections.
func (c *Client) Close() error {
	c.mu.Lock()
	c.close()
	c.mu.Unlock()
	c.running.Wait()
	c.conns.close()
	return nil
}

var errClosed = &belay.Error{Code: belay.CodeUnavailable, Message: "the client was closed"}

// begin counts a call as running until its caller calls done. It fails once the Client is closed.
func (c *Client) begin() (done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open.Err() != nil {
		return nil, errClosed
	}
	c.running.Add(1)
	return c.running.Done, nil
}

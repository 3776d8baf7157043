package client

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// link makes calls over one connection to the server, and replaces the connection when the server
// does not answer on it.
type link struct {
	open func() *connection

	mu      sync.Mutex
	current *connection
}

// connection makes calls over one HTTP/2 connection. If the connection is closed, its transport
// opens it again.
type connection struct {
	*http.Client
	usable context.Context // a context that ends when the connection is replaced
	retire context.CancelFunc
}

// tuning has the timeouts and buffer sizes of the connections of a link.
type tuning struct {
	// silence is how long the server may send nothing before the client sends a ping, and answer is
	// how long the answer to the ping may take.
	silence, answer time.Duration
	// window is the largest number of bytes of answers in flight. So at most this many bytes of other
	// answers arrive before a new answer.
	window int
}

var (
	// smallTuning has timeouts so short that the client notices a dead connection before a lease
	// expires.
	smallTuning = tuning{silence: 2 * time.Second, answer: 3 * time.Second, window: 512 << 10}
	// largeTuning has longer timeouts, for a slow connection that is busy with large payloads.
	largeTuning = tuning{silence: 5 * time.Second, answer: 10 * time.Second, window: 512 << 10}
)

func (c *Client) link(f tuning) *link {
	l := &link{open: func() *connection {
		usable, retire := context.WithCancel(context.WithoutCancel(c.open))
		return &connection{&http.Client{
			Transport:     c.transport(f),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}, usable, retire}
	}}
	l.current = l.open()
	return l
}

// connection returns the current connection for new calls.
func (l *link) connection() *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// retire replaces the connection old, on which a call was not answered in time. New calls use the
// next connection. Small calls that are in flight on old end, and their callers may repeat them;
// large calls continue, since they may only be slow. retire returns false if another call has already
// replaced old.
func (l *link) retire(old *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != old {
		return false
	}
	l.current = l.open()
	old.retire()
	old.CloseIdleConnections()
	return true
}

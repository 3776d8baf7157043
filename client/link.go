package client

import (
	"net/http"
	"sync"
	"time"
)

// link is a way to the server: one connection, as long as that does.
type link struct {
	open func() *http.Client

	mu      sync.Mutex
	current *http.Client
}

// feel is what a link is tuned for.
type feel struct {
	// silence is how long nothing may come before the server is asked for a sign
	// of life, and answer how long that may take.
	silence, answer time.Duration
	// window is how many bytes of answers may be on their way, and so before
	// what comes next.
	window int
}

var (
	// brisk finds a dead connection before a lease runs out.
	brisk = feel{silence: 2 * time.Second, answer: 3 * time.Second, window: 256 << 10}
	// roomy bears a slow line that is full of payloads.
	roomy = feel{silence: 5 * time.Second, answer: 10 * time.Second, window: 4<<20 - 1}
)

func (c *Client) link(f feel) *link {
	l := &link{open: func() *http.Client {
		return &http.Client{
			Transport:     c.transport(f),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}}
	l.current = l.open()
	return l
}

// client is what calls are made with now.
func (l *link) client() *http.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// suspect has later calls make a connection of their own: one over old was not
// answered in time. Those under way stay where they are.
func (l *link) suspect(old *http.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == old {
		l.current = l.open()
		old.CloseIdleConnections()
	}
}

package client

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// link is a way to the server: one line, as long as that is not suspect.
type link struct {
	open func() *line

	mu      sync.Mutex
	current *line
}

// line makes calls over one connection, as long as that lasts.
type line struct {
	*http.Client
	good    context.Context // ends when the line is suspect
	suspect context.CancelFunc
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
	brisk = feel{silence: 2 * time.Second, answer: 3 * time.Second, window: 512 << 10}
	// roomy bears a slow line that is full of payloads.
	roomy = feel{silence: 5 * time.Second, answer: 10 * time.Second, window: 512 << 10}
)

func (c *Client) link(f feel) *link {
	l := &link{open: func() *line {
		good, suspect := context.WithCancel(context.WithoutCancel(c.open))
		return &line{&http.Client{
			Transport:     c.transport(f),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}, good, suspect}
	}}
	l.current = l.open()
	return l
}

// line is what calls are made over now.
func (l *link) line() *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// suspect has later calls make a connection of their own: one over old was not
// answered in time. What is under way on it ends, to be made again elsewhere, except
// what is large and may only be slow. It is false if that was done before.
func (l *link) suspect(old *line) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != old {
		return false
	}
	l.current = l.open()
	old.suspect()
	old.CloseIdleConnections()
	return true
}

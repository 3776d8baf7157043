package socket

import (
	"net"
	"net/http"
	"sync"
)

// busy knows the connections of a server that have requests on them. A server's
// own way to stop leaves idle connections of HTTP/2 a second to close.
type busy struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
	idle  chan struct{} // closed when there is none; nil while nobody waits
}

// note is a server's ConnState.
func (b *busy) note(c net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch state {
	case http.StateActive:
		if b.conns == nil {
			b.conns = make(map[net.Conn]bool)
		}
		b.conns[c] = true
	case http.StateIdle, http.StateClosed, http.StateHijacked:
		delete(b.conns, c)
	case http.StateNew:
	}
	if len(b.conns) == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// over is closed when, from now on, no connection has a request on it.
func (b *busy) over() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	idle := make(chan struct{})
	if len(b.conns) == 0 {
		close(idle)
		return idle
	}
	b.idle = idle
	return idle
}

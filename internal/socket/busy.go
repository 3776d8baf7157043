package socket

import (
	"net"
	"net/http"
	"sync"
)

// busy knows which connections of a server have requests in progress. It is used instead of
// http.Server.Shutdown, which waits up to a second for idle HTTP/2 connections to close.
type busy struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
	idle  chan struct{} // closed when conns gets empty; nil until over returns it
}

// note is the ConnState function of the server.
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

// over returns a channel that is closed as soon as no connection has a request in progress.
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

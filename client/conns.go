package client

import (
	"net"
	"sync"
)

// conns is the set of open connections. Client.Close uses this set to close all connections,
// because an http.Transport can close only its idle connections.
type conns struct {
	mu     sync.Mutex
	open   map[*conn]bool
	closed bool
}

type conn struct {
	net.Conn
	of *conns
}

func (s *conns) add(c net.Conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return nil, errClosed
	}
	if s.open == nil {
		s.open = make(map[*conn]bool)
	}
	k := &conn{c, s}
	s.open[k] = true
	return k, nil
}

// Close closes the connection.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (s *conns) close() {
	s.mu.Lock()
	open := s.open
	s.open, s.closed = nil, true
	s.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close()
	}
}

package egress

import (
	"net"
	"sync"
	"time"
)

// bounded is a listener with a limited number of open connections. While the limit is reached,
// further connections wait in the kernel.
type bounded struct {
	net.Listener
	server *Server
	slots  chan struct{}
	once   sync.Once
	over   chan struct{}
}

func newBounded(l net.Listener, s *Server) *bounded {
	return &bounded{Listener: l, server: s, slots: make(chan struct{}, s.Limits.Connections), over: make(chan struct{})}
}

// Accept waits until fewer connections are open than the limit allows, and then accepts the next
// connection.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.slots <- struct{}{}:
	case <-b.over:
		return nil, net.ErrClosed
	}
	inner, err := b.Listener.Accept()
	if err != nil {
		<-b.slots
		return nil, err
	}
	c := &accepted{Conn: inner, listener: b}
	c.idle = time.AfterFunc(b.server.Limits.Idle, func() { _ = c.Close() })
	if !b.server.track(c) {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close closes the listener. Accepted connections stay open.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.over) })
	return b.Listener.Close()
}

// accepted is a connection from the job to the proxy. The proxy closes the connection after the
// connection has carried no bytes for the idle time. All bytes of a tunnel, in both directions, go
// through this connection.
type accepted struct {
	net.Conn
	listener *bounded
	idle     *time.Timer
	once     sync.Once
}

// Read reads from the connection and restarts the idle time.
func (c *accepted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.used(n)
	return n, err
}

// Write writes to the connection and restarts the idle time.
func (c *accepted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.used(n)
	return n, err
}

func (c *accepted) used(n int) {
	// Stop returns false if the timer has already fired; the connection is then closed.
	if n > 0 && c.idle.Stop() {
		c.idle.Reset(c.listener.server.Limits.Idle)
	}
}

// Close closes the connection, so that the listener can accept another.
func (c *accepted) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.idle.Stop()
		c.listener.server.untrack(c)
		<-c.listener.slots
	})
	return err
}

// CloseWrite closes the direction to the job; the job may still send.
func (c *accepted) CloseWrite() error { return closeWrite(c.Conn) }

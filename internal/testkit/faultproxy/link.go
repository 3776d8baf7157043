package faultproxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	pieceSize = 16 << 10
	// queueSize is the maximum number of undelivered pieces of data in one direction. When it is
	// reached, the sender has to wait, as with a real network.
	queueSize = 64
)

// link is one connection through the proxy, with a side to the client and a side to the server.
type link struct {
	p              *Proxy
	client, server net.Conn
	once           sync.Once
	over           chan struct{} // closed when both sides are closed
	half           atomic.Bool   // the server's side is closed, and the client has not been informed
}

// piece is data that the proxy has read and not delivered yet.
type piece struct {
	data []byte
	due  time.Time
}

// cut closes both sides with a reset.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.over)
		reset(l.client)
		reset(l.server)
		l.p.cutOne()
	})
}

// close closes both sides without a reset.
func (l *link) close() {
	l.once.Do(func() {
		close(l.over)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// halve resets the connection to the server, and leaves the connection to the client open.
func (l *link) halve() {
	l.half.Store(true)
	reset(l.server)
}

// carry copies data from src to dst until src has ended or the link was cut.
func (l *link) carry(d Direction, src, dst net.Conn) {
	queue := make(chan piece, queueSize)
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		l.deliver(d, dst, queue)
	}()
	err := l.read(src, queue)
	if err != nil && !l.half.Load() {
		l.cut() // if one side was reset, cut resets the other
	}
	close(queue)
	<-delivered
}

// read puts the data of src into the queue until src ends.
func (l *link) read(src net.Conn, queue chan<- piece) error {
	for {
		buf := make([]byte, pieceSize)
		n, err := src.Read(buf)
		if n > 0 {
			select {
			case queue <- piece{data: buf[:n], due: time.Now().Add(l.p.latency())}:
			case <-l.over:
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// deliver writes the pieces of the queue to dst with the delays of the faults, and then closes dst
// for writing.
func (l *link) deliver(d Direction, dst net.Conn, queue <-chan piece) {
	for m := range queue {
		if !l.pause(time.Until(m.due)) || !l.pause(l.p.transfer(len(m.data))) || !l.allowed(d) || d == Down &&
			l.half.Load() {
			continue // the link was cut, or is half open, so the data is dropped
		}
		data, whole := l.p.through(d, m.data)
		if _, err := dst.Write(data); err != nil && !l.half.Load() || !whole {
			l.cut()
		}
	}
	if !l.allowed(d) || l.half.Load() {
		return
	}
	if c, ok := dst.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}

// allowed waits while the direction delivers nothing, and reports whether the link is still open.
func (l *link) allowed(d Direction) bool {
	for {
		held, changed := l.p.held(d)
		if !held {
			return l.pause(0)
		}
		select {
		case <-changed:
		case <-l.over:
			return false
		}
	}
}

// pause waits for d, and reports whether the link is still open.
func (l *link) pause(d time.Duration) bool {
	if d <= 0 {
		select {
		case <-l.over:
			return false
		default:
			return true
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.over:
		return false
	}
}

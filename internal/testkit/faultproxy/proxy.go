package faultproxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"
)

// Direction is one of the two ways through the proxy, or both.
type Direction uint8

// The directions: Up is from the client to the server, and Down from the server to the client.
const (
	Up Direction = 1 << iota
	Down
	Both = Up | Down
)

// Fault is a set of network faults. The zero Fault is a working network.
type Fault struct {
	// Refuse resets new connections.
	Refuse bool
	// Hold delivers nothing in these directions until the fault is over.
	Hold Direction
	// Latency is the delay of all data, and Jitter is the maximum of a random further delay.
	Latency, Jitter time.Duration
	// Bandwidth is the number of bytes a second in each direction of a connection; 0 means no
	// limit.
	Bandwidth int
	// CutUp and CutDown are the probabilities, from 0 to 1, with which a piece of data is dropped
	// and its connection is cut.
	CutUp, CutDown float64
}

// Counts are the counters of a proxy since it started.
type Counts struct {
	Connections, Refused, Cut int
	// Up and Down are the numbers of bytes delivered in each direction.
	Up, Down int64
}

// Proxy passes connections on to one server.
type Proxy struct {
	listener net.Listener
	network  string
	target   string
	done     sync.WaitGroup
	ctx      context.Context
	cancel   context.CancelFunc

	mu      sync.Mutex
	rand    *rand.Rand
	fault   Fault
	changed chan struct{} // closed when the fault changes
	links   map[*link]bool
	left    int64 // the number of bytes that pass before CutAfter cuts; 0 means no cut
	counts  Counts
}

// Listen opens a proxy on a free port of this host's loopback. The target is
// HOST:PORT or unix:PATH.
func Listen(target string, seed uint64) (*Proxy, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		return nil, fmt.Errorf("listen for %s: %w", target, err)
	}
	p := &Proxy{
		listener: l, network: "tcp", target: target, ctx: ctx, cancel: cancel,
		rand:    rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // the same seed must give the same chances
		changed: make(chan struct{}), links: make(map[*link]bool),
	}
	if path, ok := strings.CutPrefix(target, "unix:"); ok {
		p.network, p.target = "unix", path
	}
	p.done.Go(p.accept)
	return p, nil
}

// Addr is the address on which the proxy listens: HOST:PORT.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends the proxy and every connection, and waits until they have ended.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.cancel()
	p.Cut()
	p.done.Wait()
	return err
}

// Set replaces the present faults by f.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
}

// Heal ends every fault, and delivers the data that the fault Hold kept.
func (p *Proxy) Heal() { p.Set(Fault{}) }

// Cut resets every open connection on both sides. The undelivered data of the connections is lost.
func (p *Proxy) Cut() {
	for _, l := range p.open() {
		l.cut()
	}
}

// CutAfter makes the proxy deliver n more bytes to its clients, and then cut the connection that
// delivered the last of these bytes. So one client gets only a part of a reply.
func (p *Proxy) CutAfter(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = n
}

// HalfOpen ends every open connection on the server's side without informing the clients. The data
// that the clients send, and undelivered data for them, is lost.
func (p *Proxy) HalfOpen() {
	for _, l := range p.open() {
		l.halve()
	}
}

// Counts returns the counters.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

func (p *Proxy) open() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*link, 0, len(p.links))
	for l := range p.links {
		all = append(all, l)
	}
	return all
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.fault.Refuse
		if p.counts.Connections++; refuse {
			p.counts.Refused++
		}
		p.mu.Unlock()
		if refuse {
			reset(c)
			continue
		}
		p.done.Go(func() { p.pass(c) })
	}
}

// pass connects a client with the server until both have ended or the link is cut.
func (p *Proxy) pass(client net.Conn) {
	var d net.Dialer
	server, err := d.DialContext(p.ctx, p.network, p.target)
	if err != nil {
		reset(client)
		return
	}
	l := &link{p: p, client: client, server: server, over: make(chan struct{})}
	p.mu.Lock()
	p.links[l] = true
	p.mu.Unlock()
	if p.ctx.Err() != nil { // the proxy was closed while it connected to the server
		l.cut()
	}
	var both sync.WaitGroup
	both.Go(func() { l.carry(Up, client, server) })
	both.Go(func() { l.carry(Down, server, client) })
	both.Wait()
	l.close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// reset closes a connection so that the other end gets an error.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

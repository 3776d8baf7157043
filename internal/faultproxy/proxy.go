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

// Direction is one or both ways through the proxy.
type Direction uint8

// The directions: Up is from the client to the server.
const (
	Up Direction = 1 << iota
	Down
	Both = Up | Down
)

// Fault is what is wrong with the network. The zero Fault is nothing.
type Fault struct {
	// Refuse resets new connections.
	Refuse bool
	// Hold delivers nothing in these directions until the fault is over.
	Hold Direction
	// Latency is how late everything arrives, and Jitter how much later at most.
	Latency, Jitter time.Duration
	// Bandwidth is how many bytes a second pass in each direction of a
	// connection; 0 is all.
	Bandwidth int
	// CutUp and CutDown are the chances, from 0 to 1, that a piece of data is
	// dropped and its connection cut in its place.
	CutUp, CutDown float64
}

// Counts say what a proxy has done since it began.
type Counts struct {
	Connections, Refused, Cut int
	// Up and Down are the bytes delivered.
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
	left    int64 // bytes down until CutAfter cuts; 0 never
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
		rand:    rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // chance that can be had again
		changed: make(chan struct{}), links: make(map[*link]bool),
	}
	if path, ok := strings.CutPrefix(target, "unix:"); ok {
		p.network, p.target = "unix", path
	}
	p.done.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens: HOST:PORT.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends the proxy and every connection, and waits for that.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.cancel()
	p.Cut()
	p.done.Wait()
	return err
}

// Set makes f what is wrong from now on, in place of what was.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
}

// Heal ends every fault; what was held is delivered.
func (p *Proxy) Heal() { p.Set(Fault{}) }

// Cut resets every connection that is open, on both sides. What was held in them is
// lost.
func (p *Proxy) Cut() {
	for _, l := range p.open() {
		l.cut()
	}
}

// CutAfter cuts the connection that delivers the n-th byte from now on to a client,
// with that byte: a reply that was sent and does not come back whole.
func (p *Proxy) CutAfter(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = n
}

// HalfOpen ends every open connection on the server's side and tells the clients
// nothing: what they send vanishes, and so does what was on its way to them.
func (p *Proxy) HalfOpen() {
	for _, l := range p.open() {
		l.halve()
	}
}

// Counts says what was done so far.
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

// pass connects a client with the server until both have ended or it is cut.
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
	if p.ctx.Err() != nil { // closed meanwhile
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

// reset closes a connection so that its other end gets an error.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

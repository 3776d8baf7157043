package egress

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"sync"
	"time"

	"github.com/belaydev/belay/internal/reach"
)

// Server is a proxy through which one job reaches the hosts that its policy allows. Its fields must
// be set before Serve and not changed afterwards.
type Server struct {
	// Policy lists the allowed hosts; nil allows no host.
	Policy *reach.Policy
	// Token, if set, is required in every request: as the password of basic credentials with any
	// user name, or as a bearer token.
	Token string
	// Log gets one entry for each refused target; may be nil.
	Log *slog.Logger
	// Dial connects to an IP address and port that the server has checked; nil means a net.Dialer.
	// Dial must not resolve names.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Resolve returns the addresses of a name; nil means this machine's resolver.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Closed, if set, returns true for addresses that no policy may allow: the addresses of Belay
	// itself. The address of the proxy's own listener is always refused.
	Closed func(address netip.AddrPort) bool
	// Limits limit the resources of this process that the job may use.
	Limits Limits

	mu       sync.Mutex
	over     bool
	life     context.Context
	stop     context.CancelFunc
	http     *http.Server
	open     map[net.Conn]struct{} // open connections to the job and to its targets
	working  sync.WaitGroup        // running requests
	finished chan struct{}         // closed when all connections and requests have ended
	own      netip.AddrPort
	refused  refusals
	forward  *httputil.ReverseProxy
}

// Limits limit the resources that a job may use through its proxy. A field that is 0 has its
// default.
type Limits struct {
	// Connections is the maximum number of open connections of the job; further connections wait
	// until another is closed. Default 256.
	Connections int
	// Header is the maximum size of a request's header, in bytes. Default 64 KiB.
	Header int
	// HeaderTimeout is the time in which a request's header must arrive. Default 10 s.
	HeaderTimeout time.Duration
	// Keep is how long a connection may stay open between two requests. Default 2 minutes.
	Keep time.Duration
	// Idle is how long an open request or tunnel may carry no bytes in either direction. Default 15
	// minutes.
	Idle time.Duration
	// Connect is the time limit for resolving a name and connecting. Default 30 s.
	Connect time.Duration
}

func (l Limits) filled() Limits {
	fill(&l.Connections, 256)
	fill(&l.Header, 64<<10)
	fill(&l.HeaderTimeout, 10*time.Second)
	fill(&l.Keep, 2*time.Minute)
	fill(&l.Idle, 15*time.Minute)
	fill(&l.Connect, 30*time.Second)
	return l
}

func fill[T int | time.Duration](to *T, otherwise T) {
	if *to == 0 {
		*to = otherwise
	}
}

// errOver means that the server was closed.
var errOver = errors.New("the proxy is closed")

// Serve answers requests on l until Close is called or l is closed. It then closes l and all
// connections, and returns nil. If l fails in another way, Serve returns that error. Serve may be
// called only once.
func (s *Server) Serve(l net.Listener) error {
	h, err := s.begin(l)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	err = h.Serve(newBounded(l, s))
	s.closeAll()
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *Server) begin(l net.Listener) (*http.Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return nil, errOver
	case s.http != nil:
		return nil, errors.New("this proxy has served already")
	}
	s.Limits = s.Limits.filled()
	s.open = map[net.Conn]struct{}{}
	s.finished = make(chan struct{})
	if tcp, ok := l.Addr().(*net.TCPAddr); ok {
		s.own = netip.AddrPortFrom(tcp.AddrPort().Addr().Unmap(), tcp.AddrPort().Port())
	}
	s.life, s.stop = context.WithCancel(context.Background())
	s.forward = s.forwarder()
	// otherwise net/http would log each client that disconnects
	silent := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.http = &http.Server{
		Handler: http.HandlerFunc(s.handle), Protocols: new(http.Protocols), DisableGeneralOptionsHandler: true,
		BaseContext:       func(net.Listener) context.Context { return s.life },
		MaxHeaderBytes:    s.Limits.Header,
		ReadHeaderTimeout: s.Limits.HeaderTimeout,
		IdleTimeout:       s.Limits.Keep,
		ErrorLog:          silent,
	}
	s.http.Protocols.SetHTTP1(true)
	return s.http, nil
}

// Close closes every connection immediately, and returns when no request is running any more. It
// may be called at any time, and more than once.
func (s *Server) Close() error {
	s.mu.Lock()
	s.over = true
	h := s.http
	s.mu.Unlock()
	if h == nil {
		return nil
	}
	s.stop()
	err := h.Close()
	<-s.finished
	return err
}

// closeAll closes all connections after the listener has ended.
func (s *Server) closeAll() {
	s.mu.Lock()
	s.over = true
	open := s.open
	s.open = nil
	s.mu.Unlock()
	s.stop()
	_ = s.http.Close() // an error does not matter, because all connections are closed
	for c := range open {
		_ = c.Close()
	}
	s.working.Wait()
	close(s.finished)
}

// track records a connection that closeAll must close. It returns false if the server was closed.
func (s *Server) track(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.open[c] = struct{}{}
	return true
}

func (s *Server) untrack(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// enter increments the number of running requests. It returns false if the server was closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.working.Add(1)
	}
	return !s.over
}

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
)

// Server is a proxy that lets one job reach what its policy allows. Its fields are
// set before Serve and not changed afterwards.
type Server struct {
	// Policy says what is allowed; with nil nothing is.
	Policy *Policy
	// Token, if it is set, has to come with every request: as the password of basic
	// credentials, whatever the name of the user, or as a bearer token.
	Token string
	// Log is told of each target that is refused, once; nil for nobody.
	Log *slog.Logger
	// Dial connects to an IP address and port that have been checked; nil for a
	// net.Dialer. It must not look anything up.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Resolve finds the addresses of a name; nil for the resolver of this machine.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Closed, if it is set, reports addresses that no policy opens: those of Belay
	// itself. The address of the proxy's own listener is always among them.
	Closed func(address netip.AddrPort) bool
	// Limits bound what the job may take of this process.
	Limits Limits

	mu       sync.Mutex
	over     bool
	life     context.Context
	stop     context.CancelFunc
	http     *http.Server
	open     map[net.Conn]struct{} // to the job and to its targets
	working  sync.WaitGroup        // requests
	finished chan struct{}         // closed when nothing is left
	own      netip.AddrPort
	refused  refusals
	forward  *httputil.ReverseProxy
}

// Limits bound what a job may take of its proxy. A field that is 0 has the default.
type Limits struct {
	// Connections of the job at the same time; others wait to be accepted. 256.
	Connections int
	// Header is the size of a request's header in bytes. 64 KiB.
	Header int
	// HeaderTimeout is how long a header may take to arrive. 10 s.
	HeaderTimeout time.Duration
	// Keep is how long a connection may stay open between two requests. 2 minutes.
	Keep time.Duration
	// Idle is how long a connection may carry nothing in either direction while a
	// request or a tunnel is open. 15 minutes.
	Idle time.Duration
	// Connect is how long it may take to resolve a name and to connect. 30 s.
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

// Serve answers on l, which it closes, until Close, or until l is closed; then it ends
// every connection and returns nil. Any other end of the listener is an error. A Server
// serves once.
func (s *Server) Serve(l net.Listener) error {
	h, err := s.begin(l)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	err = h.Serve(newBounded(l, s))
	s.end()
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
	silent := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // clients end as they like
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

// Close ends every connection at once. When it returns, no request is being worked
// on. It may be called at any time, also again.
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

// end closes what the listener's end has left.
func (s *Server) end() {
	s.mu.Lock()
	s.over = true
	open := s.open
	s.open = nil
	s.mu.Unlock()
	s.stop()
	_ = s.http.Close() // the connections are what counts
	for c := range open {
		_ = c.Close()
	}
	s.working.Wait()
	close(s.finished)
}

// track keeps a connection so that the end closes it; false if the end has been.
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

// enter counts a request; false if the end has been.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.working.Add(1)
	}
	return !s.over
}

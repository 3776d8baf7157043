package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"
)

// HealthCheck reports an error if the program should get no new work, for example because its disk is
// full. Its context ends after a few seconds.
type HealthCheck func(ctx context.Context) error

// Health answers health probes: GET /healthz has the status 200 while the workers of this process
// should get new work, and otherwise 503 with the reason. The reason is one of these: the program's
// own check has failed, the workers stop, a worker has no session, or a worker cannot reach its
// server and has frozen its runs. Several workers of one process can share a Health.
//
// A server to which the workers connect probes the address of the Health. While the probes fail, the
// server gives the workers no new work; their runs continue. Other programs, such as Kubernetes, may
// use the same address. Everybody who reaches the address can read the reason.
type Health struct {
	listener net.Listener
	server   *http.Server
	check    checker
	ended    chan struct{}

	mu      sync.Mutex
	workers []*Worker
}

const (
	// checkLimit is how long a HealthCheck may take.
	checkLimit = 2 * time.Second
	// checkValid is how long the result of a HealthCheck is used for further probes.
	checkValid = time.Second / 2
	// mostConnections is how many connections a Health accepts at the same time; further connections
	// wait.
	mostConnections = 64
	// mostReason is the largest size of the reason in an answer, in bytes.
	mostReason = 200
)

// ListenHealth opens a port for health probes: HOST:PORT, or :PORT for all addresses of the machine.
// check is the program's own check, nil for none. The caller closes the Health after its workers have
// stopped.
func ListenHealth(address string, check HealthCheck) (*Health, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for health probes: %w", err)
	}
	h := &Health{listener: l, check: checker{check: check}, ended: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.serve)
	h.server = &http.Server{
		Handler: mux, MaxHeaderBytes: 4 << 10, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
		IdleTimeout: 5 * time.Second,
	}
	go func() {
		defer close(h.ended)
		_ = h.server.Serve(&limited{Listener: l, free: make(chan struct{}, mostConnections)})
	}()
	return h, nil
}

// Addr is the address of the port. If ListenHealth got a host name, or listens on all addresses of
// the machine, servers may be unable to connect to the address that Addr returns.
func (h *Health) Addr() net.Addr { return h.listener.Addr() }

// Close closes the port. Later probes fail.
func (h *Health) Close() error {
	err := h.server.Close()
	<-h.ended
	return err
}

// address is the address in a worker's session. If the Health listens on all addresses of the
// machine, address returns the port alone, because the server knows from which address the worker
// connects.
func (h *Health) address() string {
	if h == nil {
		return ""
	}
	if a, ok := h.Addr().(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		return fmt.Sprintf(":%d", a.Port)
	}
	return h.Addr().String()
}

// watch adds a worker to those that the Health reports.
func (h *Health) watch(w *Worker) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workers = append(h.workers, w)
}

// errStopping is the error of trouble for a worker that stops.
var errStopping = errors.New("the worker is stopping")

// trouble returns the reason why the workers should get no new work, or nil. Workers that stop
// while others continue are no reason, because a stopping worker gets no new work anyway.
func (h *Health) trouble() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var stopping error
	continues := false
	for _, w := range h.workers {
		switch err := w.trouble(); {
		case err == nil:
			continues = true
		case errors.Is(err, errStopping):
			stopping = err
		default:
			return err
		}
	}
	if continues {
		return nil
	}
	return stopping
}

func (h *Health) serve(w http.ResponseWriter, r *http.Request) {
	err := h.trouble()
	if err == nil {
		err = h.check.result(r.Context())
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err == nil {
		_, _ = fmt.Fprintln(w, "ok")
		return
	}
	why := reason(err)
	w.Header().Set("Belay-Health", why)
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = fmt.Fprintln(w, why)
}

// reason is the text of an error as one short line.
func reason(err error) string {
	line := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(err.Error(), "?"))
	line = strings.Join(strings.Fields(line), " ")
	if len(line) > mostReason {
		line = strings.ToValidUTF8(line[:mostReason], "")
	}
	return line
}

// checker runs the program's own check, once at a time.
type checker struct {
	check HealthCheck

	mu    sync.Mutex
	ended chan struct{} // closed when the running check ends; nil if no check is running
	began time.Time
	err   error // the result of the last check
}

// result returns the result of the last check if that check is recent (checkValid), and otherwise
// waits for a new check.
func (c *checker) result(ctx context.Context) error {
	if c.check == nil {
		return nil
	}
	c.mu.Lock()
	if c.ended == nil && time.Since(c.began) < checkValid {
		defer c.mu.Unlock()
		return c.err
	}
	if c.ended == nil {
		c.ended, c.began = make(chan struct{}), time.Now()
		go c.run(c.ended)
	}
	ended := c.ended
	left := time.NewTimer(time.Until(c.began.Add(checkLimit)))
	c.mu.Unlock()
	defer left.Stop()
	select {
	case <-ended:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err
	case <-left.C:
		return fmt.Errorf("the health check has not ended within %s", checkLimit)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *checker) run(ended chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
	defer cancel()
	err := c.call(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.ended = err, nil
	close(ended)
}

func (c *checker) call(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the health check panicked: %v", p)
		}
	}()
	return c.check(ctx)
}

// limited is a listener that accepts a limited number of connections at the same time.
type limited struct {
	net.Listener
	free chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	l.free <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &counted{Conn: c, free: sync.OnceFunc(func() { <-l.free })}, nil
}

type counted struct {
	net.Conn
	free func()
}

func (c *counted) Close() error {
	defer c.free()
	return c.Conn.Close()
}

// trouble returns the reason for which the worker should get no new work, nil if there is none.
func (w *Worker) trouble() error {
	w.mu.Lock()
	s, stopping := w.session, w.stopping
	w.mu.Unlock()
	switch {
	case stopping:
		return errStopping
	case s == nil:
		return errors.New("the worker has no session")
	case s.shared.Fence.Frozen():
		return errors.New("the worker cannot reach its server, and its runs are frozen")
	}
	return nil
}

// attach sets the session whose problems the method trouble reports; nil while the worker has no session.
func (w *Worker) attach(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = s
}

// leaving records that the worker stops.
func (w *Worker) leaving() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopping = true
}

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// timeLimit is how long a worker may take to answer a probe.
const timeLimit = 3 * time.Second

// headerError is the header in which a worker says why it is not healthy.
const headerError = "Belay-Health"

// mostText is the largest size of a text in an answer that the server uses, in bytes.
const mostText = 200

// errOurs means that a probe has no result because of the server itself.
var errOurs = errors.New("the server could not send the probe")

// client sends probes. A connection serves one probe, because workers are probed rarely.
var client = &http.Client{
	Transport: &http.Transport{
		DialContext: dial, DisableKeepAlives: true, DisableCompression: true,
		MaxResponseHeaderBytes: 4 << 10,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// line is a connection that reads nothing before the request was written. So a peer that sends
// bytes first is judged like a peer that answers; otherwise net/http would write the first bytes of
// such a peer into the log of the server.
type line struct {
	net.Conn
	wrote func()
	ready <-chan struct{}
}

// dial connects to a worker.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	return &line{c, sync.OnceFunc(func() { close(ready) }), ready}, nil
}

func (l *line) Read(b []byte) (int, error) {
	<-l.ready
	return l.Conn.Read(b)
}

func (l *line) Write(b []byte) (int, error) {
	defer l.wrote()
	return l.Conn.Write(b)
}

// Close also ends a Read that waits for the request.
func (l *line) Close() error {
	defer l.wrote()
	return l.Conn.Close()
}

// ask sends one probe. It returns the reason why the worker is not healthy, or "" if the worker is
// healthy. An error means that the probe has no result.
func ask(ctx context.Context, to netip.AddrPort, limit time.Duration) (failure string, err error) {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(within, http.MethodGet, "http://"+to.String()+"/healthz", http.NoBody)
	if err != nil {
		return "", err
	}
	r.Header.Set("User-Agent", "belay-health-probe")
	began := time.Now()
	answer, err := client.Do(r)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err == nil:
		_ = answer.Body.Close() // the body is not read
		return judge(answer), nil
	case within.Err() != nil && time.Since(began) > limit+limit/2:
		return "", errOurs // this process or machine was suspended, not the worker
	case within.Err() != nil:
		return fmt.Sprintf("no answer within %s", limit), nil
	}
	var dial *net.OpError
	var number syscall.Errno
	switch {
	case !errors.As(err, &dial) || dial.Op != "dial":
		return "the connection ended without an answer in HTTP", nil // the text of err may have a part of the answer
	case errors.As(err, &number) && !ours(number):
		return "cannot connect: " + number.Error(), nil
	}
	return "", fmt.Errorf("%w: %w", errOurs, err)
}

// ours reports whether an error of a connection shows a lack of resources of this server.
func ours(n syscall.Errno) bool {
	switch n {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EPERM,
		syscall.EACCES:
		return true
	default:
		return false
	}
}

// judge returns the reason why the answer does not show a healthy worker.
func judge(answer *http.Response) string {
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return ""
	}
	failure := fmt.Sprintf("it answered with the status %d", answer.StatusCode)
	if why := answer.Header.Get(headerError); why != "" {
		failure += ": " + why[:min(len(why), mostText)]
	}
	return failure
}

package egress

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/belaydev/belay/internal/reach"
)

// handle answers one request.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		return
	}
	defer s.working.Done()
	if !s.knows(r) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="belay"`)
		answer(w, http.StatusProxyAuthRequired,
			"this proxy belongs to a job of Belay, and the request lacks the job's token")
		return
	}
	if r.Method == http.MethodConnect {
		s.tunnel(w, r)
		return
	}
	if r.URL.Scheme != "http" || r.URL.Opaque != "" {
		answer(w, http.StatusBadRequest, "this is a proxy: it accepts CONNECT, and requests for a whole http:// URL")
		return
	}
	t, err := reach.ParseTarget(r.URL.Host, 80)
	if r.URL.User != nil {
		err = errCredentials
	}
	if err != nil {
		s.refuse(w, reach.Printable(r.URL.Host), fmt.Errorf("%w: %w", errTarget, err))
		return
	}
	if !s.Policy.Lists(t) {
		s.refuse(w, t.String(), reach.ErrUnlisted)
		return
	}
	s.forward.ServeHTTP(w, r)
}

// knows reports whether a request has the right token. The comparison always takes the same time;
// otherwise the time would reveal how many characters of a wrong token are right.
func (s *Server) knows(r *http.Request) bool {
	if s.Token == "" {
		return true
	}
	offered := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}})
	_, token, ok := offered.BasicAuth()
	if !ok {
		scheme, bearer, _ := strings.Cut(offered.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "bearer") {
			return false
		}
		token = bearer
	}
	want, got := sha256.Sum256([]byte(s.Token)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// linger is how long a client may go on sending the rest of a request that was refused.
const linger = time.Second

// answer sends a text as the response and closes the connection.
func answer(w http.ResponseWriter, status int, text string) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(linger))
	h := w.Header()
	h.Set("Connection", "close")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "belay: "+text+"\n")
}

// The texts of these errors complete the sentence "TARGET is refused by agent.egress: …".
var (
	errTarget      = errors.New("the target of the request cannot be read")
	errCredentials = errors.New("it contains credentials")
)

// refuse answers a request whose target the policy does not allow.
func (s *Server) refuse(w http.ResponseWriter, target string, why error) {
	if s.refused.count(target, why.Error()) && s.Log != nil {
		s.Log.LogAttrs(context.Background(), slog.LevelWarn, "egress of a job is refused",
			slog.String("target", target), slog.String("reason", why.Error()))
	}
	answer(w, http.StatusForbidden, target+" is refused by agent.egress: "+why.Error())
}

// fail answers a request whose target could not be reached.
func (s *Server) fail(w http.ResponseWriter, t reach.Target, err error) {
	var (
		timeout net.Error
		lookup  *net.DNSError
	)
	switch {
	case reach.Denied(err):
		s.refuse(w, t.String(), err)
	case errors.As(err, &lookup) && lookup.IsNotFound, errors.Is(err, reach.ErrNowhere):
		answer(w, http.StatusBadGateway, t.String()+" cannot be reached: there is no such host")
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		answer(w, http.StatusGatewayTimeout, t.String()+" cannot be reached: it does not answer in time")
	default:
		answer(w, http.StatusBadGateway, t.String()+" cannot be reached")
	}
}

// forwarder forwards requests whose target is a whole http URL.
func (s *Server) forwarder() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			t, _ := reach.ParseTarget(r.In.URL.Host, 80) // handle has already checked the target
			r.Out.URL.Host = t.String()
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			r.Out.Host = strings.TrimSuffix(t.String(), ":80")
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				t, err := reach.ParseTarget(address, 0)
				if err != nil {
					return nil, err
				}
				return s.connect(ctx, t)
			},
			// A server may close a connection while the next request is being sent. A request that
			// must not be repeated would then be lost, so each request gets a new connection.
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: int64(s.Limits.Header),
		},
		FlushInterval: -1, // streamed responses must arrive without delay
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			t, _ := reach.ParseTarget(r.URL.Host, 80)
			s.fail(w, t, err)
		},
	}
}

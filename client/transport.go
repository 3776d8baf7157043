package client

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// unixHost is what requests over a unix socket are addressed to.
const unixHost = "localhost"

// target is a server as Dial was told.
type target struct {
	base *url.URL // what paths are added to
	unix string   // the socket, if it is one
}

func parseTarget(text string) (target, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if path = strings.TrimPrefix(path, "//"); path == "" {
			return target{}, badURL("name a socket: unix:PATH")
		}
		return target{base: &url.URL{Scheme: "http", Host: unixHost}, unix: path}, nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return target{}, badURL("a server is http://HOST:PORT, https://HOST or unix:PATH")
	case u.User != nil:
		return target{}, badURL("a key is given beside the server's address, not in it")
	case u.RawQuery != "" || u.Fragment != "":
		return target{}, badURL("a server's address has no query and no fragment")
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), ""
	return target{base: u}, nil
}

func badURL(message string) error {
	return &belay.Error{Code: belay.CodeInvalid, Op: "dial", Message: message}
}

// name is the target for people.
func (t target) name() string {
	if t.unix != "" {
		return "unix:" + t.unix
	}
	return t.base.String()
}

// exposes reports whether what is sent could be read on its way.
func (t target) exposes() bool {
	if t.unix != "" || t.base.Scheme == "https" {
		return false
	}
	ip := net.ParseIP(t.base.Hostname())
	return t.base.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}

func (t target) transport(s *settings) *http.Transport {
	var p http.Protocols
	switch {
	case s.http1:
		p.SetHTTP1(true)
	case t.base.Scheme == "https":
		p.SetHTTP1(true) // for a proxy that offers nothing newer
		p.SetHTTP2(true)
	default:
		p.SetUnencryptedHTTP2(true)
	}
	tr := &http.Transport{
		Protocols: &p, TLSClientConfig: s.tls, DialContext: t.dialer(s), TLSHandshakeTimeout: 5 * time.Second,
		// The other limits are those of single calls.
		IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 64, MaxResponseHeaderBytes: 64 << 10,
		DisableCompression: true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: s.silence, PingTimeout: s.silence, WriteByteTimeout: 2 * s.silence,
			MaxReceiveBufferPerConnection: 4<<20 - 1, MaxReceiveBufferPerStream: 4<<20 - 1,
		},
	}
	if t.base.Scheme == "https" && s.dialer == nil {
		tr.Proxy = http.ProxyFromEnvironment
	}
	return tr
}

func (t target) dialer(s *settings) func(context.Context, string, string) (net.Conn, error) {
	if s.dialer != nil {
		return func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dialer(ctx) }
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	if t.unix != "" {
		return func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", t.unix) }
	}
	return d.DialContext
}

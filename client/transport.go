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

// unixHost is the host in the URL of requests over a unix socket.
const unixHost = "localhost"

// target is the address of a server, parsed from the URL given to Dial.
type target struct {
	base *url.URL // the prefix of all request paths
	unix string   // the path of the socket, "" if the target is not a socket
}

func parseTarget(text string) (target, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if path = strings.TrimPrefix(path, "//"); path == "" {
			return target{}, badURL("the path of the socket is missing: unix:PATH")
		}
		return target{base: &url.URL{Scheme: "http", Host: unixHost}, unix: path}, nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return target{}, badURL("a server is http://HOST:PORT, https://HOST or unix:PATH" + suggestion(text))
	case u.User != nil:
		return target{}, badURL("the server's address must not contain a key; give the key separately")
	case u.RawQuery != "" || u.Fragment != "":
		return target{}, badURL("a server's address has no query and no fragment")
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), ""
	return target{base: u}, nil
}

// suggestion proposes a complete address if the text has only a host and a port.
func suggestion(text string) string {
	if host, _, err := net.SplitHostPort(text); err != nil || host == "" || strings.ContainsAny(text, "@/?# ") {
		return ""
	}
	return "; did you mean http://" + text + "?"
}

func badURL(message string) error {
	return &belay.Error{Code: belay.CodeInvalid, Op: "dial", Message: message}
}

// name returns the address of the target for messages.
func (t target) name() string {
	if t.unix != "" {
		return "unix:" + t.unix
	}
	return t.base.String()
}

// unencrypted reports whether requests leave this host without encryption.
func (t target) unencrypted() bool {
	if t.unix != "" || t.base.Scheme == "https" {
		return false
	}
	ip := net.ParseIP(t.base.Hostname())
	return t.base.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}

func (c *Client) transport(f tuning) *http.Transport {
	var p http.Protocols
	switch {
	case c.set.http1:
		p.SetHTTP1(true)
	case c.target.base.Scheme == "https":
		p.SetHTTP1(true) // a proxy may not support HTTP/2
		p.SetHTTP2(true)
	default:
		p.SetUnencryptedHTTP2(true)
	}
	tr := &http.Transport{
		Protocols: &p, TLSClientConfig: c.set.tls, DialContext: c.dial, TLSHandshakeTimeout: 5 * time.Second,
		// There is no timeout here, since each call has a deadline of its own.
		IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 64, MaxResponseHeaderBytes: 64 << 10,
		DisableCompression: true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: f.silence, PingTimeout: f.answer, WriteByteTimeout: f.silence + f.answer,
			MaxReceiveBufferPerConnection: f.window, MaxReceiveBufferPerStream: f.window,
		},
	}
	if c.target.base.Scheme == "https" && c.set.dialer == nil {
		tr.Proxy = http.ProxyFromEnvironment
	}
	return tr
}

// dial opens a connection and records it, so that Close can close it.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	var to net.Conn
	var err error
	switch {
	case c.set.dialer != nil:
		to, err = c.set.dialer(ctx)
	case c.target.unix != "":
		to, err = d.DialContext(ctx, "unix", c.target.unix)
	default:
		to, err = d.DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	return c.conns.add(to)
}

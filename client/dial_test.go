package client_test

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
)

// echo answers each request with an execution. The execution's field Workflow shows the request's
// protocol, host, path and API key.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	reply(w, belay.Execution{Workflow: r.Proto + " " + r.Host + " " + r.URL.Path + " " + r.Header.Get("Authorization"),
		State: belay.Succeeded})
})

func read(t *testing.T, url string, options ...client.Option) (string, error) {
	t.Helper()
	options = append([]client.Option{client.Logger(slog.New(slog.DiscardHandler)), client.Patience(0)}, options...)
	c, err := client.Dial(t.Context(), url, options...)
	if err != nil {
		return "", err
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	x, err := c.Execution(t.Context(), belay.ExecutionID{1})
	path := "/v1/executions/" + belay.ExecutionID{1}.String()
	return strings.ReplaceAll(x.Workflow, path, "PATH"), err
}

// serve serves h without TLS, with HTTP/1.1 and HTTP/2, as a Belay server does.
func serve(t *testing.T, l net.Listener, h http.Handler) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	s.Listener = l
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Dial supports each form of address, and uses HTTP/2 with each form unless the option HTTP1 is
// given.
func TestDialSupportsEachFormOfAddress(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	addr := l.Addr().String()
	serve(t, l, echo)
	socket := filepath.Join(t.TempDir(), "belay.sock")
	serve(t, listen(t, "unix", socket), echo)
	secure := httptest.NewUnstartedServer(echo)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	trust := client.TLS(secure.Client().Transport.(*http.Transport).TLSClientConfig)
	secureAddr := secure.Listener.Addr().String()

	for _, test := range []struct {
		url     string
		options []client.Option
		want    string
	}{
		{"http://" + addr, nil, "HTTP/2.0 " + addr + " PATH "},
		{"http://" + addr + "/", []client.Option{client.Key("bly_x")}, "HTTP/2.0 " + addr + " PATH Bearer bly_x"},
		{"http://" + addr + "/behind/proxy", nil, "HTTP/2.0 " + addr + " /behind/proxyPATH "},
		{"http://" + addr, []client.Option{client.HTTP1()}, "HTTP/1.1 " + addr + " PATH "},
		{"unix:" + socket, nil, "HTTP/2.0 localhost PATH "},
		{"unix://" + socket, []client.Option{client.Key("bly_x")}, "HTTP/2.0 localhost PATH Bearer bly_x"},
		{"https://" + secureAddr, []client.Option{trust}, "HTTP/2.0 " + secureAddr + " PATH "},
	} {
		if got, err := read(t, test.url, test.options...); err != nil || got != test.want {
			t.Errorf("%s: %q, %v; want %q", test.url, got, err, test.want)
		}
	}
	if _, err := read(t, "https://"+secureAddr,
		client.TLS(&tls.Config{MinVersion: tls.VersionTLS13})); belay.CodeOf(err) != belay.CodeUnavailable {
		t.Errorf("a certificate from an unknown signer: %v", err)
	}
}

// Dial refuses an invalid address or key, and returns CodeUnavailable if no server answers. With
// Lazy, the first call returns CodeUnavailable instead.
func TestDialRefusesInvalidAddressesAndMissingServers(t *testing.T) {
	for _, url := range []string{
		"", "localhost:7420", "ftp://host", "http://", "unix:", "http://key@host", "http://u:secret@host",
		"http://host?a=b", "http://host#f", "sqlite:x", "http://[::1",
	} {
		_, err := read(t, url)
		if belay.CodeOf(err) != belay.CodeInvalid || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := read(t, "http://127.0.0.1:1", client.Key("bly_x\n")); belay.CodeOf(err) != belay.CodeInvalid ||
		strings.Contains(err.Error(), "bly_") {
		t.Errorf("a key with a line feed: %v", err)
	}
	l := listen(t, "tcp", "127.0.0.1:0")
	addr := l.Addr().String()
	_ = l.Close()
	for _, url := range []string{"http://" + addr, "unix:" + filepath.Join(t.TempDir(), "none.sock")} {
		if _, err := read(t, url); belay.CodeOf(err) != belay.CodeUnavailable {
			t.Errorf("%s: %v", url, err)
		}
		if _, err := read(t, url, client.Lazy()); belay.CodeOf(err) != belay.CodeUnavailable ||
			!strings.HasPrefix(err.Error(), "read ex_") {
			t.Errorf("%s, lazily: %v", url, err)
		}
	}
}

// If the server at the address is not a Belay server, the error of Dial describes that server. The
// error does not warn that a request may have taken effect, since Dial sends no request that has an
// effect.
func TestTheErrorOfDialDescribesTheOtherServer(t *testing.T) {
	plain := httptest.NewServer(echo) // a server with HTTP/1.1 only
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(echo)
	t.Cleanup(secure.Close)
	nobody := listen(t, "tcp", "127.0.0.1:0")
	_ = nobody.Close()
	for url, want := range map[string]string{
		plain.URL: "address of a Belay server",
		strings.Replace(plain.URL, "http:", "https:", 1):  "http or https",
		strings.Replace(secure.URL, "https:", "http:", 1): "http or https",
		secure.URL:                           "SSL_CERT_FILE",
		"http://" + nobody.Addr().String():   "no server answers at this address",
		"unix:" + t.TempDir() + "/none.sock": "no server answers at this address",
		nobody.Addr().String():               "http://" + nobody.Addr().String(),
	} {
		_, err := read(t, url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "may have happened") {
			t.Errorf("%s: %v; it should say %q", url, err, want)
		}
	}
}

// The client follows no redirect, so that only the dialled host receives the key.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var reached atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(thief.Close)
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, l, http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	_, err := read(t, "http://"+l.Addr().String(), client.Key("bly_x"))
	if belay.CodeOf(err) != belay.CodeInvalid || reached.Load() != 0 {
		t.Errorf("%v, and the other host was reached %d times", err, reached.Load())
	}
}

// Errors contain neither the key nor the id of a lock. That id is a secret, although it is part of
// a path.
func TestErrorsContainNoSecret(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	addr := l.Addr().String()
	_ = l.Close()
	c, err := client.Dial(t.Context(), "http://"+addr, client.Lazy(), client.Key("bly_x"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, err = c.Renew(t.Context(), belay.Lease{Execution: belay.ExecutionID{1}, Secret: belay.Secret{1, 2, 3}})
	if err == nil || strings.Contains(err.Error(), "ls_") || strings.Contains(err.Error(), "bly_") {
		t.Error(err)
	}
}

package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

var silent = slog.New(slog.DiscardHandler)

// serving starts a server as belay serve does, in this process and on a free port.
func serving() (s *httptest.Server, stop func()) {
	b, err := embedded.Open(context.Background(), "memory:", embedded.Logger(silent))
	if err != nil {
		panic(err)
	}
	s = httptest.NewUnstartedServer(httpapi.New(b, httpapi.Options{Log: silent, Keys: b}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	return s, func() {
		s.Close()
		_ = b.Close()
	}
}

// dial dials with options, lists the executions, and prints their number and the error.
func dial(url string, options ...client.Option) {
	ctx := context.Background()
	b, err := client.Dial(ctx, url, options...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	page, err := b.Executions(ctx, belay.Filter{})
	fmt.Println(len(page.Executions), err)
}

// A worker on a server runs an execution that this program submits.
func ExampleDial() {
	s, stop := serving()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b, err := client.Dial(ctx, s.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	w := worker.New(b, worker.Options{Log: silent})
	worker.Register(w, "greet", func(_ context.Context, name string) (string, error) { return "hello " + name, nil })
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()

	h, err := workflow.Start[string](ctx, b, "greet", "ann")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(h.Result(ctx))
	cancel()
	fmt.Println(<-done)
	// Output:
	// hello ann <nil>
	// <nil>
}

// A server that has API keys answers only requests that contain a key.
func ExampleKey() {
	s, stop := serving()
	defer stop()
	ctx := context.Background()
	b, err := client.Dial(ctx, s.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	key, err := b.CreateKey(ctx, belay.KeySpec{Name: "the shop", Scopes: []belay.Scope{belay.ScopeAdmin}})
	if err != nil {
		fmt.Println(err)
		return
	}
	dial(s.URL, client.Key(key.Secret))
	// Output: 0 <nil>
}

// The client trusts the company's own certificate authority.
func ExampleTLS() {
	b, err := embedded.Open(context.Background(), "memory:", embedded.Logger(silent))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	s := httptest.NewUnstartedServer(httpapi.New(b, httpapi.Options{Log: silent}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	dial(s.URL, client.TLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}))
	// Output: 0 <nil>
}

// The server's log shows the name of the program.
func ExampleUserAgent() {
	s, stop := serving()
	defer stop()
	dial(s.URL, client.UserAgent("shop/1.4"))
	// Output: 0 <nil>
}

// A program with a short Patience gets the error of an unavailable server soon; its calls do not
// wait until the server is back.
func ExamplePatience() {
	s, stop := serving()
	defer stop()
	ctx := context.Background()
	b, err := client.Dial(ctx, s.URL, client.Patience(10*time.Millisecond), client.Logger(silent))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	s.Close()
	_, err = b.Executions(ctx, belay.Filter{})
	fmt.Println(belay.CodeOf(err))
	// Output: unavailable
}

// The client logs to the program's logger.
func ExampleLogger() {
	s, stop := serving()
	defer stop()
	dial(s.URL, client.Logger(slog.New(slog.DiscardHandler)))
	// Output: 0 <nil>
}

// The connection goes through a tunnel that only the program's own dialer can open.
func ExampleDialer() {
	s, stop := serving()
	defer stop()
	through := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", s.Listener.Addr().String())
	}
	dial("http://belay.internal", client.Dialer(through))
	// Output: 0 <nil>
}

// The client uses HTTP/1.1, since a proxy does not let HTTP/2 through.
func ExampleHTTP1() {
	s, stop := serving()
	defer stop()
	dial(s.URL, client.HTTP1())
	// Output: 0 <nil>
}

// The program may start before its server, since Dial does not check that the server answers.
func ExampleLazy() {
	ctx := context.Background()
	b, err := client.Dial(ctx, "unix:/nowhere/belay.sock", client.Lazy(), client.Patience(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	_, err = b.Executions(ctx, belay.Filter{})
	fmt.Println(belay.CodeOf(err))
	// Output: unavailable
}

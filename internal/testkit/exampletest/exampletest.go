// Package exampletest runs the Examples of the SDK on two Backends: go test runs them in process,
// and OverHTTP runs them a second time over HTTP.
package exampletest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httpapi"
)

// overHTTP is the environment variable with which the Examples use a server.
const overHTTP = "BELAY_EXAMPLES_OVER_HTTP"

// OverHTTP runs the Examples of the test's own package over HTTP. It fails the test if an
// Example fails, or if fewer Examples than least pass.
func OverHTTP(t *testing.T, least int) {
	t.Helper()
	if os.Getenv(overHTTP) != "" {
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^Example", "-test.v")
	cmd.Env = append(os.Environ(), overHTTP+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Count(out, []byte("--- PASS: Example")) < least {
		t.Errorf("%v\n%s", err, out)
	}
}

// Open opens a Backend as a program would: with embedded.Open, or, if the Examples run over HTTP,
// with client.Dial to a server that Open starts.
func Open(ctx context.Context, url string) (belay.Backend, error) {
	quiet := slog.New(slog.DiscardHandler)
	b, err := embedded.Open(ctx, url, embedded.Logger(quiet))
	if err != nil || os.Getenv(overHTTP) == "" {
		return b, err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	//nolint:gosec // only its own test uses this server
	s := &http.Server{Handler: httpapi.New(b, httpapi.Options{Log: quiet}), Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	c, err := client.Dial(ctx, "http://"+l.Addr().String(), client.Logger(quiet))
	if err != nil {
		return nil, errors.Join(err, s.Close(), b.Close())
	}
	return served{c, s, b}, nil
}

// served is a client with its server and the Backend of that server.
type served struct {
	*client.Client
	server *http.Server
	behind belay.Backend
}

// Close closes the client, the server and the server's Backend.
func (s served) Close() error {
	return errors.Join(s.Client.Close(), s.server.Close(), s.behind.Close())
}

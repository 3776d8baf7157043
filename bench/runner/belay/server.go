package belay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httpapi"
)

// server is a Belay server in a process of its own.
type server struct {
	*trial.Child
	url   string
	ready time.Duration // from its start until it served
}

// start starts a server on the store of a trial.
func start(ctx context.Context, r trial.Request) (*server, error) {
	r.Role = "serve"
	begin := time.Now()
	c, err := trial.Spawn(r)
	if err != nil {
		return nil, err
	}
	s := &server{Child: c}
	if s.url, err = c.Await(ctx, "serving ", patience); err == nil {
		err = s.await(ctx)
	}
	s.ready = time.Since(begin)
	if err != nil {
		return nil, errors.Join(err, c.Kill())
	}
	return s, nil
}

// await waits until the server is ready to serve.
func (s *server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/readyz", nil)
		if err != nil {
			return err
		}
		a, err := http.DefaultClient.Do(q)
		if err == nil {
			_ = a.Body.Close()
			if a.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("the server answers %s", a.Status)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

func (s *server) stop() error { return s.Stop(patience) }

// serve serves a store until its input ends.
func serve(ctx context.Context, r trial.Request) error {
	b, err := embedded.Open(ctx, r.URL, embedded.Logger(quiet()))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, b.Close())
	}
	stopping := make(chan struct{})
	h := &http.Server{
		Handler:           httpapi.New(b, httpapi.Options{Log: quiet(), Stopping: stopping}),
		ReadHeaderTimeout: 10 * time.Second,
		Protocols:         new(http.Protocols),
	}
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	fmt.Printf("serving http://%s\n", l.Addr())
	go func() { // what is left of the input is that it ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stopping)
		_ = h.Shutdown(ctx)
	}()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, b.Close())
	}
	return b.Close()
}

package belay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/belaydev/belay/bench/trial"
)

// server is a process that runs the command belay serve.
type server struct {
	*trial.Child
	url   string
	ready time.Duration // the time from the start until the server was ready
}

// start starts a server on the store of a trial, with the trial's further settings.
func start(ctx context.Context, r trial.Request, set ...func(*exec.Cmd)) (*server, error) {
	if r.Belay == "" {
		return nil, errors.New("there is no binary of belay")
	}
	address, err := free(ctx)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	args := []string{"serve", "--listen", address, "--log-level", "error"}
	if dir, ok := strings.CutPrefix(r.URL, "sqlite:"); ok {
		args = append(args, "--data", dir)
	} else {
		args = append(args, "--store", r.URL, "--data", filepath.Join(r.Dir, "data"))
	}
	cmd := exec.Command(r.Belay, args...) //nolint:noctx // the trial stops the server gracefully
	for _, f := range set {
		f(cmd)
	}
	c, err := trial.Start(cmd)
	if err != nil {
		return nil, err
	}
	s := &server{Child: c, url: "http://" + address}
	err = s.await(ctx)
	s.ready = time.Since(begin)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("belay serve: %w", err), c.Kill())
	}
	return s, nil
}

// free returns an address of this host on which no process listens.
func free(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// await waits until the server is ready.
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
		case <-time.After(2 * time.Millisecond):
		case <-s.Ended():
			return errors.New("the server ended before it was ready")
		case <-ctx.Done():
			return err
		}
	}
}

func (s *server) stop() error { return s.Stop(patience) }

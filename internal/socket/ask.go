package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/belaydev/belay/internal/peer"
)

var (
	// ErrNobody means that no process answers on the socket.
	ErrNobody = errors.New("no process serves the socket of the data directory")
	// ErrRefused means that the process that runs the engine does not give way.
	ErrRefused = errors.New("the engine's host does not give way")
	// ErrSilent means that a process accepts connections on the socket and does not answer.
	ErrSilent = fmt.Errorf("the host of the data directory did not answer within %s", Greeting)
)

// Greeting is how long a server may take to answer HELLO. A process that is stopped (SIGSTOP)
// accepts connections but does not answer.
const Greeting = 2 * time.Second

// AskToYield requests that the host (the process with the engine) give way to the process with the
// name next. The host sends this name to its clients in its last line ([Goodbye]). The error is
// ErrRefused if the host does not give way, ErrSilent if the host does not answer, and ErrNobody if
// there is no host.
func AskToYield(ctx context.Context, dir string, j *peer.Judge, next string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Greeting, ErrSilent)
	defer cancel()
	resp, err := Send(ctx, dir, j, http.MethodPost, "/datadir/yield", next[:min(len(next), MaxLine)])
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return ErrRefused
	}
	return nil
}

// Send makes one request on the directory's socket, on a connection of its own.
func Send(ctx context.Context, dir string, j *peer.Judge, method, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return Dial(ctx, dir, j)
		},
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("%w: %w", ErrNobody, err)
	}
	return resp, nil
}

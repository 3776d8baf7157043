package datadir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/socket"
)

// Host is the engine of a data directory in this process, served on the socket.
type Host struct {
	*embedded.Backend

	server *socket.Server // nil if the socket could not be made
	next   string         // the name of the process that runs the engine next; set before Close
	once   sync.Once
	closed error
}

// OpenHost hosts the engine of a data directory, for a process that serves for long. It requests
// that the present host (the process with the engine) give way, and waits until the host has done
// so, for the time Options.Patience at most. If the host does not give way, the error is
// CodeConflict and names the host.
func OpenHost(ctx context.Context, dir string, o Options) (*Host, error) {
	o = o.withDefaults()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	if err := socket.Check(dir); err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	hostSilent := false // the process that has the engine does not answer
	for ask := (time.Time{}); ; {
		h, err := host(within, dir, o, false)
		if err == nil || !inUse(err) {
			return h, err
		}
		if now := time.Now(); now.After(ask) {
			asked := socket.AskToYield(within, dir, o.judge(), purpose(o))
			if errors.Is(asked, socket.ErrRefused) {
				return nil, err
			}
			hostSilent = errors.Is(asked, socket.ErrSilent) || hostSilent && within.Err() != nil
			ask = now.Add(askEvery)
		}
		select {
		case <-within.Done():
			if hostSilent {
				err = silent(err)
			}
			return nil, err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// askEvery is how often OpenHost repeats the request to give way, because another process may have
// started the engine since the last request.
const askEvery = 300 * time.Millisecond

func purpose(o Options) string { return cmp.Or(o.Purpose, filepath.Base(os.Args[0])) }

// host takes the lock, opens the store and serves the socket. It does not wait for the lock: if
// another process has the lock, host returns an error for which inUse is true.
func host(ctx context.Context, dir string, o Options, yields bool) (*Host, error) {
	options := append([]embedded.Option{embedded.Purpose(purpose(o)), embedded.Logger(o.Log)}, o.Engine...)
	b, err := embedded.Open(ctx, "sqlite:"+dir, options...)
	if err != nil {
		return nil, err
	}
	h := &Host{Backend: b}
	h.server, err = socket.Open(dir, socket.Options{
		Version: o.Version, Purpose: purpose(o), Yields: yields, Judge: o.judge(), Log: o.Log,
	})
	if err != nil {
		o.Log.Warn("no other process can join: the socket of the data directory cannot be made", "dir", dir, "error",
			err)
		return h, nil
	}
	handler := o.Handler
	if handler == nil {
		handler = func(b *embedded.Backend, stopping <-chan struct{}) http.Handler {
			return httpapi.New(b, httpapi.Options{
				Log: o.Log, Version: o.Version, Stopping: stopping, Ready: b.Ready, Crowded: b.Crowded,
			})
		}
	}
	h.server.Serve(handler(b, h.server.Stopping()))
	return h, nil
}

// inUse reports whether an error of host says that another process has the lock.
func inUse(err error) bool {
	var e *belay.Error
	return errors.As(err, &e) && e.Code == belay.CodeConflict && e.RetryAfter > 0
}

// asked receives the name of a process that requests that this process give the engine up.
func (h *Host) asked() <-chan string {
	if h.server == nil {
		return nil
	}
	return h.server.Asked()
}

// Close stops hosting: it sends the clients the good-bye, ends the engine, sends the last answers,
// closes the store and releases the lock.
func (h *Host) Close() error {
	h.once.Do(func() { h.closed = h.close() })
	return h.closed
}

func (h *Host) close() error {
	if h.server == nil {
		return h.Backend.Close()
	}
	h.server.Stop(h.next)
	err := h.Engine.Close()
	h.server.Close()
	return errors.Join(err, h.Backend.Close())
}

// leaveTo stops hosting in favour of another process. The good-bye has the name of that process, so
// that the clients leave the lock to that process.
func (h *Host) leaveTo(next string) error {
	h.once.Do(func() {
		h.next = next
		h.closed = h.close()
	})
	return h.closed
}

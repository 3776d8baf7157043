package datadir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/peer"
)

// Host is the engine of a data directory in this process, served on the socket.
type Host struct {
	*embedded.Backend
	log *slog.Logger

	hello  hello
	asked  chan string   // who asked this host to give way; nil if it does not
	going  chan struct{} // closed when the host stops
	next   string        // set before going is closed
	server *http.Server  // nil if nothing could be served
	socket net.Listener  // the server's
	served chan struct{} // closed when the server has returned
	busy   busy          // connections with requests on them
	once   sync.Once
	closed error
}

// OpenHost hosts the engine of a data directory, for a process that is there to
// serve: whoever hosts it meanwhile is asked to give way, and waited for up to
// the patience. CodeConflict, with the holder, if that does not.
func OpenHost(ctx context.Context, dir string, o Options) (*Host, error) {
	o = o.withDefaults()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	if err := Check(dir); err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	mute := false // whoever has it does not answer
	for ask := (time.Time{}); ; {
		h, err := host(within, dir, o, false)
		if err == nil || !inUse(err) {
			return h, err
		}
		if now := time.Now(); now.After(ask) {
			asked := askToYield(within, dir, o, purpose(o))
			if errors.Is(asked, errRefused) {
				return nil, err
			}
			mute = errors.Is(asked, errSilent) || mute && within.Err() != nil
			ask = now.Add(askEvery)
		}
		select {
		case <-within.Done():
			if mute {
				err = silent(err)
			}
			return nil, err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// askEvery is how often a host is asked to give way: when it has, another may
// have been quicker.
const askEvery = 300 * time.Millisecond

func purpose(o Options) string { return cmp.Or(o.Purpose, filepath.Base(os.Args[0])) }

// host takes the lock, opens the store and serves the socket. It does not wait:
// see inUse.
func host(ctx context.Context, dir string, o Options, yields bool) (*Host, error) {
	options := append([]embedded.Option{embedded.Purpose(purpose(o)), embedded.Logger(o.Log)}, o.Engine...)
	b, err := embedded.Open(ctx, "sqlite:"+dir, options...)
	if err != nil {
		return nil, err
	}
	h := &Host{
		Backend: b, log: o.Log, going: make(chan struct{}), served: make(chan struct{}),
		hello: hello{Protocol: protocol, Version: o.Version, PID: os.Getpid(), Purpose: purpose(o)},
	}
	if yields {
		h.asked = make(chan string, 1)
	}
	l, err := listen(dir)
	if err != nil {
		o.Log.Warn("no other process can join: the socket of the data directory cannot be made", "dir", dir, "error", err)
		close(h.served)
		return h, nil
	}
	handler := o.Handler
	if handler == nil {
		handler = func(b *embedded.Backend, stopping <-chan struct{}) http.Handler {
			ready := func(context.Context) ([]string, error) {
				v := b.Vitals()
				return v.Notes(time.Now()), v.Trouble()
			}
			return httpapi.New(b, httpapi.Options{Log: o.Log, Version: o.Version, Stopping: stopping, Ready: ready, Crowded: b.Crowded})
		}
	}
	h.serve(l, handler(b, h.going), o.judge())
	return h, nil
}

// inUse reports whether an error of host means that somebody else has the lock.
func inUse(err error) bool {
	var e *belay.Error
	return errors.As(err, &e) && e.Code == belay.CodeConflict && e.RetryAfter > 0
}

func (h *Host) serve(l net.Listener, api http.Handler, judge *peer.Judge) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /datadir/hello", h.sayHello)
	mux.HandleFunc("POST /datadir/yield", h.yield)
	mux.Handle("/", api)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	h.server = &http.Server{
		Handler: refuseGuests(mux), ConnContext: note(judge), Protocols: &protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000},
		ReadHeaderTimeout: 10 * time.Second, ConnState: h.busy.note, ErrorLog: slog.NewLogLogger(h.log.Handler(), slog.LevelInfo),
	}
	h.socket = l
	go func() {
		defer close(h.served)
		err := h.server.Serve(l)
		select {
		case <-h.going:
		default:
			h.log.Error("the socket of the data directory is not served any more", "error", err)
		}
	}()
}

// answering is how long, once the engine has stopped, the answers may take to be
// sent.
const answering = 2 * time.Second

// Close stops hosting in order: it says good-bye, ends the engine, sends what
// was answered, closes the store, unlocks.
func (h *Host) Close() error {
	h.once.Do(func() { h.closed = h.close() })
	return h.closed
}

func (h *Host) close() error {
	close(h.going)
	if h.server == nil {
		return h.Backend.Close()
	}
	_ = h.socket.Close() // refuses from here on
	err := h.Engine.Close()
	timer := time.NewTimer(answering)
	defer timer.Stop()
	select {
	case <-h.busy.over():
	case <-timer.C: // somebody does not read their answer
	}
	_ = h.server.Close()
	<-h.served
	return errors.Join(err, h.Backend.Close())
}

// leaveTo stops hosting for another process, which those who are told leave the
// lock to.
func (h *Host) leaveTo(next string) error {
	h.once.Do(func() {
		h.next = next
		h.closed = h.close()
	})
	return h.closed
}

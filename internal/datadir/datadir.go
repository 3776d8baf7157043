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
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/socket"
)

// DefaultPatience is how long is waited for an engine, unless Options say
// otherwise: longer than a host takes to open a store that a crash left.
const DefaultPatience = 10 * time.Second

// Options say how to use a data directory. The zero value will do.
type Options struct {
	// Purpose says in one line what this process is, for whoever meets it.
	Purpose string
	// Version is that of the program, for people.
	Version string
	// Patience is how long Open, OpenHost and each call wait while nobody has
	// an engine that can be reached; 0 means DefaultPatience.
	Patience time.Duration
	// Engine are options of the engine, should this process host it.
	Engine []embedded.Option
	// Handler makes what the host serves on the socket; nil means the HTTP
	// API. Who gets there is this user or root. Stopping is closed when the
	// host begins to stop.
	Handler func(b *embedded.Backend, stopping <-chan struct{}) http.Handler
	// InJob reports whether a process of this machine belongs to a job: such ones are
	// not served, and are no host to this process. With an error that could not be
	// found out, and counts as yes. nil asks nobody.
	InJob func(pid int) (bool, error)
	// Log receives what an operator should know; nil means slog.Default().
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Backend is the engine of a data directory, wherever it runs just now: here,
// or in another process of this host. When that changes, calls in flight are
// made again by their operation ids, and those that wait go on waiting.
type Backend struct {
	dir string
	opt Options
	// foreign is why this process only joins: the directory is another user's.
	foreign error

	stop context.CancelFunc
	done chan struct{} // closed when run has returned

	mu      sync.Mutex
	now     *role         // nil while there is none
	changed chan struct{} // closed, and made anew, when now changes
	why     error         // why there is none

	failOnce sync.Once
	failed   chan struct{}
	failure  error // set before failed is closed
}

var _ belay.Backend = (*Backend)(nil)

// Open finds the engine of a data directory, or starts it here. The directory is
// made if need be. It takes up to the patience; then it is refused with
// CodeConflict if the directory has an engine that cannot be shared, otherwise
// with what was in the way. Close ends it, and with it the engine, if it is here.
//
// A directory that others may change is refused; see [Check]. In one that is another
// user's root has no engine, and joins that of its owner.
func Open(ctx context.Context, dir string, o Options) (*Backend, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	foreign := socket.Check(dir)
	if foreign != nil && !(errors.Is(foreign, socket.ErrForeign) && os.Geteuid() == 0) {
		return nil, foreign
	}
	b := &Backend{
		dir: dir, opt: o.withDefaults(), foreign: foreign, done: make(chan struct{}), changed: make(chan struct{}),
		failed: make(chan struct{}),
	}
	within, cancel := context.WithTimeout(ctx, b.opt.Patience)
	defer cancel()
	first, err := b.find(within, time.Time{}, true)
	if err != nil {
		return nil, err
	}
	b.set(first, nil)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	go b.run(running, first)
	return b, nil
}

// set changes the role, and wakes those who wait for one.
func (b *Backend) set(r *role, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r == nil && b.now == nil {
		b.why = cmp.Or(why, b.why)
		return
	}
	b.now, b.why = r, why
	close(b.changed)
	b.changed = make(chan struct{})
}

// Hosting reports whether the engine runs in this process just now.
func (b *Backend) Hosting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now != nil && b.now.host != nil
}

// Failed is closed when an engine in this process has lost its store to a failed
// write. This process must end then; another takes over.
func (b *Backend) Failed() <-chan struct{} { return b.failed }

// Failure says why, once Failed is closed.
func (b *Backend) Failure() error {
	select {
	case <-b.failed:
		return b.failure
	default:
		return nil
	}
}

func (b *Backend) fail(err error) {
	b.failOnce.Do(func() {
		b.failure = err
		close(b.failed)
	})
}

// Close lets go of the directory. If the engine is here, it stops in order and
// another process takes over.
func (b *Backend) Close() error {
	b.stop()
	<-b.done
	return nil
}

// Dial reaches the engine of a data directory and never hosts it: CodeUnavailable
// if nobody does. It reaches the next host when the one goes.
func Dial(ctx context.Context, dir string, o Options) (belay.Backend, error) {
	o = o.withDefaults()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	if err := socket.Check(dir); err != nil && !errors.Is(err, socket.ErrForeign) {
		return nil, err
	}
	p, err := greet(ctx, dir, o)
	if errors.Is(err, socket.ErrNobody) {
		err = unreached(err)
	}
	if err != nil {
		return nil, err
	}
	p.leave()
	return dialClient(ctx, dir, o, o.Patience)
}

// Ready asks the process that has the engine of a data directory whether it takes
// work, as [client.Client.Ready] does. CodeUnavailable if none answers.
func Ready(ctx context.Context, dir string, o Options) (notes []string, err error) {
	o = o.withDefaults()
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	p, err := greet(ctx, dir, o)
	switch {
	case errors.Is(err, socket.ErrSilent):
		err = &belay.Error{Code: belay.CodeUnavailable, Err: err,
			Message: "the process that has the engine does not answer: if it was stopped (Ctrl-Z), let it go on " +
				"with fg or kill -CONT"}
	case errors.Is(err, socket.ErrNobody):
		err = unreached(err)
	}
	if err != nil {
		return nil, err
	}
	defer p.leave()
	c, err := dialClient(ctx, dir, o, o.Patience)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Ready(ctx)
}

// dialClient makes a client of whoever serves the socket.
func dialClient(ctx context.Context, dir string, o Options, patience time.Duration) (*client.Client, error) {
	return client.Dial(ctx, "unix:"+filepath.Join(dir, socket.Name), client.Lazy(), client.Patience(patience),
		client.Logger(o.Log),
		client.Dialer(func(ctx context.Context) (net.Conn, error) { return socket.Dial(ctx, dir, o.judge()) }))
}

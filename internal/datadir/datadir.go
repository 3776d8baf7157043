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

// DefaultPatience is the default of Options.Patience. It is longer than a process needs to open a
// store after a crash.
const DefaultPatience = 10 * time.Second

// Options are the options of Open, OpenHost, Dial and Ready. All fields may be zero.
type Options struct {
	// Purpose says in one line what this process does, such as "belay serve". Other processes
	// show it to their users.
	Purpose string
	// Version is the version of the program, for people.
	Version string
	// Patience is how long Open, OpenHost and each call wait while no engine can be reached; 0
	// means DefaultPatience.
	Patience time.Duration
	// Engine are the options of the engine if this process runs the engine.
	Engine []embedded.Option
	// Handler makes the handler that the host (the process with the engine) serves on the socket;
	// nil means the HTTP API. Its callers are processes of this user or root. Stopping is closed
	// when the host begins to stop.
	Handler func(b *embedded.Backend, stopping <-chan struct{}) http.Handler
	// InJob reports whether a process of this machine belongs to a job. The host (the process with
	// the engine) does not serve a process of a job, and no process accepts a process of a job as
	// its host. If InJob returns an error, the process is treated as a process of a job. If InJob
	// is nil, no process is checked.
	InJob func(pid int) (bool, error)
	// Log receives the messages for operators; nil means slog.Default().
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

// Backend is the engine of a data directory, in this process or in another process of this machine.
// When the engine moves to another process, calls in flight are repeated there with their operation
// ids, and calls that wait continue to wait.
type Backend struct {
	dir string
	opt Options
	// foreign is set if the directory belongs to another user: this process then never runs the
	// engine, and is always a client of the process that does.
	foreign error

	stop context.CancelFunc
	done chan struct{} // closed when run has returned

	mu      sync.Mutex
	now     *role         // the present role (how this process reaches the engine); nil if there is none
	changed chan struct{} // closed, and replaced by a new channel, when now changes
	why     error         // the reason why this process reaches no engine

	failOnce sync.Once
	failed   chan struct{}
	failure  error // the reason why failed is closed; it is set first
}

var _ belay.Backend = (*Backend)(nil)

// Open finds the engine of a data directory, or starts an engine in this process. Open makes the
// directory if it does not exist. Open waits at most for Options.Patience. After this time the
// error is CodeConflict if another process runs the engine of the directory and does not share it,
// and otherwise the error of the last try. Close closes the Backend, and ends the engine if this
// process runs it.
//
// A directory that other users may change is refused; see [socket.Check]. In a directory of another
// user, root starts no engine and uses the engine of the directory's owner.
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

// set sets the role (how this process reaches the engine) to r, or to none if r is nil, and wakes
// the calls that wait for a role.
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

// Hosting reports whether the engine runs in this process at the moment.
func (b *Backend) Hosting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now != nil && b.now.host != nil
}

// Failed is closed when a failed write has made the store of an engine in this process unusable.
// This process must then end, and another process starts the engine.
func (b *Backend) Failed() <-chan struct{} { return b.failed }

// Failure is the reason why Failed was closed.
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

// Close stops using the directory. If this process runs the engine, the engine stops, and another
// process starts it again.
func (b *Backend) Close() error {
	b.stop()
	<-b.done
	return nil
}

// Dial connects to the engine of a data directory and never starts an engine itself. The error is
// CodeUnavailable if no process runs the engine. When that process ends, later calls reach the next
// process that runs the engine.
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

// Ready checks whether the engine of a data directory takes work, like [client.Client.Ready]. The
// error is CodeUnavailable if no engine answers.
func Ready(ctx context.Context, dir string, o Options) (notes []string, err error) {
	o = o.withDefaults()
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	p, err := greet(ctx, dir, o)
	switch {
	case errors.Is(err, socket.ErrSilent):
		err = &belay.Error{Code: belay.CodeUnavailable, Err: err,
			Message: "the process that has the engine does not answer: if it was stopped (Ctrl-Z), continue it " +
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

// dialClient makes an HTTP client for the directory's socket.
func dialClient(ctx context.Context, dir string, o Options, patience time.Duration) (*client.Client, error) {
	return client.Dial(ctx, "unix:"+filepath.Join(dir, socket.Name), client.Lazy(), client.Patience(patience),
		client.Logger(o.Log),
		client.Dialer(func(ctx context.Context) (net.Conn, error) { return socket.Dial(ctx, dir, o.judge()) }))
}

package datadir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/embedded"
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

// role is one way to the engine for as long as it lasts.
type role struct {
	belay.Backend
	host *Host         // set if the engine is here
	lost chan struct{} // closed when the engine stops or its process is gone
	next string        // who hosts next, if that is known; set before lost is closed
	end  func() error  // frees everything; blocks until that is done
}

// Open finds the engine of a data directory, or starts it here. The directory is
// made if need be. It takes up to the patience; then it is refused with
// CodeConflict if the directory has an engine that cannot be shared, otherwise
// with what was in the way. Close ends it, and with it the engine, if it is here.
func Open(ctx context.Context, dir string, o Options) (*Backend, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	b := &Backend{dir: dir, opt: o.withDefaults(), done: make(chan struct{}), changed: make(chan struct{}), failed: make(chan struct{})}
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

// yielded is how long the lock is left to a process that was announced as the
// next host.
const yielded = 2 * time.Second

// run keeps a role until ctx ends.
func (b *Backend) run(ctx context.Context, r *role) {
	defer close(b.done)
	for {
		b.watch(ctx, r)
		b.set(nil, errGone)
		if err := r.end(); err != nil && ctx.Err() == nil {
			b.opt.Log.Warn("stop hosting the engine", "dir", b.dir, "error", err)
		}
		if ctx.Err() != nil {
			return
		}
		var leave time.Time
		if r.next != "" {
			leave = time.Now().Add(yielded)
		}
		var err error
		if r, err = b.find(ctx, leave, false); err != nil {
			return // only because ctx has ended
		}
		b.set(r, nil)
	}
}

// errGone is why there is no engine just after it was lost.
var errGone = errors.New("its host is gone")

// watch returns when the role is lost, or ctx ends.
func (b *Backend) watch(ctx context.Context, r *role) {
	if r.host == nil {
		select {
		case <-ctx.Done():
		case <-r.lost:
		}
		return
	}
	broken := r.host.Failed()
	for {
		select {
		case <-broken:
			b.fail(r.host.Failure())
			broken = nil
			continue
		case <-ctx.Done():
		case r.next = <-r.host.asked:
			b.opt.Log.Info("the engine is left to another process", "dir", b.dir, "next", r.next)
		}
		b.set(nil, errGone) // what begins now waits for the next host
		close(r.lost)
		return
	}
}

// find hosts the engine or dials its host, whichever works first. The lock is
// left alone until leave. The first time a store that cannot be opened is an
// answer; later it is tried again.
func (b *Backend) find(ctx context.Context, leave time.Time, first bool) (*role, error) {
	var refused error
	warned := ""
	for pause := 10 * time.Millisecond; ; pause = min(pause*5/4, 200*time.Millisecond) {
		if time.Now().After(leave) {
			h, err := host(ctx, b.dir, b.opt, true)
			switch {
			case err == nil:
				r := &role{Backend: h.Backend, host: h, lost: make(chan struct{})}
				r.end = func() error { return h.leaveTo(r.next) }
				return r, nil
			case !inUse(err):
				if first {
					return nil, err
				}
				if err.Error() != warned {
					warned = err.Error()
					b.opt.Log.Warn("the engine cannot be started here; it is tried again", "dir", b.dir, "error", err)
				}
				pause = max(pause, 200*time.Millisecond)
			}
			refused = err
		}
		r, err := b.join(ctx)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, errNobody) {
			refused = err
		}
		b.set(nil, refused)
		select {
		case <-ctx.Done():
			return nil, cmp.Or(refused, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// join becomes a client of the host.
func (b *Backend) join(ctx context.Context) (*role, error) {
	p, err := greet(ctx, b.dir)
	if err != nil {
		return nil, err
	}
	// What is repeated is repeated here, where it is known who is to be asked.
	c, err := dialClient(ctx, b.dir, b.opt, 0)
	if err != nil {
		p.leave()
		return nil, err
	}
	r := &role{Backend: c, lost: make(chan struct{})}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.next = p.farewell()
		close(r.lost)
	}()
	r.end = func() error {
		p.leave()
		<-watched
		return c.Close()
	}
	return r, nil
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
	p, err := greet(ctx, dir)
	if errors.Is(err, errNobody) {
		err = unreached(err)
	}
	if err != nil {
		return nil, err
	}
	p.leave()
	return dialClient(ctx, dir, o, o.Patience)
}

// dialClient makes a client of whoever serves the socket.
func dialClient(ctx context.Context, dir string, o Options, patience time.Duration) (*client.Client, error) {
	return client.Dial(ctx, "unix:"+filepath.Join(dir, socketName), client.Lazy(), client.Patience(patience), client.Logger(o.Log),
		client.Dialer(func(ctx context.Context) (net.Conn, error) { return dial(ctx, dir) }))
}

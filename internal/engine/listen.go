package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay/internal/store"
)

// disconnectedPoll is the interval at which an engine checks everything while it receives no hints
// (messages about changes) from other servers.
const disconnectedPoll = time.Second

// listener receives the hints of the other servers (messages about changes) and passes them to the
// observers.
type listener struct {
	engine       *Engine
	hinter       store.Hinter
	disconnected atomic.Bool
}

// listen passes on the hints of other servers until ctx ends.
func (r *listener) listen(ctx context.Context) {
	if err := r.hinter.Listen(ctx, r.onHint); err != nil && ctx.Err() == nil {
		r.disconnected.Store(true)
		r.engine.log.Warn("no connection for the hints of other servers; their changes are noticed "+
			"within a second instead", "error",
			err)
	}
}

func (r *listener) onHint(h store.Hint) {
	e := r.engine
	if r.disconnected.Swap(h.Down) != h.Down {
		e.log.Debug("hints of other servers", "connected", !h.Down)
	}
	for _, o := range e.observers {
		o.onHint(h)
	}
}

// poll makes the engine check everything regularly while it receives no hints.
func (r *listener) poll(ctx context.Context) {
	for sleep(ctx, disconnectedPoll) {
		if r.disconnected.Load() {
			r.engine.dispatcher.lookAgain()
			r.engine.sweeper.look()
			r.engine.hub.look()
			r.engine.statuses.lose()
			r.engine.hooks.wake()
		}
	}
}

// outage remembers whether reads of the store fail, so that the engine logs each outage only once.
type outage struct {
	mu    sync.Mutex
	since time.Time
}

// begin notes a failed read, and reports whether it is the first of the outage.
func (t *outage) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.since.IsZero() {
		return false
	}
	t.since = time.Now()
	return true
}

func (t *outage) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Time{}
}

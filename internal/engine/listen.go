package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay/internal/store"
)

// deafPoll is how often an engine looks at everything while it cannot hear the
// other servers on its store.
const deafPoll = time.Second

// ear hears the other servers on the store. What it hears is passed on as hints.
type ear struct {
	engine *Engine
	hinter store.Hinter
	deaf   atomic.Bool
}

// listen heeds the hints of other servers until ctx ends.
func (r *ear) listen(ctx context.Context) {
	if err := r.hinter.Listen(ctx, r.heed); err != nil && ctx.Err() == nil {
		r.deaf.Store(true)
		r.engine.log.Warn("other servers cannot be heard; what they do is noticed within a second instead", "error",
			err)
	}
}

func (r *ear) heed(h store.Hint) {
	e := r.engine
	if r.deaf.Swap(h.Down) != h.Down {
		e.log.Debug("hints of other servers", "heard", !h.Down)
	}
	for _, o := range e.observers {
		o.heed(h)
	}
}

// poll looks at everything now and then while nothing can be heard.
func (r *ear) poll(ctx context.Context) {
	for sleep(ctx, deafPoll) {
		if r.deaf.Load() {
			r.engine.dispatcher.lookAgain()
			r.engine.sweeper.look()
			r.engine.hub.look()
		}
	}
}

// troubled says whether something goes wrong since a while, so that the log says
// it once.
type troubled struct {
	mu    sync.Mutex
	since time.Time
}

// begin notes trouble, and reports whether it is new.
func (t *troubled) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.since.IsZero() {
		return false
	}
	t.since = time.Now()
	return true
}

func (t *troubled) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Time{}
}

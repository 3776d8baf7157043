package engine

import (
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// hub wakes those who watch an execution. It holds no events: who is woken
// reads the store.
type hub struct {
	mu      sync.Mutex
	waiting map[belay.ExecutionID]map[chan struct{}]struct{}
}

func newHub() *hub {
	return &hub{waiting: make(map[belay.ExecutionID]map[chan struct{}]struct{})}
}

// watch gives a channel that is written to once the execution changes, and a
// function that ends the watch.
func (h *hub) watch(id belay.ExecutionID) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting[id] == nil {
		h.waiting[id] = make(map[chan struct{}]struct{})
	}
	h.waiting[id][ch] = struct{}{}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waiting[id], ch)
		if len(h.waiting[id]) == 0 {
			delete(h.waiting, id)
		}
	}
}

// observe wakes the watchers of what changed.
func (h *hub) observe(c *machine.Changes) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting) == 0 {
		return
	}
	for _, e := range c.Executions {
		for ch := range h.waiting[e.ID] {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}

package engine

import (
	"slices"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// hub wakes those who watch an execution. It holds no events: who is woken
// reads the store.
// Those who await an execution's end are given what the batch that ended it
// says, and need not read at all.
type hub struct {
	mu       sync.Mutex
	waiting  map[belay.ExecutionID]map[chan struct{}]struct{}
	awaiting map[belay.ExecutionID][]chan belay.Execution
	// open holds executions that this engine saw begin and not end: whoever
	// awaits one of them need not look first. It may be forgotten any time.
	open map[belay.ExecutionID]struct{}
}

// maxOpen bounds what the hub remembers of executions that have not ended.
const maxOpen = 1 << 16

func newHub() *hub {
	return &hub{
		waiting:  make(map[belay.ExecutionID]map[chan struct{}]struct{}),
		awaiting: make(map[belay.ExecutionID][]chan belay.Execution),
		open:     make(map[belay.ExecutionID]struct{}),
	}
}

// await gives a channel that gets the execution when it ends, or a zero one when
// it turns out to have ended before, a function that ends the waiting, and whether the execution is known not to have ended yet.
func (h *hub) await(id belay.ExecutionID) (ended <-chan belay.Execution, done func(), open bool) {
	ch := make(chan belay.Execution, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.awaiting[id] = append(h.awaiting[id], ch)
	_, open = h.open[id]
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		left := slices.DeleteFunc(h.awaiting[id], func(c chan belay.Execution) bool { return c == ch })
		if len(left) == 0 {
			delete(h.awaiting, id)
			return
		}
		h.awaiting[id] = left
	}, open
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

// observe wakes the watchers of what a batch changed.
func (h *hub) observe(c *machine.Changes) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rememberLocked(c)
	if len(h.waiting) == 0 && len(h.awaiting) == 0 {
		return
	}
	var runs map[belay.ExecutionID]*machine.Run
	for _, e := range c.Executions {
		if awaiting := h.awaiting[e.ID]; len(awaiting) > 0 && e.State.Terminal() {
			if runs == nil {
				runs = ended(c)
			}
			var view belay.Execution // zero: read it, the batch says too little
			if run, here := runs[e.ID]; here {
				view = machine.View(endRecord(e, run))
			}
			for _, ch := range awaiting {
				ch <- view
			}
			delete(h.awaiting, e.ID)
		}
		for ch := range h.waiting[e.ID] {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}

func (h *hub) rememberLocked(c *machine.Changes) {
	if len(h.open) > maxOpen {
		clear(h.open)
	}
	for _, e := range c.Executions {
		switch {
		case e.State.Terminal():
			delete(h.open, e.ID)
		case e.New:
			h.open[e.ID] = struct{}{}
		}
	}
}

// ended are the executions that a batch ended, with the run that ended with them,
// if one did.
func ended(c *machine.Changes) map[belay.ExecutionID]*machine.Run {
	runs := make(map[belay.ExecutionID]*machine.Run, len(c.Runs))
	for _, d := range c.Deeds {
		if d.Final {
			runs[d.Execution] = nil
		}
	}
	for _, r := range c.Runs {
		if r.Final {
			runs[r.Execution] = r
		}
	}
	return runs
}

// endRecord is what a batch says of an execution that it ended.
func endRecord(e *machine.Execution, r *machine.Run) *machine.Record {
	rec := &machine.Record{Execution: e}
	if r != nil {
		rec.Runs = []*machine.Run{r}
	}
	return rec
}

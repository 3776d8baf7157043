package engine

import (
	"slices"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// hub wakes those who watch an execution. It holds no events: who is woken
// reads the store.
// Those who await an execution's end are given what the batch that ended it
// says, and need not read at all.
type hub struct {
	mu       sync.Mutex
	waiting  map[belay.ExecutionID]map[chan struct{}]struct{}
	awaiting map[belay.ExecutionID][]chan *belay.Execution
	// open holds executions, by their hash, that this engine saw begin and of
	// which it has not heard since: whoever awaits one of them need not look
	// first. It may be forgotten any time.
	open map[uint32]belay.ExecutionID
	// heard are the newest changes that might overtake the batch in which
	// their execution began; number counts them.
	heard  [maxHeard]uint32
	number uint64
}

const (
	// maxOpen bounds what the hub remembers of executions that have not ended.
	maxOpen = 1 << 16
	// maxHeard bounds what it remembers of changes.
	maxHeard = 1 << 13
)

func newHub() *hub {
	return &hub{
		waiting:  make(map[belay.ExecutionID]map[chan struct{}]struct{}),
		awaiting: make(map[belay.ExecutionID][]chan *belay.Execution),
		open:     make(map[uint32]belay.ExecutionID),
	}
}

// await gives a channel that gets the execution when it ends, or nil when it has
// to be read, a function that ends the waiting, and whether the execution is known
// not to have ended yet. The execution is shared by all who await it.
func (h *hub) await(id belay.ExecutionID) (ended <-chan *belay.Execution, done func(), open bool) {
	ch := make(chan *belay.Execution, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.awaiting[id] = append(h.awaiting[id], ch)
	open = h.open[store.Hash(id)] == id
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		left := slices.DeleteFunc(h.awaiting[id], func(c chan *belay.Execution) bool { return c == ch })
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

// begin is the number of the newest change heard of, for a batch that begins.
func (h *hub) begin() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.number
}

// observe wakes the watchers of what a batch changed.
func (h *hub) observe(b *batch) {
	c := b.changes
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rememberLocked(c, b.began.changes)
	if len(h.waiting) == 0 && len(h.awaiting) == 0 {
		return
	}
	var runs map[belay.ExecutionID]*machine.Run
	for _, e := range c.Executions {
		if awaiting := h.awaiting[e.ID]; len(awaiting) > 0 && e.State.Terminal() {
			if runs == nil {
				runs = ended(c)
			}
			var view *belay.Execution // nil: read it, the batch says too little
			if run, here := runs[e.ID]; here {
				v := machine.View(endRecord(e, run))
				view = &v
			}
			h.endedLocked(e.ID, view)
			delete(h.awaiting, e.ID)
		}
		h.changedLocked(e.ID)
	}
}

// endedLocked passes an execution that has ended on to those who await it. If
// one has a word already, it will read anyway.
func (h *hub) endedLocked(id belay.ExecutionID, view *belay.Execution) {
	for _, ch := range h.awaiting[id] {
		select {
		case ch <- view:
		default:
		}
	}
}

func (h *hub) changedLocked(id belay.ExecutionID) {
	for ch := range h.waiting[id] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// rememberLocked notes what has begun in a batch, unless it was heard of since
// the batch began: then it may have ended already.
func (h *hub) rememberLocked(c *machine.Changes, began uint64) {
	if len(h.open) > maxOpen {
		clear(h.open)
	}
	var since map[uint32]bool
	if n := h.number - began; n > 0 && n <= maxHeard {
		since = make(map[uint32]bool, n)
		for i := began; i < h.number; i++ {
			since[h.heard[i%maxHeard]] = true
		}
	}
	for _, e := range c.Executions {
		hash := store.Hash(e.ID)
		switch {
		case e.State.Terminal():
			h.forgetLocked(hash)
		case e.New && h.number-began <= maxHeard && !since[hash]:
			h.open[hash] = e.ID
		}
	}
}

func (h *hub) forgetLocked(hash uint32) {
	delete(h.open, hash)
	h.heard[h.number%maxHeard] = hash
	h.number++
}

// heed wakes those whom it concerns what another server has done.
func (h *hub) heed(x store.Hint) {
	if x.Lost || x.Down || x.Ended.All || x.Changed.All {
		h.look()
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for hash := range x.Ended.Hashes {
		h.forgetLocked(hash)
	}
	if !x.Ended.None() {
		for id := range h.awaiting {
			if x.Ended.Has(id) {
				h.endedLocked(id, nil)
			}
		}
	}
	for id := range h.waiting {
		if x.Ended.Has(id) || x.Changed.Has(id) {
			h.changedLocked(id)
		}
	}
}

// look has everybody look, and remembers nothing.
func (h *hub) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.open)
	h.number += maxHeard + 1
	for id := range h.awaiting {
		h.endedLocked(id, nil)
	}
	for id := range h.waiting {
		h.changedLocked(id)
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

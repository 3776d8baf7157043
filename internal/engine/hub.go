package engine

import (
	"slices"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// hub wakes callers that watch an execution. It stores no events: a watcher that wakes reads the
// store. Callers that await the end of an execution get the execution from the batch that ended it
// and need not read the store at all.
type hub struct {
	mu       sync.Mutex
	waiting  map[belay.ExecutionID]map[chan struct{}]struct{}
	awaiting map[belay.ExecutionID][]chan *belay.Execution
	// open contains executions that this engine has accepted, by a hash of the id, until a change
	// of the execution is reported. A caller that waits for the end of such an execution need not
	// read the store first. Entries may be dropped at any time.
	open map[uint32]belay.ExecutionID
	// heard is a ring buffer of the newest reported changes. Another server may report a change of
	// an execution before observe receives the batch that accepted the execution; heard keeps such
	// an execution out of open. number counts the changes.
	heard  [maxHeard]uint32
	number uint64
}

const (
	// maxOpen is the maximum number of executions in open.
	maxOpen = 1 << 16
	// maxHeard is the number of changes in heard.
	maxHeard = 1 << 13
)

func newHub() *hub {
	return &hub{
		waiting:  make(map[belay.ExecutionID]map[chan struct{}]struct{}),
		awaiting: make(map[belay.ExecutionID][]chan *belay.Execution),
		open:     make(map[uint32]belay.ExecutionID),
	}
}

// await returns a channel, a function that ends the wait, and whether it is certain that the
// execution has not ended yet. The channel gets the execution when it ends, or nil when the caller
// must read it from the store. All callers get the same execution and must not change it.
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

// watch returns a channel that gets a value when the execution changes, and a function that ends
// the watch.
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

// begin returns the number of the newest reported change, for a batch that begins.
func (h *hub) begin() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.number
}

// observe wakes the watchers of the executions that a batch changed.
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
			var view *belay.Execution // nil if the caller must read the execution from the store
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

// endedLocked passes an execution that has ended to the callers that wait for it. If a caller's
// channel already has a value, endedLocked adds none, because that caller reads the store in any
// case.
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

// rememberLocked notes the executions that a batch has accepted. It leaves out executions of which
// a change was reported since the batch began, because they may have ended already.
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

// onHint wakes the callers that watch or await an execution that another server has changed.
func (h *hub) onHint(x store.Hint) {
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

// look wakes all callers, so that they read the store, and forgets everything in open.
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

// ended returns the executions that a batch ended, each with the run that ended with it, if there
// is one.
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

// endRecord is the record of an execution that a batch has ended.
func endRecord(e *machine.Execution, r *machine.Run) *machine.Record {
	rec := &machine.Record{Execution: e}
	if r != nil {
		rec.Runs = []*machine.Run{r}
	}
	return rec
}

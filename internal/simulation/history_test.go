package simulation

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// history is the record of a simulation: the commits of the store, the answers to callers, and
// the injected faults. The checkers read nothing else.
type history struct {
	began func() time.Duration

	mu        sync.Mutex
	commits   []*commit
	calls     []*call
	steps     []carried
	slept     []promise.Entry
	refusals  []carried // appends to a log that were refused because another run had written that chunk
	seen      []promise.Sighting
	faults    map[string]int
	sometimes map[string]int
	trouble   map[string][]span     // for each node, the times at which the store did not serve it or the node was down
	offsets   []offset              // the offsets of the store's clock, in order of time
	crashed   map[int]time.Duration // for each pid, the time at which the worker's process ended or was killed
	errors    []string
	open      map[belay.ExecutionID]bool  // executions that have not ended
	newest    map[belay.ExecutionID]int64 // the newest seq of each execution that was not deleted
	deleted   map[belay.ExecutionID]pruned
}

func newHistory(now func() time.Duration) *history {
	return &history{
		began: now, faults: make(map[string]int), sometimes: make(map[string]int), trouble: make(map[string][]span),
		crashed: make(map[int]time.Duration),
		offsets: []offset{{}}, open: make(map[belay.ExecutionID]bool), newest: make(map[belay.ExecutionID]int64),
		deleted: make(map[belay.ExecutionID]pruned),
	}
}

// commit is one transaction that wrote rows or a mark of life (a time that shows that a node runs).
type commit struct {
	n       int
	at      machine.Time  // the time of the commit by the store's clock
	real    time.Duration // the time since the beginning of the simulation
	began   time.Duration // when the server began the commit
	node    string
	changes *machine.Changes // empty if the commit wrote only a mark of life
	beat    time.Duration    // the interval until the next mark of life, as the server announced it
}

// call is one call of a worker or client, with the outcome that the caller got.
type call struct {
	actor, kind, about string
	request, reply     any
	from, to           time.Duration
	end                promise.Ending
	err                error
}

// open is the ending of a call that has not returned to its caller.
const open promise.Ending = ""

// carried is a step of a workflow, or an append to a log, that was carried out.
type carried struct {
	execution belay.ExecutionID
	token     belay.Token
	key       string
	real      time.Duration
	target    string // the target that the step calls; empty if it calls none
	stopped   bool   // the process was stopped: it could not see its clock, and its effects were not visible
}

// span is a period. Its limits are durations since the beginning of the simulation.
type span struct{ from, to time.Duration }

// offset describes how the store's wall clock was set: from the virtual time real on, this clock is
// ahead of the virtual time by the duration in the field by.
type offset struct{ real, by time.Duration }

func (h *history) committed(c *commit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.n, c.real = len(h.commits), h.began()
	h.commits = append(h.commits, c)
	for _, e := range c.changes.Executions {
		h.newest[e.ID] = e.Seq
		if e.State.Terminal() {
			delete(h.open, e.ID)
		} else {
			h.open[e.ID] = true
		}
	}
}

func (h *history) call(actor, kind, about string, request any) *call {
	c := &call{actor: actor, kind: kind, about: about, request: request, from: h.began()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
	return c
}

// noteAnswer notes the answer that the caller got.
func (h *history) noteAnswer(c *call, reply any, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.reply, c.err, c.to, c.end = reply, err, h.began(), promise.EndOf(err)
}

func (h *history) step(s carried) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.real = h.began()
	h.steps = append(h.steps, s)
}

func (h *history) refused(c carried) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.real = h.began()
	h.refusals = append(h.refusals, c)
}

func (h *history) sleeping(e promise.Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slept = append(h.slept, e)
}

func (h *history) saw(s promise.Sighting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, s)
}

// gone records that a worker's process has ended.
func (h *history) gone(pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.crashed[pid]; !known {
		h.crashed[pid] = h.began()
	}
}

func (h *history) noteError(who string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errors = append(h.errors, who+": "+err.Error())
}

// count counts an event of a kind that must happen at least once in all simulations together.
func (h *history) count(kind string) { h.sometimes[kind]++ }

func (h *history) fault(kind string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[kind]++
}

// troubled records that a node could not work between two moments.
func (h *history) troubled(node string, from, to time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trouble[node] = append(h.trouble[node], span{from, to})
}

// settle sorts the entries that concurrent goroutines noted.
func (h *history) settle() {
	slices.SortStableFunc(h.calls, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.actor, b.actor), cmp.Compare(a.kind, b.kind),
			cmp.Compare(a.about, b.about))
	})
	for _, t := range h.trouble {
		slices.SortFunc(t, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	}
}

// clockShows returns the virtual time, since the simulation began, at which the store's clock first
// showed the given time. The store's clock is as far ahead of the virtual time as its wall clock
// ever was: when the wall clock is set back, the store's clock does not go back.
func (h *history) clockShows(at machine.Time, zero time.Time) time.Duration {
	want := at.Time().Sub(zero)
	ahead := time.Duration(0)
	for i, o := range h.offsets {
		ahead = max(ahead, o.by)
		shown := max(want-ahead, o.real)
		if i+1 == len(h.offsets) || shown < h.offsets[i+1].real {
			return shown
		}
	}
	return 0
}

package chaos

import (
	"sync"
	"time"

	"github.com/belaydev/belay/internal/testkit/promise"
)

// history collects the results of calls in this process while they happen.
type history struct {
	mu      sync.Mutex
	told    []entry
	seen    []promise.Sighting
	looks   []look
	gates   []gateLook
	modes   []modeLook
	faults  map[string]int
	times   map[string]int // the number of events that are not faults, by their name
	trouble []span
	harm    []span
	deaths  []death
	bad     map[string]int
	passed  []string
}

func newHistory() *history {
	return &history{faults: make(map[string]int), times: make(map[string]int), bad: make(map[string]int)}
}

// note adds an entry. It makes history implement the interface notebook.
func (h *history) note(e entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, e)
}

func (h *history) saw(s promise.Sighting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, s)
}

func (h *history) looked(l look) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks = append(h.looks, l)
}

func (h *history) fault(kind string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[kind]++
}

func (h *history) happened(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.times[what]++
}

func (h *history) died(pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deaths = append(h.deaths, death{pid, time.Now()})
}

// answered records the status with which a server answered an invalid input. If the server should
// have answered otherwise, passed describes the input and the answer; else it is empty.
func (h *history) answered(status, passed string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bad[status]++
	if passed != "" {
		h.passed = append(h.passed, passed)
	}
}

// troubled records a period in which the servers could not act: the time since from.
func (h *history) troubled(what string, from time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trouble = append(h.trouble, span{what, from, time.Now()})
}

// harmed records a period in which a worker was down or stopped: the time since from.
func (h *history) harmed(worker string, from time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.harm = append(h.harm, span{worker, from, time.Now()})
}

// into copies the whole history into a record.
func (h *history) into(r *record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.Told, r.Seen, r.Looks = append(r.Told, h.told...), h.seen, h.looks
	r.Gates, r.Modes = h.gates, h.modes
	r.Harm = h.harm
	r.Faults, r.Trouble, r.Deaths, r.Bad, r.Passed, r.Times = h.faults, h.trouble, h.deaths, h.bad, h.passed, h.times
}

// notebook is the place where a caller records the results of its calls.
type notebook interface{ note(entry) }

package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// dispatcher parks the claims of workers until there may be work for them and
// serves those together. What it knows are hints: for each lane the earliest
// moment at which something in it may be due.
type dispatcher struct {
	engine *Engine

	reading chan struct{} // holds who reads the sessions: one at a time

	mu       sync.Mutex
	lanes    map[machine.LaneID]*lane
	version  int    // grows with the set of lanes
	news     uint64 // grows when something becomes ready, or may have
	stale    bool   // the lanes must be read
	sessions map[belay.WorkerID]*session
	unread   map[belay.WorkerID]bool // sessions that are asked for and must be read
	parked   []*claim                // in order of arrival
	stopped  bool
	wake     chan struct{}
}

// claim is a worker's claim that waits for its answer.
type claim struct {
	request belay.ClaimRequest
	session *session
	sent    *call // while a command of it is on its way
	notify  chan struct{}
}

func newDispatcher(e *Engine) *dispatcher {
	return &dispatcher{
		engine: e, lanes: make(map[machine.LaneID]*lane), sessions: make(map[belay.WorkerID]*session),
		unread: make(map[belay.WorkerID]bool),
		wake:   make(chan struct{}, 1), reading: make(chan struct{}, 1),
	}
}

// run wakes parked claims when a time comes that a lane's hint names, and reads
// the lanes anew now and then for those that another server made.
func (d *dispatcher) run(ctx context.Context) {
	for {
		roused, ok := d.refresh(ctx)
		poll := roused.Add(d.engine.opt.SlowPoll)
		if !ok {
			poll = roused.Add(min(d.engine.opt.SlowPoll, readAgain))
		}
		for roused < poll && !(ok && d.isStale()) {
			// What fell due since the last rousing is looked at at once.
			wait := min(poll, d.next(roused, poll)).Sub(d.engine.store.Now())
			if !d.pause(ctx, wait) {
				return
			}
			roused = d.engine.store.Now()
			d.rouse(roused)
		}
	}
}

// readAgain is how soon the lanes are read again that could not be read.
const readAgain = time.Second

func (d *dispatcher) isStale() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stale
}

// nudge wakes the dispatcher.
func (d *dispatcher) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// pause waits for so long or until something wakes the dispatcher.
func (d *dispatcher) pause(ctx context.Context, wait time.Duration) bool {
	t := time.NewTimer(max(wait, time.Microsecond))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-d.wake:
	}
	return true
}

// next is the earliest hint after now, or poll.
func (d *dispatcher) next(now, poll machine.Time) machine.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := poll
	if len(d.parked) == 0 {
		return at
	}
	for _, l := range d.lanes {
		if l.hint > now && l.hint < at {
			at = l.hint
		}
	}
	return at
}

// rouse wakes the parked claims that may find something now.
func (d *dispatcher) rouse(now machine.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rouseLocked(now)
}

func (d *dispatcher) rouseLocked(now machine.Time) {
	for _, c := range d.parked {
		if c.sent == nil && d.hopefulLocked(c, now) {
			c.poke()
		}
	}
}

func (c *claim) poke() {
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// hopefulLocked reports whether any lane of the claim may have something due.
func (d *dispatcher) hopefulLocked(c *claim, now machine.Time) bool {
	if c.request.Slots == 0 || c.session.draining {
		return false
	}
	for _, l := range d.takesLocked(c.session) {
		if h := d.lanes[l.ID].hint; h != 0 && h <= now {
			return true
		}
	}
	return false
}

// join gives the commands of parked claims that may take what the batch is
// about to make ready.
func (d *dispatcher) join(calls []*call) []*call {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.parked) == 0 {
		return nil
	}
	var lanes []machine.Lane
	var last *machine.Submit
	for _, k := range calls {
		s, ok := k.command.(*machine.Submit)
		if !ok || !s.DueAt.IsZero() || s.External || last != nil && sameLane(s, last) {
			continue
		}
		l := machine.NewLane(s.Queue, s.Workflow, s.Version, s.Priority, s.WorkerLabels)
		if !slices.ContainsFunc(lanes, func(have machine.Lane) bool { return have.ID == l.ID }) {
			lanes = append(lanes, l)
		}
		last = s
	}
	var joined []*call
	for _, c := range d.parked {
		if c.sent == nil && c.request.Slots > 0 && !c.session.draining && slices.ContainsFunc(lanes, func(l machine.Lane) bool { return l.Takes(c.session.spec) }) {
			for _, l := range lanes {
				d.laneLocked(l)
			}
			c.sent = newCall(d.commandLocked(c))
			joined = append(joined, c.sent)
			c.poke()
		}
	}
	return joined
}

// sameLane reports whether two submissions go to one lane, without working out
// which.
func sameLane(a, b *machine.Submit) bool {
	return a.Workflow == b.Workflow && a.Queue == b.Queue && a.Version == b.Version && a.Priority == b.Priority &&
		len(a.WorkerLabels)+len(b.WorkerLabels) == 0
}

// manySlots is for how many slots a claim is made ready that may win nothing. One
// that wins more than half of what it could is followed by one for twice as many.
const manySlots = 128

func (d *dispatcher) commandLocked(c *claim) machine.Command {
	r := c.request
	r.Slots = min(r.Slots, max(manySlots, 2*c.session.won))
	secrets := make([]belay.Secret, r.Slots)
	raw := make([]byte, 16*len(secrets))
	d.engine.opt.Random(raw)
	for i := range secrets {
		copy(secrets[i][:], raw[16*i:])
	}
	return &machine.Claim{ClaimRequest: r, Lanes: slices.Clone(d.takesLocked(c.session)), Secrets: secrets}
}

// stop ends all parked claims, and those that come later.
func (d *dispatcher) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	for _, c := range d.parked {
		c.poke()
	}
}

package engine

import (
	"cmp"
	"context"
	"maps"
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
	shared bool // with other servers, whose hints may get lost

	reading chan struct{} // holds who reads the sessions: one at a time

	mu       sync.Mutex
	lanes    map[machine.LaneID]*lane
	routes   map[route]*crossing
	timers   timers
	unknown  map[machine.LaneID]bool // lanes that must be read
	stale    bool                    // which lanes there are must be read
	news     uint64                  // grows when something becomes ready, or may have
	sessions map[belay.WorkerID]*session
	unread   map[belay.WorkerID]bool // sessions that are asked for and must be read
	parked   []*claim                // in order of arrival
	arrived  uint64
	stopped  bool
	wake     chan struct{}
}

// claim is a worker's claim that waits for its answer.
type claim struct {
	request belay.ClaimRequest
	session *session
	arrived uint64 // its number
	sent    *call  // while a command of it is on its way
	notify  chan struct{}
}

func newDispatcher(e *Engine) *dispatcher {
	return &dispatcher{
		engine: e, lanes: make(map[machine.LaneID]*lane), routes: make(map[route]*crossing),
		unknown:  make(map[machine.LaneID]bool),
		sessions: make(map[belay.WorkerID]*session), unread: make(map[belay.WorkerID]bool),
		wake: make(chan struct{}, 1), reading: make(chan struct{}, 1),
	}
}

// run wakes parked claims when a time comes that a lane's hint names, and looks
// now and then for what another server has made ready.
func (d *dispatcher) run(ctx context.Context) {
	for {
		roused, ok := d.refresh(ctx)
		poll, peek := roused.Add(d.engine.opt.SlowPoll), roused.Add(d.engine.opt.HintPoll)
		if !ok {
			poll = roused.Add(min(d.engine.opt.SlowPoll, readAgain))
		}
		for roused < poll && !(ok && d.isStale()) {
			// What fell due since the last rousing is looked at at once.
			wait := d.next(poll, peek).Sub(d.engine.store.Now())
			if !d.pause(ctx, wait) {
				return
			}
			d.learnUnknown(ctx)
			roused = d.engine.store.Now()
			if d.shared && roused >= peek {
				d.peek(ctx)
				roused = d.engine.store.Now()
				peek = roused.Add(d.engine.opt.HintPoll)
			}
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

// next is the earliest hint that lies ahead, or when to look for more if that is
// sooner: at peek while a claim waits for it, and at poll in any case.
func (d *dispatcher) next(poll, peek machine.Time) machine.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shared && len(d.parked) > 0 {
		poll = min(poll, peek)
	}
	if at, some := d.timers.next(); some {
		return min(at, poll)
	}
	return poll
}

// rouse wakes the parked claims that may find something now.
func (d *dispatcher) rouse(now machine.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.timers.over(now) {
		d.rouseLocked(l, now)
	}
}

func (c *claim) poke() {
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// wants reports whether a claim would take anything at all.
func (c *claim) wants() bool { return c.request.Slots > 0 && !c.session.draining }

// hopefulLocked reports whether any lane of the claim may have something due.
func (d *dispatcher) hopefulLocked(c *claim, now machine.Time) bool {
	return c.wants() && slices.ContainsFunc(c.session.lanes, func(l *lane) bool { return c.mayWin(l, now) })
}

// mayWin reports whether something may be due in the lane that the claim can win.
func (c *claim) mayWin(l *lane, now machine.Time) bool {
	if l.ID.IsAlone() && !c.idle() {
		return l.hint != 0 && l.hint.Add(machine.AloneWait) <= now
	}
	return l.hint != 0 && l.hint <= now
}

// idle reports whether the worker runs nothing.
func (c *claim) idle() bool {
	return c.session.spec.Capacity > 0 && c.request.Slots >= c.session.spec.Capacity
}

// join gives the commands of parked claims that may take what the batch is
// about to make ready.
func (d *dispatcher) join(calls []*call) []*call {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.parked) == 0 {
		return nil
	}
	lanes, claims := make(map[*lane]bool), make(map[*claim]bool)
	var last *machine.Submit
	for _, k := range calls {
		s, ok := k.command.(*machine.Submit)
		if !ok || !s.DueAt.IsZero() || s.External || last != nil && sameLane(s, last) {
			continue
		}
		last = s
		x := d.routes[route{cmp.Or(s.Queue, "default"), s.Workflow, s.Version}]
		if x == nil || !x.waited() {
			continue
		}
		l := d.laneLocked(machine.NewLane(s.Queue, s.Workflow, s.Version, s.Priority, s.WorkerLabels))
		lanes[l] = true
		for s := range l.takers {
			if c := s.waiting; c != nil && c.sent == nil && c.wants() {
				claims[c] = true
			}
		}
	}
	var joined []*call
	for _, c := range slices.SortedFunc(maps.Keys(claims), func(a, b *claim) int {
		return cmp.Compare(a.arrived, b.arrived)
	}) {
		c.sent = newCall(d.commandLocked(c, lanes))
		joined = append(joined, c.sent)
		c.poke()
	}
	return joined
}

// waited reports whether a claim is parked at the crossing.
func (x *crossing) waited() bool {
	for s := range x.sessions {
		if s.waiting != nil && s.waiting.sent == nil {
			return true
		}
	}
	return false
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

// manyLanes is how many lanes a claim asks for whatever is known of them. Of more it
// asks for those in which something may be due.
const manyLanes = 32

// commandLocked is the command of a claim, for which the batch may make something
// ready in some lanes.
func (d *dispatcher) commandLocked(c *claim, soon map[*lane]bool) machine.Command {
	r, idle := c.request, c.idle()
	r.Slots = min(r.Slots, max(manySlots, 2*c.session.won))
	secrets := make([]belay.Secret, r.Slots)
	raw := make([]byte, 16*len(secrets))
	d.engine.opt.Random(raw)
	for i := range secrets {
		copy(secrets[i][:], raw[16*i:])
	}
	all, now := c.session.lanes, d.engine.store.Now()
	lanes := make([]machine.Lane, 0, min(len(all), manyLanes))
	for _, l := range all {
		if soon[l] || c.mayWin(l, now) || len(all) <= manyLanes && !l.ID.IsAlone() {
			lanes = append(lanes, l.Lane)
		}
	}
	return &machine.Claim{ClaimRequest: r, Lanes: lanes, Secrets: secrets, Idle: idle, After: c.session.turn}
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

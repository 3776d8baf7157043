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

// dispatcher parks the claims of workers until their lanes may have work, and then serves these
// claims together. A lane is the executions with equal queue, workflow, version, priority and
// labels. For each lane the dispatcher keeps a hint: the earliest time at which an execution in the
// lane may be due.
type dispatcher struct {
	engine *Engine
	shared bool // several servers use the store, and their hints may get lost

	reading chan struct{} // the lock for reading sessions from the store; only one goroutine at a time reads them

	mu       sync.Mutex
	lanes    map[machine.LaneID]*lane
	routes   map[route]*members
	timers   timers
	unknown  map[machine.LaneID]bool // lanes that must be read from the store
	stale    bool                    // the list of lanes must be read from the store
	news     uint64                  // number of the newest report that an execution may have become ready
	sessions map[belay.WorkerID]*session
	unread   map[belay.WorkerID]bool // sessions that a claim has named and that must be read from the store
	parked   []*claim                // claims that wait, in order of arrival
	woken    []*claim                // parked claims that were woken and may not have sent their command yet
	failed   failedRuns
	arrived  uint64
	stopped  bool
	wake     chan struct{}
}

// claim is a worker's claim that waits for its answer.
type claim struct {
	request belay.ClaimRequest
	session *session
	arrived uint64 // number of the claim in the order of arrival
	sent    *call  // the command of this claim that waits for its reply, or nil
	woken   bool   // the claim is in dispatcher.woken
	rank    int    // the result of failedRuns.rank, valid only while claims are sorted
	notify  chan struct{}
}

func newDispatcher(e *Engine) *dispatcher {
	return &dispatcher{
		engine: e, lanes: make(map[machine.LaneID]*lane), routes: make(map[route]*members),
		unknown: make(map[machine.LaneID]bool), failed: make(failedRuns),
		sessions: make(map[belay.WorkerID]*session), unread: make(map[belay.WorkerID]bool),
		wake: make(chan struct{}, 1), reading: make(chan struct{}, 1),
	}
}

// run wakes parked claims (claims that wait for work) at the times at which an execution in their
// lanes may be due. It also polls the store for executions that another server has made ready.
func (d *dispatcher) run(ctx context.Context) {
	for {
		roused, ok := d.refresh(ctx)
		poll, peek := roused.Add(d.engine.opt.SlowPoll), roused.Add(d.engine.opt.HintPoll)
		if !ok {
			poll = roused.Add(min(d.engine.opt.SlowPoll, readAgain))
		}
		for roused < poll && !(ok && d.isStale()) {
			// If the time in a lane's hint has passed already, wait is negative, and pause returns at
			// once.
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
			if s := d.engine.scheduler; s != nil {
				s.nudge()
			}
		}
	}
}

// readAgain is how soon the ready lanes (groups of executions) are read from the store again after
// reading them failed.
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

// pause waits for the given time or until something wakes the dispatcher. It reports false if ctx
// ends first.
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

// next is the time at which the dispatcher must act next: the earliest time in a hint, or poll, or
// peek if a claim is parked, whichever comes first. poll and peek are times at which it reads the
// store.
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

// rouse wakes the claims that wait for work of the lanes whose timers have fired: an execution in
// such a lane may be due.
func (d *dispatcher) rouse(now machine.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.timers.expired(now) {
		d.rouseLocked(l, now)
	}
}

func (c *claim) notifyClaim() {
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// wants reports whether the claim may win executions: it has free slots, and its worker is
// not draining, cordoned or unhealthy.
func (d *dispatcher) wants(c *claim, now machine.Time) bool {
	return d.slots(c, now) > 0 && !c.session.draining && !c.session.noClaims
}

// slots is the number of executions that the claim may win. Since the claim was sent, messages may have filled slots
// of its worker.
func (d *dispatcher) slots(c *claim, now machine.Time) int {
	if s := c.session; c.request.Messages && s.spec.Capacity > 0 && d.knowsRuns(s, now) {
		return min(c.request.Slots, s.spec.Capacity-s.running)
	}
	return c.request.Slots
}

// knowsRuns reports whether the number of runs of a session is known. If several servers share the store, the runs of
// a worker may begin and end at others, so the number counts only for two intervals between heartbeats.
func (d *dispatcher) knowsRuns(s *session, now machine.Time) bool {
	return s.counted && (!d.shared || now <= s.countedAt.Add(2*s.spec.Heartbeat.D()))
}

// mayWinLocked reports whether any lane of the claim may have an execution that is due.
func (d *dispatcher) mayWinLocked(c *claim, now machine.Time) bool {
	return d.wants(c, now) && slices.ContainsFunc(c.session.lanes, func(l *lane) bool {
		return c.mayWin(l, now) && !d.byMessage(c, l)
	})
}

// mayWin reports whether the lane may have a due execution that the claim can win.
func (c *claim) mayWin(l *lane, now machine.Time) bool {
	if l.ID.IsAlone() && !c.idle() {
		return l.hint != 0 && l.hint.Add(machine.AloneWait) <= now
	}
	return l.hint != 0 && l.hint <= now
}

// idle reports whether the worker runs nothing.
func (c *claim) idle() bool {
	s := c.session
	return s.spec.Capacity > 0 && (c.request.Slots >= s.spec.Capacity || s.counted && s.running == 0)
}

// join returns commands for the parked claims (claims that wait for work) that may take executions
// that the batch is about to make ready, and commands that schedule such executions to workers that
// get messages.
func (d *dispatcher) join(calls []*call) []*call {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.parked) == 0 {
		return nil
	}
	lanes, claims, mailed := make(map[*lane]bool), make(map[*claim]bool), make(map[*claim]bool)
	var last *machine.Submit
	ready, now := 0, d.engine.store.Now()
	for _, k := range calls {
		s, ok := k.command.(*machine.Submit)
		if r, is := k.command.(*machine.Receive); is {
			s = r.Submit()
			ok = s != nil
		}
		if !ok || !s.DueAt.IsZero() || s.External {
			continue
		}
		ready++
		if last != nil && sameLane(s, last) {
			continue
		}
		last = s
		x := d.routes[route{cmp.Or(s.Queue, "default"), s.Workflow, s.Version}]
		if x == nil || !x.hasParkedClaim() {
			continue
		}
		l := d.laneLocked(machine.NewLane(s.Queue, s.Workflow, s.Version, s.Priority, s.WorkerLabels))
		lanes[l] = true
		for s := range l.takers {
			switch c := s.waiting; {
			case c == nil || !d.wants(c, now):
			case d.byMessage(c, l):
				mailed[c] = true
			case c.sent == nil:
				claims[c] = true
			}
		}
	}
	var joined []*call
	all := slices.Collect(maps.Keys(claims))
	d.sortLocked(all, now)
	for _, c := range all {
		c.sent = newCall(d.commandLocked(c, lanes))
		joined = append(joined, c.sent)
		c.notifyClaim()
	}
	if len(mailed) > 0 {
		all = slices.Collect(maps.Keys(mailed))
		d.sortLocked(all, now)
		joined = append(joined, d.engine.scheduler.join(all, lanes, ready)...)
	}
	return joined
}

// hasParkedClaim reports whether a session of the route (a queue, workflow and version) has a parked
// claim (a claim that waits for work) whose command is not in a batch yet.
func (x *members) hasParkedClaim() bool {
	for s := range x.sessions {
		if s.waiting != nil && s.waiting.sent == nil {
			return true
		}
	}
	return false
}

// sameLane reports whether two submissions certainly go to the same lane, without computing the
// lane's id.
func sameLane(a, b *machine.Submit) bool {
	return a.Workflow == b.Workflow && a.Queue == b.Queue && a.Version == b.Version && a.Priority == b.Priority &&
		len(a.WorkerLabels)+len(b.WorkerLabels) == 0
}

// manySlots is the number of slots to which the engine limits a claim, because a claim may win
// nothing, and the engine makes a secret for each slot. If the last claim of the session won more
// than manySlots/2 executions, the limit is twice the number that it won.
const manySlots = 128

// manyLanes is the number of lanes (groups of executions that the same workers may claim) up to
// which a claim names all lanes of its session. If the session has more lanes, the claim names only
// lanes that may have a due execution.
const manyLanes = 32

// commandLocked builds the command of a claim. soon contains the lanes in which the batch may make
// executions ready.
func (d *dispatcher) commandLocked(c *claim, soon map[*lane]bool) machine.Command {
	r, idle, now := c.request, c.idle(), d.engine.store.Now()
	r.Slots = min(max(0, d.slots(c, now)), max(manySlots, 2*c.session.won))
	secrets := make([]belay.Secret, r.Slots)
	raw := make([]byte, 16*len(secrets))
	d.engine.opt.Random(raw)
	for i := range secrets {
		copy(secrets[i][:], raw[16*i:])
	}
	all := c.session.lanes
	lanes := make([]machine.Lane, 0, min(len(all), manyLanes))
	for _, l := range all {
		wanted := soon[l] || c.mayWin(l, now) || len(all) <= manyLanes && !l.ID.IsAlone()
		if wanted && !d.byMessage(c, l) {
			lanes = append(lanes, l.Lane)
		}
	}
	return &machine.Claim{ClaimRequest: r, Lanes: lanes, Secrets: secrets, Idle: idle, After: c.session.turn}
}

// stop ends all parked claims (claims that wait for work), and makes every later claim end at once.
func (d *dispatcher) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	for _, c := range d.parked {
		c.notifyClaim()
	}
}

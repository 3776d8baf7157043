package engine

import (
	"cmp"
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

	mu       sync.Mutex
	lanes    map[machine.LaneID]*lane
	version  int // grows with the set of lanes
	sessions map[belay.WorkerID]*session
	parked   []*claim // in order of arrival
	stopped  bool
	wake     chan struct{}
}

// lane is what is known of a lane without looking: nothing is due in it before
// hint; 0 means nothing at all until somebody says otherwise.
type lane struct {
	machine.Lane
	hint machine.Time
}

// session is what a claim must know of its worker.
type session struct {
	spec      belay.WorkerSpec
	lanes     []machine.Lane // it may take from, highest priority first
	version   int            // of the set of lanes when lanes was made
	attention bool           // its next heartbeat has something to tell
	draining  bool           // it may claim nothing
	waiting   *claim
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
		wake: make(chan struct{}, 1),
	}
}

// run wakes parked claims when a time comes that a lane's hint names, and reads
// the lanes anew now and then for those that another server made.
func (d *dispatcher) run(ctx context.Context) {
	for {
		roused := d.refresh(ctx)
		for poll := roused.Add(d.engine.opt.SlowPoll); roused < poll; {
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

// refresh reads the lanes; each is due for a look. It answers when it roused.
func (d *dispatcher) refresh(ctx context.Context) machine.Time {
	lanes, err := d.engine.store.Lanes(ctx)
	if err != nil {
		if ctx.Err() == nil {
			d.engine.log.Warn("read the lanes", "error", err)
		}
		return d.engine.store.Now()
	}
	now := d.engine.store.Now()
	d.mu.Lock()
	for _, l := range lanes {
		d.laneLocked(l).hint = now
	}
	d.mu.Unlock()
	d.rouse(now)
	return now
}

func (d *dispatcher) laneLocked(l machine.Lane) *lane {
	have := d.lanes[l.ID]
	if have == nil {
		have = &lane{Lane: l}
		d.lanes[l.ID] = have
		d.version++
	}
	return have
}

// rouse wakes the parked claims that may find something now.
func (d *dispatcher) rouse(now machine.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
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

// takesLocked is the list of lanes a session may claim from.
func (d *dispatcher) takesLocked(s *session) []machine.Lane {
	if s.version != d.version || s.lanes == nil {
		s.version, s.lanes = d.version, s.lanes[:0]
		for _, l := range d.lanes {
			if l.Takes(s.spec) {
				s.lanes = append(s.lanes, l.Lane)
			}
		}
		slices.SortFunc(s.lanes, func(a, b machine.Lane) int {
			return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
		})
	}
	return s.lanes
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
	for _, k := range calls {
		if s, ok := k.command.(*machine.Submit); ok && s.DueAt.IsZero() && !s.External {
			l := machine.NewLane(s.Queue, s.Workflow, s.Version, s.Priority, s.WorkerLabels)
			if len(lanes) == 0 || lanes[len(lanes)-1].ID != l.ID {
				lanes = append(lanes, l)
			}
		}
	}
	var joined []*call
	for _, c := range d.parked {
		if c.sent == nil && c.request.Slots > 0 && !c.session.draining && slices.ContainsFunc(lanes, func(l machine.Lane) bool { return l.Takes(c.session.spec) }) {
			for _, l := range lanes {
				d.laneLocked(l)
			}
			c.sent = &call{command: d.commandLocked(c), reply: make(chan machine.Reply, 1)}
			joined = append(joined, c.sent)
			c.poke()
		}
	}
	return joined
}

func (d *dispatcher) commandLocked(c *claim) machine.Command {
	secrets := make([]belay.Secret, c.request.Slots)
	raw := make([]byte, 16*len(secrets))
	d.engine.opt.Random(raw)
	for i := range secrets {
		copy(secrets[i][:], raw[16*i:])
	}
	return &machine.Claim{ClaimRequest: c.request, Lanes: slices.Clone(d.takesLocked(c.session)), Secrets: secrets}
}

// observe takes from a batch what it says about lanes and workers.
func (d *dispatcher) observe(b *batch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := b.rows.Now
	for _, l := range b.changes.Lanes {
		d.laneLocked(l)
	}
	soon := false
	for i, q := range b.need.Ready {
		if l := d.lanes[q.Lane]; l != nil && i < len(b.rows.Ready) {
			if len(b.rows.Ready[i].Due) >= q.Limit {
				l.hint = now
			} else if next := b.rows.Ready[i].Next; next != l.hint {
				l.hint = next
				soon = soon || next != 0 // nobody may be set to wake for it
			}
		}
	}
	for _, e := range b.rows.Executions { // due ones that no claim took
		if at := e.Ready(); at != 0 && at <= now {
			if l := d.lanes[e.Lane]; l != nil {
				l.hint = at
				soon = true
			}
		}
	}
	for _, e := range b.changes.Executions {
		if at := e.Ready(); at != 0 {
			if l := d.lanes[e.Lane]; l != nil && (l.hint == 0 || at < l.hint) {
				l.hint = at
				soon = true
			}
		}
		if e.Attention {
			d.attendLocked(e.Worker)
		}
	}
	for _, r := range b.changes.Runs {
		if r.EndedSeq != 0 && r.Op.IsZero() {
			d.attendLocked(r.Worker) // ended by somebody else: its worker should hear
		}
	}
	for _, w := range b.changes.Workers {
		if !w.State.Ended() {
			d.openedLocked(w.Spec)
		}
		if w.State == belay.WorkerDraining {
			d.openedLocked(w.Spec).draining = true
			d.attendLocked(w.ID)
		}
		if w.State.Ended() {
			d.attendLocked(w.ID)
			delete(d.sessions, w.ID)
		}
	}
	if !soon {
		return
	}
	for _, c := range d.parked {
		if c.sent == nil && d.hopefulLocked(c, now) {
			c.poke()
		}
	}
	select { // a hint may name a later time
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *dispatcher) attendLocked(id belay.WorkerID) {
	s := d.sessions[id]
	if s == nil {
		return
	}
	s.attention = true
	if s.waiting != nil {
		s.waiting.poke()
	}
}

// session finds what is known of a worker's session; one that another server
// or an earlier process opened is read from the store.
func (d *dispatcher) session(ctx context.Context, id belay.WorkerID) (*session, error) {
	d.mu.Lock()
	s := d.sessions[id]
	d.mu.Unlock()
	if s != nil {
		return s, nil
	}
	rows, err := d.engine.store.Workers(ctx, maxWorkers)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if row.ID == id && !row.State.Ended() {
			return d.opened(row.Spec, row.State), nil
		}
	}
	return nil, &belay.Error{
		Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Op: "claim", Message: "the session " + id.String() + " is over; open another",
	}
}

// maxWorkers bounds the sessions that are looked through.
const maxWorkers = 10_000

// opened remembers a session, defaults filled in.
func (d *dispatcher) opened(spec belay.WorkerSpec, state belay.WorkerState) *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.openedLocked(spec)
	s.draining = state == belay.WorkerDraining
	return s
}

func (d *dispatcher) openedLocked(spec belay.WorkerSpec) *session {
	s := d.sessions[spec.ID]
	if s == nil {
		s = &session{spec: spec}
		d.sessions[spec.ID] = s
	}
	return s
}

// stop answers all parked claims with nothing.
func (d *dispatcher) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	for _, c := range d.parked {
		c.poke()
	}
}

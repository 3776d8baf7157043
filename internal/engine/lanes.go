package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// lane has the hints about a lane (a group of executions that the same workers may claim). The
// field hint is a time before which no execution in the lane is due, or 0 if none will be due until
// a batch or another server reports one.
type lane struct {
	machine.Lane
	hint   machine.Time
	timer  machine.Time // when the lane's timer fires, no later than a hint in the future; 0 if the lane has no timer
	told   uint64       // number of the newest report about the lane; see dispatcher.news
	used   machine.Time // time of the newest report that an execution in the lane may be ready
	shut   belay.GateID // the shut gate of the lane's queue or workflow when the lane was last read; empty for none
	takers map[*session]struct{}
}

// readyLocked notes that an execution in the lane is ready from the given time on, and wakes the
// parked claims that may take it, now or at that time. A batch that began earlier and found nothing
// in the lane does not change the hint, because it may have read the lane too early.
func (d *dispatcher) readyLocked(l *lane, at, now machine.Time) {
	d.news++
	l.told, l.used, l.shut = d.news, now, ""
	if l.hint == 0 || l.hint > at {
		d.hintLocked(l, at, now)
	}
}

// hintLocked sets the hint of a lane: the time before which no execution in it is due.
func (d *dispatcher) hintLocked(l *lane, at, now machine.Time) {
	l.hint = at
	switch {
	case at == 0:
	case at <= now:
		d.rouseLocked(l, now)
	case d.timers.set(l, at):
		d.nudge()
	}
}

// rouseLocked wakes the parked claims that may take the due execution of the lane. A worker that
// runs something may take a suspect (an execution that must run alone) only after
// machine.AloneWait, so its claim is woken again at that time.
func (d *dispatcher) rouseLocked(l *lane, now machine.Time) {
	if late := l.hint.Add(machine.AloneWait); l.ID.IsAlone() && late > now && d.timers.set(l, late) {
		d.nudge()
	}
	d.wakeTakersLocked(l)
}

// wakeTakersLocked wakes the claims that wait for work and may win executions of the lane.
func (d *dispatcher) wakeTakersLocked(l *lane) {
	now := d.engine.store.Now()
	for s := range l.takers {
		if c := s.waiting; c != nil && c.sent == nil && d.wants(c, now) {
			d.wakeLocked(c)
		}
	}
}

// refresh reads the list of ready lanes from the store and updates all hints. It returns the time
// of the reading, and whether the reading succeeded.
func (d *dispatcher) refresh(ctx context.Context) (machine.Time, bool) {
	d.mu.Lock()
	d.stale = false
	clear(d.unknown)
	d.mu.Unlock()
	ready, err := d.look(ctx)
	if err != nil {
		if ctx.Err() == nil && d.engine.outage.begin() {
			d.engine.log.Warn("read the lanes", "error", err)
		}
		return d.engine.store.Now(), false
	}
	d.engine.outage.end()
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.engine.store.Now()
	alone := make(map[*lane]machine.Time)
	for _, h := range ready {
		if l := d.lanes[h.Lane]; l != nil {
			l.used = now
			if l.ID.IsAlone() {
				alone[l] = h.At
			}
		}
	}
	for _, l := range d.lanes {
		if (l.hint == 0 || len(l.takers) == 0) && now > l.used.Add(rememberedFor) {
			d.closeLocked(l)
			continue
		}
		d.news++
		l.told = d.news
		if at, known := alone[l]; known {
			// The suspect (an execution that must run alone) waits for an idle worker from the time at which
			// it became due, and not from now.
			d.hintLocked(l, at, now)
			continue
		}
		d.hintLocked(l, now, now)
	}
	d.forgetLocked(now)
	d.failed.prune(now)
	return now, true
}

// look reads from the store which lanes have ready executions, and reads the lanes among them that
// are not known.
func (d *dispatcher) look(ctx context.Context) ([]store.LaneHint, error) {
	ready, err := d.engine.store.ReadyLanes(ctx)
	if err != nil {
		return nil, err
	}
	var unknown []machine.LaneID
	d.mu.Lock()
	for _, h := range ready {
		if d.lanes[h.Lane] == nil {
			unknown = append(unknown, h.Lane)
		}
	}
	d.mu.Unlock()
	return ready, d.learn(ctx, unknown)
}

// peek searches the store for ready executions about which a hint (a message of another server) was
// lost. It wakes only claims that may take them.
func (d *dispatcher) peek(ctx context.Context) {
	d.mu.Lock()
	waits := len(d.parked) > 0
	d.mu.Unlock()
	if !waits {
		return
	}
	ready, err := d.look(ctx)
	if err != nil {
		return // the next refresh logs the error
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.engine.store.Now()
	for _, h := range ready {
		if l := d.lanes[h.Lane]; l != nil && (l.hint == 0 || l.hint > h.At) {
			d.readyLocked(l, h.At, now)
		}
	}
}

// readLanes is the number of lanes that are read at a time.
const readLanes = 1000

// learn reads lanes by their ids. In each of these lanes an execution is ready, or was ready a
// moment ago.
func (d *dispatcher) learn(ctx context.Context, ids []machine.LaneID) error {
	slices.Sort(ids)
	for some := range slices.Chunk(ids, readLanes) {
		lanes, err := d.engine.store.Lanes(ctx, some)
		if err != nil {
			return err
		}
		d.mu.Lock()
		now := d.engine.store.Now()
		for _, l := range lanes {
			d.readyLocked(d.laneLocked(l), now, now)
		}
		d.mu.Unlock()
	}
	return nil
}

// learnUnknown reads the lanes of which only the id is known.
func (d *dispatcher) learnUnknown(ctx context.Context) {
	d.mu.Lock()
	ids := slices.Collect(maps.Keys(d.unknown))
	clear(d.unknown)
	d.mu.Unlock()
	if err := d.learn(ctx, ids); err != nil {
		d.mu.Lock()
		d.stale = true
		d.mu.Unlock()
	}
}

// knownLocked returns a lane by its id. If the lane is not known (another server made it, or this
// engine has dropped it), knownLocked returns nil, and the lane will be read from the store.
func (d *dispatcher) knownLocked(id machine.LaneID) *lane {
	l := d.lanes[id]
	if l == nil {
		d.unknown[id] = true
		d.nudge()
	}
	return l
}

// begin returns, for a batch that begins, the number of the newest report that an execution in a lane
// is ready.
func (d *dispatcher) begin() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.news
}

// observe updates the hints (times before which no execution of a lane is due) from the changes of
// lanes and sessions in a batch.
func (d *dispatcher) observe(b *batch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := b.rows.Now
	for _, l := range b.changes.Lanes {
		d.laneLocked(l).used = now
	}
	d.countRunsLocked(b)
	d.failed.observe(b)
	d.foundLocked(b)
	d.unshutLocked(b)
	for _, e := range b.changes.Executions {
		if at := e.Ready(); at != 0 {
			if l := d.knownLocked(e.Lane); l != nil {
				d.readyLocked(l, at, now)
			}
		}
		if e.Attention {
			d.attendLocked(e.Worker)
		}
	}
	for _, r := range b.changes.Runs {
		if r.EndedSeq != 0 && r.Op.IsZero() {
			d.attendLocked(r.Worker) // the owner did not end the run itself: its worker should send a heartbeat
		}
	}
	for _, w := range b.changes.Workers {
		d.changedLocked(w)
	}
}

// foundLocked updates each lane's hint (the time before which no execution in the lane is due) after
// a batch has read the ready executions of the lane.
func (d *dispatcher) foundLocked(b *batch) {
	now := b.rows.Now
	shut := d.shutLocked(b)
	for i, q := range b.need.Ready {
		l := d.lanes[q.Lane]
		if l == nil || i >= len(b.rows.Ready) || shut[l] {
			continue
		}
		next := b.rows.Ready[i].Next
		switch {
		case len(b.rows.Ready[i].Due) >= q.Limit && q.Lane.IsAlone():
			d.hintLocked(l, now, now) // the loop below notes the time since which its executions have been due
		case len(b.rows.Ready[i].Due) >= q.Limit:
			d.readyLocked(l, now, now)
		// a report about the lane arrived after the batch began, so the rows that the batch read may be out of date
		case l.told > b.began.lanes:
			if next != 0 {
				d.readyLocked(l, next, now)
			}
		case next != l.hint:
			d.hintLocked(l, next, now)
		}
	}
	for _, e := range b.rows.Executions { // due executions that no claim has taken
		if at := e.Ready(); at != 0 && at <= now {
			if l := d.knownLocked(e.Lane); l != nil && !shut[l] {
				d.readyLocked(l, at, now)
				d.wakeTakersLocked(l)
			}
		}
	}
}

// shutLocked notes the lanes that cannot be claimed from because the gate of their queue or
// workflow is shut, and returns these lanes. It leaves out a lane in which an execution was reported
// ready after the batch began, because the gate may have opened since.
func (d *dispatcher) shutLocked(b *batch) map[*lane]bool {
	var all map[*lane]bool
	for i := range b.replies {
		for _, s := range b.replies[i].Shut {
			l := d.lanes[s.Lane]
			if l == nil || l.told > b.began.lanes {
				continue
			}
			if all == nil {
				all = make(map[*lane]bool)
			}
			all[l] = true
			l.shut = s.Gate
			d.hintLocked(l, cmp.Or(s.Until, b.rows.Now.Add(d.engine.opt.SlowPoll)), b.rows.Now)
		}
	}
	return all
}

// unshutLocked marks lanes as ready if their shut gate may have opened, because the batch changed
// the row of the gate or a run freed its place in the gate.
func (d *dispatcher) unshutLocked(b *batch) {
	if len(b.changes.Objects)+len(b.changes.Places) == 0 {
		return
	}
	opened := make(map[belay.GateID]bool)
	for _, o := range b.changes.Objects {
		opened[belay.GateID(o.Name)] = o.Kind == machine.GateObject
	}
	for _, p := range b.changes.Places {
		opened[p.Gate] = opened[p.Gate] || p.Gone
	}
	for _, l := range d.lanes {
		if l.shut != "" && opened[l.shut] {
			d.readyLocked(l, b.rows.Now, b.rows.Now)
		}
	}
}

// onHint updates the hints of lanes from the message of another server about its changes.
func (d *dispatcher) onHint(h store.Hint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.engine.store.Now()
	for _, at := range h.Lanes {
		if l := d.knownLocked(at.Lane); l != nil {
			d.readyLocked(l, at.At, now)
		}
	}
	if h.AnyLane != 0 {
		for _, l := range d.lanes {
			d.readyLocked(l, h.AnyLane, now)
		}
	}
	for _, id := range h.Workers {
		d.attendLocked(id)
	}
	if h.Lost || h.AnyWorker {
		for id := range d.sessions {
			d.attendLocked(id)
		}
	}
	if h.Lost || h.AnyLane != 0 {
		d.stale = true
		d.nudge()
	}
}

// lookAgain reads all lanes again, if a claim waits for work.
func (d *dispatcher) lookAgain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.parked) > 0 {
		d.stale = true
		d.nudge()
	}
}

func (d *dispatcher) attendLocked(id belay.WorkerID) {
	s := d.sessions[id]
	if s == nil {
		return
	}
	s.attention = true
	if s.waiting != nil {
		s.waiting.notifyClaim()
	}
}

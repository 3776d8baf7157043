package engine

import (
	"context"
	"maps"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// lane is what is known of a lane without looking: nothing is due in it before
// hint; 0 means nothing at all until somebody says otherwise.
type lane struct {
	machine.Lane
	hint   machine.Time
	timer  machine.Time // that is set for it, no later than a hint that lies ahead; 0 if none is
	told   uint64       // the number of the newest news about it
	used   machine.Time // when there last were any
	takers map[*session]struct{}
}

// readyLocked notes that something in the lane is ready from a moment on, and wakes
// the parked claims that may take it, now or then. What a batch finds in the lane that
// began before does not count against it: the batch may have looked too early.
func (d *dispatcher) readyLocked(l *lane, at, now machine.Time) {
	d.news++
	l.told, l.used = d.news, now
	if l.hint == 0 || l.hint > at {
		d.hintLocked(l, at, now)
	}
}

// hintLocked sets a hint.
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

// rouseLocked wakes the parked claims that may take from the lane, in which something is
// due. Those of workers that run something may take what is to run alone later.
func (d *dispatcher) rouseLocked(l *lane, now machine.Time) {
	if late := l.hint.Add(machine.AloneWait); l.ID.IsAlone() && late > now && d.timers.set(l, late) {
		d.nudge()
	}
	l.rouse()
}

// rouse wakes the parked claims that may take from the lane.
func (l *lane) rouse() {
	for s := range l.takers {
		if c := s.waiting; c != nil && c.sent == nil && c.wants() {
			c.poke()
		}
	}
}

// refresh reads which lanes there are; each is due for a look. It answers when it
// roused, and whether it could read them.
func (d *dispatcher) refresh(ctx context.Context) (machine.Time, bool) {
	d.mu.Lock()
	d.stale = false
	clear(d.unknown)
	d.mu.Unlock()
	ready, err := d.look(ctx)
	if err != nil {
		if ctx.Err() == nil && d.engine.troubled.begin() {
			d.engine.log.Warn("read the lanes", "error", err)
		}
		return d.engine.store.Now(), false
	}
	d.engine.troubled.end()
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
			d.hintLocked(l, at, now) // how long it has been due counts
			continue
		}
		d.hintLocked(l, now, now)
	}
	d.forgetLocked(now)
	return now, true
}

// look reads in which lanes something is ready, and reads those that are not known.
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

// peek looks for what is ready and of which no hint was heard. Only claims that may
// take it are woken.
func (d *dispatcher) peek(ctx context.Context) {
	d.mu.Lock()
	waits := len(d.parked) > 0
	d.mu.Unlock()
	if !waits {
		return
	}
	ready, err := d.look(ctx)
	if err != nil {
		return // the next refresh says so
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

// readLanes is how many lanes are read at a time.
const readLanes = 1000

// learn reads what lanes are. Something is ready in them, or was a moment ago.
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

// learnUnknown reads the lanes that became known by their ids alone.
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

// knownLocked is a lane by its id. One that another server made, or that was
// forgotten, must be read.
func (d *dispatcher) knownLocked(id machine.LaneID) *lane {
	l := d.lanes[id]
	if l == nil {
		d.unknown[id] = true
		d.nudge()
	}
	return l
}

// begin is the number of the newest news, for a batch that begins.
func (d *dispatcher) begin() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.news
}

// observe takes from a batch what it says about lanes and workers.
func (d *dispatcher) observe(b *batch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := b.rows.Now
	for _, l := range b.changes.Lanes {
		d.laneLocked(l).used = now
	}
	d.foundLocked(b)
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
			d.attendLocked(r.Worker) // ended by somebody else: its worker should hear
		}
	}
	for _, w := range b.changes.Workers {
		d.changedLocked(w)
	}
}

// foundLocked takes from a batch what it found ready.
func (d *dispatcher) foundLocked(b *batch) {
	now := b.rows.Now
	for i, q := range b.need.Ready {
		l := d.lanes[q.Lane]
		if l == nil || i >= len(b.rows.Ready) {
			continue
		}
		next := b.rows.Ready[i].Next
		switch {
		case len(b.rows.Ready[i].Due) >= q.Limit && q.Lane.IsAlone():
			d.hintLocked(l, now, now) // and since when stands in the rows below
		case len(b.rows.Ready[i].Due) >= q.Limit:
			d.readyLocked(l, now, now)
		case l.told > b.began.lanes: // since it looked
			if next != 0 {
				d.readyLocked(l, next, now)
			}
		case next != l.hint:
			d.hintLocked(l, next, now)
		}
	}
	for _, e := range b.rows.Executions { // due ones that no claim took
		if at := e.Ready(); at != 0 && at <= now {
			if l := d.knownLocked(e.Lane); l != nil {
				d.readyLocked(l, at, now)
				l.rouse()
			}
		}
	}
}

// heed takes what another server says.
func (d *dispatcher) heed(h store.Hint) {
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

// lookAgain has everything looked at again.
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
		s.waiting.poke()
	}
}

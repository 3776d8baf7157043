package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// lane is what is known of a lane without looking: nothing is due in it before
// hint; 0 means nothing at all until somebody says otherwise.
type lane struct {
	machine.Lane
	hint machine.Time
	told uint64 // the number of the newest news about it
}

// soonerLocked notes that something in the lane is ready from a moment on, and
// reports whether that is news. What a batch finds in the lane that began before
// does not count against it: the batch may have looked too early.
func (d *dispatcher) soonerLocked(l *lane, at machine.Time) bool {
	d.news++
	l.told = d.news
	if l.hint != 0 && l.hint <= at {
		return false
	}
	l.hint = at
	return true
}

// refresh reads the lanes; each is due for a look. It answers when it roused,
// and whether it could read them.
func (d *dispatcher) refresh(ctx context.Context) (machine.Time, bool) {
	d.mu.Lock()
	d.stale = false
	d.mu.Unlock()
	lanes, err := d.engine.store.Lanes(ctx)
	if err != nil {
		if ctx.Err() == nil && d.engine.troubled.begin() {
			d.engine.log.Warn("read the lanes", "error", err)
		}
		return d.engine.store.Now(), false
	}
	d.engine.troubled.end()
	now := d.engine.store.Now()
	d.mu.Lock()
	for _, l := range lanes {
		d.soonerLocked(d.laneLocked(l), now)
	}
	d.forgetLocked(now)
	d.mu.Unlock()
	d.rouse(now)
	return now, true
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

// knownLocked is a lane by its id. One that another server made must be read.
func (d *dispatcher) knownLocked(id machine.LaneID) *lane {
	l := d.lanes[id]
	if l == nil {
		d.stale = true
		d.nudge()
	}
	return l
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
	for _, l := range b.changes.Lanes {
		d.laneLocked(l)
	}
	soon := d.foundLocked(b)
	for _, e := range b.changes.Executions {
		if at := e.Ready(); at != 0 {
			if l := d.knownLocked(e.Lane); l != nil && d.soonerLocked(l, at) {
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
		d.changedLocked(w)
	}
	if soon {
		d.rouseLocked(b.rows.Now)
		d.nudge() // a hint may name a later time
	}
}

// foundLocked takes from a batch what it found ready, and reports whether
// anything is sooner than was known.
func (d *dispatcher) foundLocked(b *batch) (soon bool) {
	now := b.rows.Now
	for i, q := range b.need.Ready {
		l := d.lanes[q.Lane]
		if l == nil || i >= len(b.rows.Ready) {
			continue
		}
		next := b.rows.Ready[i].Next
		switch {
		case len(b.rows.Ready[i].Due) >= q.Limit:
			d.soonerLocked(l, now)
		case l.told > b.began.lanes: // since it looked
			soon = next != 0 && d.soonerLocked(l, next) || soon
		case next != l.hint:
			l.hint = next
			soon = soon || next != 0 // nobody may be set to wake for it
		}
	}
	for _, e := range b.rows.Executions { // due ones that no claim took
		if at := e.Ready(); at != 0 && at <= now {
			if l := d.knownLocked(e.Lane); l != nil {
				d.soonerLocked(l, at)
				soon = true
			}
		}
	}
	return soon
}

// heed takes what another server says.
func (d *dispatcher) heed(h store.Hint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	soon := false
	for _, at := range h.Lanes {
		if l := d.knownLocked(at.Lane); l != nil && d.soonerLocked(l, at.At) {
			soon = true
		}
	}
	if h.AnyLane != 0 {
		for _, l := range d.lanes {
			soon = d.soonerLocked(l, h.AnyLane) || soon
		}
	}
	d.stale = d.stale || h.Lost || h.AnyLane != 0
	for _, id := range h.Workers {
		d.attendLocked(id)
	}
	if h.Lost || h.AnyWorker {
		for id := range d.sessions {
			d.attendLocked(id)
		}
	}
	if soon {
		d.rouseLocked(d.engine.store.Now())
	}
	if soon || d.stale {
		d.nudge()
	}
}

// look has everything looked at again.
func (d *dispatcher) look() {
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

package engine

import (
	"context"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// session is what a claim must know of its worker. Its spec never changes, and
// draining never ends; that it has ended is found out by the commit of a claim.
type session struct {
	spec      belay.WorkerSpec
	lanes     []*lane // it may take from, highest priority first
	attention bool    // its next heartbeat has something to tell
	draining  bool    // it may claim nothing
	waiting   *claim
	won       int          // by its last claim
	turn      string       // the queue that had the last one
	used      machine.Time // when it was last asked for
}

// session finds what is known of a worker's session. One that another server or
// an earlier process opened is read from the store, together with all others that
// are asked for meanwhile: who comes from another server rarely comes alone.
func (d *dispatcher) session(ctx context.Context, id belay.WorkerID) (*session, error) {
	if s := d.sought(id); s != nil {
		return s, nil
	}
	select {
	case d.reading <- struct{}{}:
		defer func() { <-d.reading }()
	case <-ctx.Done():
		return nil, &belay.Error{
			Code: belay.CodeUnavailable, Op: "claim", Message: "gave up waiting", Err: context.Cause(ctx),
		}
	}
	if s := d.sought(id); s != nil {
		return s, nil
	}
	rows, err := d.engine.store.Workers(store.Urgent(ctx), store.WorkerQuery{IDs: d.allSought(), Living: true})
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		d.opened(row.Spec, row.State)
	}
	if s := d.remembered(id); s != nil {
		return s, nil
	}
	return nil, &belay.Error{
		Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Op: "claim", Message: "the session " + id.String() +
			" is over; open another",
	}
}

// sought is what is remembered of a session; if that is nothing, it is among those
// that are read next.
func (d *dispatcher) sought(id belay.WorkerID) *session {
	s := d.remembered(id)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s == nil {
		d.unread[id] = true
	}
	return s
}

// allSought are the sessions that are to be read. It takes them.
func (d *dispatcher) allSought() []belay.WorkerID {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := make([]belay.WorkerID, 0, len(d.unread))
	for id := range d.unread {
		ids = append(ids, id)
	}
	clear(d.unread)
	return ids
}

func (d *dispatcher) remembered(id belay.WorkerID) *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[id]
	if s != nil {
		s.used = d.engine.store.Now()
	}
	return s
}

// rememberedFor is how long a session is remembered that nobody asks for, and a lane
// in which nothing happens. The worker may be at another server by now, or its end may
// have gone unheard.
const rememberedFor = 10 * time.Minute

func (d *dispatcher) forgetLocked(now machine.Time) {
	for _, s := range d.sessions {
		if s.waiting == nil && now > s.used.Add(rememberedFor) {
			d.leaveLocked(s)
		}
	}
}

// opened remembers a session, defaults filled in.
func (d *dispatcher) opened(spec belay.WorkerSpec, state belay.WorkerState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.openedLocked(spec)
	s.draining = s.draining || state == belay.WorkerDraining
}

func (d *dispatcher) openedLocked(spec belay.WorkerSpec) *session {
	s := d.sessions[spec.ID]
	if s == nil {
		s = &session{spec: spec, used: d.engine.store.Now()}
		d.sessions[spec.ID] = s
		d.enterLocked(s)
	}
	return s
}

// changedLocked takes in what a batch made of a session.
func (d *dispatcher) changedLocked(w *machine.Worker) {
	if w.State.Ended() {
		d.attendLocked(w.ID)
		if s := d.sessions[w.ID]; s != nil {
			d.leaveLocked(s)
		}
		return
	}
	s := d.openedLocked(w.Spec)
	if w.State == belay.WorkerDraining {
		s.draining = true
		d.attendLocked(w.ID)
	}
}

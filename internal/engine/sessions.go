package engine

import (
	"context"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// session has the data about a worker that its claims need. The spec never changes, and draining
// never ends. If the session has ended, the commit of a claim detects this.
type session struct {
	spec      belay.WorkerSpec
	lanes     []*lane // lanes that the session may claim from, highest priority first
	attention bool    // the worker should send a heartbeat, because the reply contains news for it
	draining  bool    // the session may claim nothing
	noClaims  bool    // the session is cordoned or unhealthy, or was when last seen: each new claim checks it again
	waiting   *claim
	running   int          // number of the worker's runs, as far as this server knows
	counted   bool         // running was read at the opening or at a heartbeat; later wins at other servers lack
	countedAt machine.Time // when running was last read from the store
	assigning *call        // the last command that schedules executions to the worker
	won       int          // number of executions that the session's last claim won
	turn      string       // queue of the last execution that the session won
	used      machine.Time // when a call last used the session
}

// session returns the session of a worker. A session that another server or an earlier process has
// opened is read from the store, together with all other sessions that calls need at that moment:
// when another server stops, many of its workers move to this server at the same time.
func (d *dispatcher) session(ctx context.Context, id belay.WorkerID) (*session, error) {
	if s := d.lookUp(id); s != nil {
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
	if s := d.lookUp(id); s != nil {
		return s, nil
	}
	rows, err := d.engine.store.Workers(store.Urgent(ctx), store.WorkerQuery{IDs: d.takeUnread(), Living: true})
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

// lookUp returns a remembered session. If the engine does not remember the session, lookUp adds it to
// the sessions that the next query reads from the store, and returns nil.
func (d *dispatcher) lookUp(id belay.WorkerID) *session {
	s := d.remembered(id)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s == nil {
		d.unread[id] = true
	}
	return s
}

// takeUnread returns the sessions that the next query must read, and clears this list.
func (d *dispatcher) takeUnread() []belay.WorkerID {
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

// rememberedFor is how long the engine remembers a session that no call uses, and a lane in which no
// execution becomes ready. After that time the engine forgets them, because the worker may have
// changed to another server, or the message about the end of the session may be lost.
const rememberedFor = 10 * time.Minute

func (d *dispatcher) forgetLocked(now machine.Time) {
	for _, s := range d.sessions {
		if s.waiting == nil && now > s.used.Add(rememberedFor) {
			d.leaveLocked(s)
		}
	}
}

// opened remembers a session. The spec has its defaults filled in.
func (d *dispatcher) opened(spec belay.WorkerSpec, state belay.WorkerState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.openedLocked(spec)
	s.draining, s.noClaims = s.draining || state == belay.WorkerDraining, claimsNothing(state)
}

// claimsNothing reports whether a worker in this state claims nothing now, and may claim again later.
func claimsNothing(s belay.WorkerState) bool {
	return s == belay.WorkerCordoned || s == belay.WorkerUnhealthy
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

// changedLocked records the change of a session in a batch.
func (d *dispatcher) changedLocked(w *machine.Worker) {
	if w.State.Ended() {
		d.attendLocked(w.ID)
		if s := d.sessions[w.ID]; s != nil {
			d.leaveLocked(s)
		}
		return
	}
	s := d.openedLocked(w.Spec)
	if w.New { // this server sees all runs of a session from its beginning
		s.counted, s.countedAt = true, d.engine.store.Now()
	}
	if s.noClaims = claimsNothing(w.State); !s.noClaims && s.waiting != nil {
		s.waiting.notifyClaim()
	}
	if w.State == belay.WorkerDraining {
		s.draining = true
		d.attendLocked(w.ID)
	}
}

package engine

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// reapEvery is the interval at which the processes of sessions on this host are checked, if there
// are such processes besides this one.
const reapEvery = time.Second

// localReaper ends the sessions whose processes are proven dead on this host, before their leases
// expire. It first ends the child processes that a dead worker left behind. Only the sweeper's
// goroutine calls reap.
type localReaper struct {
	engine *Engine
	near   []store.WorkerRow // sessions of other processes on this host, as they were listed last
	listed machine.Time
	looked machine.Time
	failed bool // the last listing failed

	mu    sync.Mutex
	stale bool // the list is out of date
}

func newLocalReaper(e *Engine) *localReaper { return &localReaper{engine: e, stale: true} }

// observe notes that a batch has opened a session of a process on this host. Sessions that another
// server opens are found when the sessions are listed again.
func (m *localReaper) observe(b *batch) {
	for _, w := range b.changes.Workers {
		if w.New && m.concerns(w) {
			m.mu.Lock()
			m.stale = true
			m.mu.Unlock()
		}
	}
}

// onHint does nothing, because the sessions are listed often enough.
func (m *localReaper) onHint(store.Hint) {}

// concerns reports whether the session belongs to another process whose death could be proven here.
func (m *localReaper) concerns(w *machine.Worker) bool {
	o := m.engine.opt
	return !w.State.Ended() && !w.Spec.External && w.Spec.Process != o.Self && (o.Near == nil || o.Near(w.Spec.Process))
}

// next returns the time of the next check of the processes.
func (m *localReaper) next() machine.Time {
	if m.engine.opt.Dead == nil {
		return math.MaxInt64
	}
	if m.failed || len(m.near) > 0 {
		return m.looked.Add(reapEvery)
	}
	return m.listed.Add(m.engine.opt.SlowPoll)
}

// reap ends the sessions of dead processes, if it is time to check.
func (m *localReaper) reap(ctx context.Context) {
	if m.engine.opt.Dead == nil {
		return
	}
	now := m.engine.store.Now()
	again := now >= m.looked.Add(reapEvery)
	switch {
	case m.failed && !again:
		return
	case m.failed || m.isStale() || now >= m.listed.Add(m.engine.opt.SlowPoll):
		m.looked = now
		if !m.list(ctx) {
			return
		}
	case len(m.near) == 0 || !again:
		return
	}
	m.looked = now
	if !m.anyDead() || !m.list(ctx) { // the new list leaves out sessions that have ended
		return
	}
	for _, w := range m.near {
		if proof, dead := m.engine.opt.Dead(w.Spec.Process); dead {
			m.reapOne(ctx, w, proof)
		}
	}
}

func (m *localReaper) isStale() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stale
}

func (m *localReaper) anyDead() bool {
	for _, w := range m.near {
		if _, dead := m.engine.opt.Dead(w.Spec.Process); dead {
			return true
		}
	}
	return false
}

// list reads the sessions of other processes on this host.
func (m *localReaper) list(ctx context.Context) bool {
	m.mu.Lock()
	m.stale = false
	m.mu.Unlock()
	now := m.engine.store.Now()
	rows, err := m.engine.store.Workers(ctx, store.WorkerQuery{Living: true, Host: m.engine.opt.Self.Host})
	if m.failed = err != nil; m.failed {
		if ctx.Err() == nil && m.engine.outage.begin() {
			m.engine.log.Warn("look for workers that died on this host", "error", err)
		}
		return false
	}
	m.near, m.listed = m.near[:0], now
	for _, w := range rows {
		if m.concerns(w.Worker) {
			m.near = append(m.near, w)
		}
	}
	return true
}

func (m *localReaper) reapOne(ctx context.Context, w store.WorkerRow, proof string) {
	e := m.engine
	if e.opt.Bury != nil {
		if err := e.opt.Bury(ctx, e, workerView(w)); err != nil {
			e.log.Warn("end what a dead worker left behind", "worker", w.Spec.Name, "error", err)
			return
		}
	}
	e.log.Info("a worker died", "worker", w.Spec.Name, "id", w.ID, "proof", proof)
	_, _, _ = e.sweeper.send(ctx, []machine.Command{&machine.End{Worker: w.ID, Dead: proof}})
}

package engine

import (
	"context"
	"sync"
	"time"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// reapEvery is the interval at which the processes of sessions on this host are checked, if there
// are such processes besides this one.
const reapEvery = time.Second

// localReaper ends the sessions whose processes are proven dead on this host, before their leases
// expire. It first ends the child processes that a dead worker left behind. This may take seconds,
// so localReaper has its own goroutine: the sweeper must not wait for it.
type localReaper struct {
	engine *Engine
	wake   chan struct{}
	buried chan struct{}     // wakes cleanUp
	near   []store.WorkerRow // sessions of other processes on this host, as they were listed last
	listed machine.Time
	looked machine.Time
	failed bool // the last listing failed

	mu    sync.Mutex
	stale bool // the list is out of date
}

func newLocalReaper(e *Engine) *localReaper {
	return &localReaper{engine: e, wake: make(chan struct{}, 1), buried: make(chan struct{}, 1), stale: true}
}

// run checks the processes of this host until ctx ends.
func (m *localReaper) run(ctx context.Context) {
	if m.engine.opt.Dead == nil {
		return
	}
	for {
		m.reap(ctx)
		wait := max(m.next().Sub(m.engine.store.Now()), time.Millisecond)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-m.wake:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// observe notes that a batch has opened a session of a process on this host. Sessions that another
// server opens are found when the sessions are listed again.
func (m *localReaper) observe(b *batch) {
	for _, w := range b.changes.Workers {
		if w.New && m.concerns(w) {
			m.mu.Lock()
			m.stale = true
			m.mu.Unlock()
			nudge(m.wake)
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
	if m.failed || len(m.near) > 0 {
		return m.looked.Add(reapEvery)
	}
	return m.listed.Add(m.engine.opt.SlowPoll)
}

// reap ends the sessions of dead processes, if it is time to check.
func (m *localReaper) reap(ctx context.Context) {
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
	var ends []*call // all commands are sent before the first reply, so that few commits carry them
	for _, w := range m.near {
		if proof, dead := m.engine.opt.Dead(w.Spec.Process); dead && m.bury(ctx, w) {
			m.engine.log.Info("a worker died", "worker", w.ID, "name", w.Spec.Name, "proof", proof)
			ends = append(ends, m.engine.committer.send(&machine.End{Worker: w.ID, Dead: proof}))
		}
	}
	for _, k := range ends {
		_, _ = m.engine.await(ctx, k) // after an error the next check sends the command again
	}
	if len(ends) > 0 {
		nudge(m.buried)
	}
}

// cleanUp calls Options.CleanUp after the sessions of dead workers have ended, until ctx ends.
func (m *localReaper) cleanUp(ctx context.Context) {
	if m.engine.opt.CleanUp == nil {
		return
	}
	for {
		select {
		case <-m.buried:
			m.engine.opt.CleanUp(ctx)
		case <-ctx.Done():
			return
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

// bury ends what a dead worker left behind on this host, and reports whether that succeeded.
func (m *localReaper) bury(ctx context.Context, w store.WorkerRow) bool {
	e := m.engine
	if e.opt.Bury == nil {
		return true
	}
	switch err := e.opt.Bury(ctx, e, workerView(w)); {
	case err != nil && ctx.Err() != nil: // this engine stops; the next one ends what is left
		return false
	case err != nil:
		e.log.Warn("end what a dead worker left behind", "worker", w.ID, "name", w.Spec.Name,
			"error", err)
		return false
	}
	return true
}

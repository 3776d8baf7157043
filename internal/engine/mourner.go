package engine

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// buryEvery is how often the processes behind sessions on this host are looked
// at, while there are any but this one.
const buryEvery = time.Second

// mourner ends the sessions whose processes are proven dead on this very host:
// nobody has to wait for their time to run out. What they left behind is ended
// first. It belongs to the sweeper's goroutine.
type mourner struct {
	engine *Engine
	near   []store.WorkerRow // sessions of other processes on this host, as they were listed
	listed machine.Time
	looked machine.Time
	failed bool // to list them

	mu    sync.Mutex
	stale bool // there are others
}

func newMourner(e *Engine) *mourner { return &mourner{engine: e, stale: true} }

// observe notes that a batch has opened a session whose process may be near. One
// that another server opens is found when the sessions are listed again.
func (m *mourner) observe(b *batch) {
	for _, w := range b.changes.Workers {
		if w.New && m.concerns(w) {
			m.mu.Lock()
			m.stale = true
			m.mu.Unlock()
		}
	}
}

// heed hears nothing: sessions are listed often enough.
func (m *mourner) heed(store.Hint) {}

// concerns reports whether the session is of another process whose death could be
// proven here.
func (m *mourner) concerns(w *machine.Worker) bool {
	o := m.engine.opt
	return !w.State.Ended() && !w.Spec.External && w.Spec.Process != o.Self && (o.Near == nil || o.Near(w.Spec.Process))
}

// next is when to look again.
func (m *mourner) next() machine.Time {
	if m.engine.opt.Dead == nil {
		return math.MaxInt64
	}
	if m.failed || len(m.near) > 0 {
		return m.looked.Add(buryEvery)
	}
	return m.listed.Add(m.engine.opt.SlowPoll)
}

// bury ends the sessions of the dead, if it is time to look.
func (m *mourner) bury(ctx context.Context) {
	if m.engine.opt.Dead == nil {
		return
	}
	now := m.engine.store.Now()
	again := now >= m.looked.Add(buryEvery)
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
	if !m.anyDead() || !m.list(ctx) { // whoever has ended in order left nothing behind
		return
	}
	for _, w := range m.near {
		if proof, dead := m.engine.opt.Dead(w.Spec.Process); dead {
			m.buryOne(ctx, w, proof)
		}
	}
}

func (m *mourner) isStale() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stale
}

func (m *mourner) anyDead() bool {
	for _, w := range m.near {
		if _, dead := m.engine.opt.Dead(w.Spec.Process); dead {
			return true
		}
	}
	return false
}

// list reads which sessions are near.
func (m *mourner) list(ctx context.Context) bool {
	m.mu.Lock()
	m.stale = false
	m.mu.Unlock()
	now := m.engine.store.Now()
	rows, err := m.engine.store.Workers(ctx, store.WorkerQuery{Living: true, Host: m.engine.opt.Self.Host})
	if m.failed = err != nil; m.failed {
		if ctx.Err() == nil && m.engine.troubled.begin() {
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

func (m *mourner) buryOne(ctx context.Context, w store.WorkerRow, proof string) {
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

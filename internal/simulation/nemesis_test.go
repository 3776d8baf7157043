package simulation

import (
	"slices"
	"time"
)

// nemesis is a fault, or the repair of a fault, at a chosen moment.
type nemesis struct {
	at  time.Duration
	act func()
}

func (w *world) later(at time.Duration, act func()) {
	i, _ := slices.BinarySearchFunc(w.nemesis, at+1, func(n nemesis, at time.Duration) int { return int(n.at - at) })
	w.nemesis = slices.Insert(w.nemesis, i, nemesis{at, act})
}

// everySoOften repeats a fault at random intervals with the given mean, until the healing phase.
func (w *world) everySoOften(mean time.Duration, act func()) {
	if mean == 0 {
		return
	}
	at := w.gate.now() + time.Duration(w.rng.ExpFloat64()*float64(mean))
	w.later(at, func() {
		act()
		w.everySoOften(mean, act)
	})
}

// note adds a fault to the trace and to the count of faults.
func (w *world) note(kind, who string) {
	w.history.fault(kind)
	w.trace.add(w.gate.now(), "fault", kind, who)
}

func (w *world) planNemesis() {
	p := w.plan
	w.everySoOften(p.nodeCrash, func() { w.crashNode(w.nodes[w.rng.IntN(len(w.nodes))]) })
	w.everySoOften(p.allDown, w.crashAll)
	w.everySoOften(p.workerCrash, func() { w.crashWorker(w.workers[w.rng.IntN(len(w.workers))]) })
	w.everySoOften(p.workerFreeze, func() { w.freezeWorker(w.workers[w.rng.IntN(len(w.workers))]) })
	w.everySoOften(p.workerStop, func() { w.stopWorker(w.workers[w.rng.IntN(len(w.workers))]) })
	w.everySoOften(p.cut, w.cutOff)
	w.everySoOften(p.clockStep, w.stepClock)
	w.everySoOften(p.epoch, w.raiseEpoch)
	if p.clockLeap > 0 {
		w.later(p.clockLeap, func() { w.setClockBy(31 * time.Second) })
	}
	w.later(400*time.Millisecond, w.restaff)
}

// crashNode kills a node and starts it again after a while.
func (w *world) crashNode(n *node) {
	if n.life == nil {
		return
	}
	w.note("node crashed", n.name)
	n.crash(func() bool { return w.rng.IntN(2) == 0 })
	down := between(w.rng, 50*time.Millisecond, 4*time.Second)
	w.history.troubled(n.name, w.gate.now(), w.gate.now()+down)
	w.later(w.gate.now()+down, func() {
		if n.life == nil {
			n.start()
		}
	})
}

func (w *world) crashAll() {
	w.note("all nodes down", "")
	for _, n := range w.nodes {
		w.crashNode(n)
	}
}

// crashWorker kills a worker's process. Later, restaff starts the next process in the slot.
func (w *world) crashWorker(s *workerSlot) {
	if s.proc == nil || s.proc.over() || s.proc.link.dead.Load() {
		return
	}
	w.note("worker crashed", s.proc.name)
	s.proc.kill()
}

// freezeWorker stops a worker's process and continues it, often after its session has expired.
func (w *world) freezeWorker(s *workerSlot) {
	p := s.proc
	if p == nil || p.over() || p.link.dead.Load() || p.link.frozen {
		return
	}
	w.note("worker stopped and continued", p.name)
	p.freeze()
	w.later(w.gate.now()+between(w.rng, p.ttl/2, 2*p.ttl+time.Second), p.thaw)
}

// stopWorker asks a worker to stop.
func (w *world) stopWorker(s *workerSlot) {
	if s.proc == nil || s.proc.over() || s.proc.link.dead.Load() {
		return
	}
	w.note("worker asked to stop", s.proc.name)
	s.proc.stop()
}

// cutOff cuts a process off from the network, in one direction or in both.
func (w *world) cutOff() {
	l := w.links[w.rng.IntN(len(w.links))]
	if l.dead.Load() {
		return
	}
	w.note("cut off", l.actor)
	way := w.rng.IntN(3)
	l.cutThere, l.cutBack = way != 1, way != 0
	w.later(w.gate.now()+between(w.rng, 100*time.Millisecond, 3*time.Second), func() {
		l.cutThere, l.cutBack = false, false
	})
}

// stepClock sets the store's clock, forwards or backwards.
func (w *world) stepClock() {
	w.setClockBy(between(w.rng, -w.plan.clockJump, w.plan.clockJump))
}

func (w *world) setClockBy(by time.Duration) {
	kind := "clock set forwards"
	if by < 0 {
		kind = "clock set backwards"
	}
	w.note(kind, by.String())
	w.setClock(time.Duration(w.ahead.Load()) + by)
	// The timers of the nodes do not notice that the clock was set, so work may be late until the
	// next slow poll.
	for _, n := range w.nodes {
		w.history.troubled(n.name, w.gate.now(), w.gate.now()+w.plan.slowPoll)
	}
}

// raiseEpoch raises the epoch (the number above which all new tokens are), as the restore of a
// backup does.
func (w *world) raiseEpoch() {
	w.epoch += 1 << 32
	w.note("epoch raised", "")
	w.store.SetEpoch(w.epoch)
}

// restaff starts a process in each slot whose last process has ended.
func (w *world) restaff() {
	for _, s := range w.workers {
		if s.proc.over() {
			w.history.gone(s.proc.pid)
			s.start()
		}
	}
	w.later(w.gate.now()+between(w.rng, 200*time.Millisecond, 1500*time.Millisecond), w.restaff)
}

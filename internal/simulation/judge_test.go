package simulation

import (
	"strings"
	"time"
)

// judge decides the fate of a call that waits at the simulation's gate (for example, that it is
// carried out or fails), or how much longer the call must wait.
func (w *world) judge(t *ticket) (fate, time.Duration) {
	if t.link != nil && t.link.dead.Load() {
		return w.judgeGhost(t), 0
	}
	switch t.place {
	case atBatch:
		if w.rng.Float64() < w.plan.merged {
			f := w.storeFate(t)
			t.life.commitFate = &f
		}
		return goes, 0
	case atStore:
		if strings.Contains(t.name, answered) {
			return goes, 0
		}
		if !w.healing.Load() && t.until == 0 && w.rng.Float64() < w.plan.storeSlow {
			d := between(w.rng, 50*time.Millisecond, 3*time.Second)
			w.history.fault("store slow")
			w.history.troubled(t.life.name, w.gate.now(), w.gate.now()+d)
			return goes, d
		}
		return w.storeFate(t), 0
	case onRequest:
		return w.judgeRequest(t)
	default:
		return w.judgeReply(t)
	}
}

func (w *world) storeFate(t *ticket) fate {
	if w.healing.Load() {
		return goes
	}
	f := goes
	switch x := w.rng.Float64(); {
	case x < w.plan.storeFails:
		f = fails
		w.history.fault("store failed")
	case x < w.plan.storeFails+w.plan.storeUnheard:
		f = unheard
		w.history.fault("store executed, no answer")
	}
	if f != goes {
		w.history.troubled(t.life.name, w.gate.now(), w.gate.now())
	}
	return f
}

func (w *world) judgeRequest(t *ticket) (fate, time.Duration) {
	l := t.link
	if !w.healing.Load() {
		if t.until == 0 && w.rng.Float64() < w.plan.netSlow {
			w.history.fault("network slow")
			return goes, between(w.rng, 10*time.Millisecond, 2*time.Second)
		}
		if l.cutThere {
			w.history.fault("request lost: cut off")
			return fails, 0
		}
		if w.rng.Float64() < w.plan.netLost {
			w.history.fault("request lost")
			return fails, 0
		}
	}
	if w.nodes[l.node].life == nil {
		l.node = (l.node + 1) % len(w.nodes)
		return fails, 0
	}
	t.life = w.nodes[l.node].life
	return goes, 0
}

func (w *world) judgeReply(t *ticket) (fate, time.Duration) {
	if w.healing.Load() {
		return goes, 0
	}
	l := t.link
	if t.until == 0 && w.rng.Float64() < w.plan.netSlow {
		w.history.fault("network slow")
		return goes, between(w.rng, 10*time.Millisecond, 2*time.Second)
	}
	if l.cutBack {
		w.history.fault("reply lost: cut off")
		return fails, 0
	}
	if w.rng.Float64() < w.plan.netUnheard {
		w.history.fault("reply lost")
		return fails, 0
	}
	return goes, 0
}

// judgeGhost decides the fate of a call whose process has ended: a request that the process sent
// may still arrive.
func (w *world) judgeGhost(t *ticket) fate {
	if t.place != onRequest || w.healing.Load() || w.rng.IntN(2) == 0 || w.nodes[t.link.node].life == nil {
		return dies
	}
	w.history.fault("request of a dead process arrived")
	t.life = w.nodes[t.link.node].life
	return goes
}

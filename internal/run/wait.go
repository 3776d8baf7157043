package run

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// wait is one blocked call.
type wait struct {
	b    *Branch
	text string // for people: signal "approved"
	// until is when the wait is over by itself; zero for never.
	until time.Time
	// wants picks the signals that are a reason to look again.
	wants func(*belay.Signal) bool
	// inner waits for another branch of the run and not for the world.
	inner bool

	ready   chan struct{}
	blocked bool
}

// waits is what all branches of a run wait for.
type waits struct {
	list     []*wait // in the order in which they came
	branches int     // alive
	waiting  int     // of them, blocked in a wait
	busy     int     // steps being carried out
	draining bool

	idleSince time.Time // since when all of it waits and has come no further
	timer     *time.Timer
	allOver   chan struct{}

	// Of a suspend that was decided: when it is over by itself, and for what
	// it waits.
	until time.Time
	text  string
}

// blockLocked blocks the caller until it is woken or its context ends.
func (r *Run) blockLocked(ctx context.Context, w *wait) {
	w.ready, w.blocked = make(chan struct{}), true
	r.waits.list = append(r.waits.list, w)
	if w.b.waiting++; w.b.waiting == 1 {
		r.waits.waiting++
	}
	r.lookLocked()
	r.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	r.mu.Lock()
	r.wakeLocked(w)
}

// wakeLocked makes w look again. From now on it does not count as waiting.
func (r *Run) wakeLocked(w *wait) {
	if !w.blocked {
		return
	}
	w.blocked = false
	close(w.ready)
	if i := slices.Index(r.waits.list, w); i >= 0 {
		r.waits.list = slices.Delete(r.waits.list, i, i+1)
	}
	if w.b.waiting--; w.b.waiting == 0 {
		r.waits.waiting--
	}
}

func (r *Run) wakeAllLocked() {
	for _, w := range slices.Clone(r.waits.list) {
		r.wakeLocked(w)
	}
}

// lookLocked decides, whenever something about the waits has changed, whether
// the run suspends, and when to look again if not.
func (r *Run) lookLocked() {
	s := &r.waits
	if r.stop != stopNot || r.fault != nil || r.returned || len(s.list) == 0 {
		return
	}
	now, next := time.Now(), s.next()
	if s.waiting == s.branches && s.busy == 0 {
		if !slices.ContainsFunc(s.list, func(w *wait) bool { return !w.inner }) {
			r.failLocked(errDeadlock)
			return
		}
		at := r.suspendAt(now, next)
		if !at.After(now) {
			r.suspendLocked(next)
			return
		}
		next = at
	}
	r.armLocked(now, next)
}

// next is the first moment at which a wait is over by itself.
func (s *waits) next() time.Time {
	var next time.Time
	for _, w := range s.list {
		if !w.until.IsZero() && (next.IsZero() || w.until.Before(next)) {
			next = w.until
		}
	}
	return next
}

// suspendAt is when a run all of which waits should stop keeping its worker, or
// the end of its first wait if that is soon enough to stay.
func (r *Run) suspendAt(now, next time.Time) time.Time {
	s := &r.waits
	if s.idleSince.IsZero() {
		s.idleSince = now
	}
	linger := r.s.Linger
	if s.draining {
		return now
	}
	if !next.IsZero() && next.Sub(now) <= linger {
		return laterThan(now, next)
	}
	if !slices.ContainsFunc(s.list, func(w *wait) bool { return w.wants != nil }) || r.s.Full() {
		return now // only time can end it, or others need the slot
	}
	return s.idleSince.Add(linger)
}

// laterThan keeps a wait whose time is just over from looking like a suspend:
// the timer wakes it.
func laterThan(now, next time.Time) time.Time {
	if next.After(now) {
		return next
	}
	return now.Add(1)
}

// suspendLocked ends the run here; every wait answers ErrYield from now on.
func (r *Run) suspendLocked(next time.Time) {
	s := &r.waits
	r.stop = stopSuspend
	s.until = next
	var texts []string
	for _, w := range s.list {
		if !w.inner {
			texts = append(texts, w.text)
		}
	}
	slices.Sort(texts) // whoever came first to its wait
	s.text = strings.ToValidUTF8(clip(strings.Join(texts, ", "), belay.MaxName), "")
	r.wakeAllLocked()
}

func clip(s string, limit int) string { return s[:min(len(s), limit)] }

// armLocked has the run look again at the moment given.
func (r *Run) armLocked(now, at time.Time) {
	if at.IsZero() {
		return
	}
	d := max(at.Sub(now), 0)
	if r.waits.timer == nil {
		r.waits.timer = time.AfterFunc(d, r.tick)
		return
	}
	r.waits.timer.Reset(d)
}

// tick wakes the waits whose time is over.
func (r *Run) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, w := range slices.Clone(r.waits.list) {
		if !w.until.IsZero() && !w.until.After(now) {
			r.wakeLocked(w)
		}
	}
	r.lookLocked()
}

// stopLocked is why no step or wait may begin: the run has reached its end, or
// reaches it here because somebody asked for the execution back.
func (r *Run) stopLocked() error {
	switch {
	case r.lost != nil:
		return r.lost
	case r.fault != nil:
		return r.fault
	case r.stop != stopNot:
		return ErrYield
	case r.returned:
		return errOver
	case r.asked != 0:
		r.stop = stopGive
		r.wakeAllLocked()
		return ErrYield
	}
	return nil
}

// pass is the safe point before something new begins: it refuses when the run
// gives its execution back or ctx has ended, and waits at the fence.
func (r *Run) pass(ctx context.Context) error {
	r.mu.Lock()
	err := r.stopLocked()
	r.mu.Unlock()
	if err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return r.enter()
}

package run

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// wait is a call of Sleep, WaitSignal, Child or Branch.Wait that blocks its branch.
type wait struct {
	b    *Branch
	name string // the key of the wait in the history
	text string // description for people, such as: signal "approved"
	// until is the time at which the wait times out; zero for never.
	until time.Time
	// wants reports whether a signal ends the wait; nil if no signal can end it.
	wants func(*belay.Signal) bool
	// inner says that the wait is for another branch of the run.
	inner bool

	ready   chan struct{}
	blocked bool
	began   time.Time // when the wait blocked its branch first; zero before
	told    bool      // a heartbeat has named the wait
}

// silent reports whether the texts of other waits say for what the branch waits.
func (w *wait) silent() bool { return w.inner || w.text == "" }

// waits has the waits of all branches of a run.
type waits struct {
	list     []*wait // the blocked waits, in the order in which they began
	branches int     // number of branches that have not returned
	waiting  int     // number of branches that are blocked in a wait
	busy     int     // number of steps that are being executed
	draining bool

	idleSince time.Time // the time since which all branches have been waiting
	timer     *time.Timer
	allOver   chan struct{}

	// The earliest timeout and the description of the waits, at the moment when the run decided to
	// suspend.
	until time.Time
	text  string
}

// blockLocked blocks the caller until another goroutine wakes it or its context ends.
func (r *Run) blockLocked(ctx context.Context, w *wait) {
	w.ready, w.blocked = make(chan struct{}), true
	if w.began.IsZero() {
		w.began = time.Now()
	}
	r.waits.list = append(r.waits.list, w)
	if w.b.waiting++; w.b.waiting == 1 {
		r.waits.waiting++
	}
	r.decideLocked()
	r.mu.Unlock()
	r.report()
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	r.mu.Lock()
	r.wakeLocked(w)
}

// wakeLocked unblocks w; from this moment w does not count as waiting.
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

// decideLocked must be called after each change of the waits. It decides whether the run suspends,
// and if not, sets the timer for the next decision.
func (r *Run) decideLocked() {
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

// next returns the earliest timeout of a wait; zero if no wait has a timeout.
func (s *waits) next() time.Time {
	var next time.Time
	for _, w := range s.list {
		if !w.until.IsZero() && (next.IsZero() || w.until.Before(next)) {
			next = w.until
		}
	}
	return next
}

// suspendAt returns the time at which a run whose branches all wait should suspend. Until then the
// run keeps its slot in the worker. If the earliest timeout next ends a wait soon, suspendAt
// returns next, so that the run continues and does not suspend.
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
		return now // no signal can end the waits, or other executions need the slot
	}
	return s.idleSince.Add(linger)
}

// laterThan returns next, or a time just after now if next has passed. If the timeout of a wait has already passed, the
// run must not suspend: the timer of the run fires at once and wakes the wait.
func laterThan(now, next time.Time) time.Time {
	if next.After(now) {
		return next
	}
	return now.Add(1)
}

// suspendLocked decides that the run suspends; from now on every step and wait returns ErrYield.
func (r *Run) suspendLocked(next time.Time) {
	s := &r.waits
	r.stop = stopSuspend
	s.until = next
	var texts []string
	for _, w := range s.list {
		if !w.silent() {
			texts = append(texts, w.text)
		}
	}
	slices.Sort(texts) // the text must not depend on the order of the branches
	s.text = strings.ToValidUTF8(clip(strings.Join(texts, ", "), belay.MaxName), "")
	r.wakeAllLocked()
}

func clip(s string, limit int) string { return s[:min(len(s), limit)] }

// armLocked sets the timer to the time at.
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

// tick wakes the waits that have timed out.
func (r *Run) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, w := range slices.Clone(r.waits.list) {
		if !w.until.IsZero() && !w.until.After(now) {
			r.wakeLocked(w)
		}
	}
	r.decideLocked()
}

// stopLocked returns the reason why no step or wait may begin, because the run has ended or gives
// its execution back now; nil if a step or wait may begin.
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

// pass is the safe point before each new step or wait. It returns an error if the run gives its
// execution back or ctx has ended. While the fence is closed, it waits.
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

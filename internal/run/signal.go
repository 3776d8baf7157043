package run

import (
	"context"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// signals has the signals that were delivered to the execution and not consumed.
type signals struct {
	list []belay.Signal // by seq
	// seen is the seq of the newest signal that was read; announced is the seq of the newest signal
	// that a heartbeat has announced.
	seen, announced int64
	reading         bool
}

func (s *signals) start(a belay.Assignment) {
	s.list, s.seen, s.announced = a.Signals, a.SignalSeq, a.SignalSeq
	if n := len(a.Signals); n > 0 {
		s.seen = max(s.seen, a.Signals[n-1].Seq)
	}
}

// add appends signals that are newer than those in the list.
func (s *signals) add(more []belay.Signal) {
	if len(more) > 0 {
		s.list = append(slices.Clip(s.list), more...)
		s.seen = max(s.seen, more[len(more)-1].Seq)
	}
}

// SignalsUpTo notes that signals up to seq were delivered. A branch that waits for a signal then
// reads them.
func (r *Run) SignalsUpTo(seq int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signals.announced = max(r.signals.announced, seq)
	r.pokeLocked()
}

// takeLocked removes the oldest signal that want picks.
func (s *signals) takeLocked(want func(*belay.Signal) bool) (belay.Signal, bool) {
	for i := range s.list {
		if x := s.list[i]; want(&x) {
			if i == 0 {
				s.list = s.list[1:]
				return x, true
			}
			s.list = slices.Delete(slices.Clone(s.list), i, i+1)
			return x, true
		}
	}
	return belay.Signal{}, false
}

// takeNow takes a signal that has been read already.
func (r *Run) takeNow(want func(*belay.Signal) bool) (belay.Signal, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.signals.takeLocked(want)
}

// has reports whether a wanted signal has been read already.
func (r *Run) has(want func(*belay.Signal) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.signals.list {
		if want(&r.signals.list[i]) {
			return true
		}
	}
	return false
}

// untake puts a signal back if the checkpoint of its wait could not be saved.
func (r *Run) untake(x belay.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.signals
	i, _ := slices.BinarySearchFunc(s.list, x, func(a, b belay.Signal) int { return int(a.Seq - b.Seq) })
	s.list = slices.Insert(slices.Clone(s.list), i, x)
}

// readLocked reads the next signals after seen, and wakes the waits that want them. It reports
// whether it found any; then there may be further ones.
func (r *Run) readLocked() (some bool, err error) {
	s := &r.signals
	after, announced := s.seen, s.announced
	s.reading = true
	r.mu.Unlock()
	fresh, err := r.readSignals(after)
	r.mu.Lock()
	s.reading = false
	if err != nil {
		r.pokeLocked() // let another branch try
		return false, err
	}
	fresh = slices.DeleteFunc(fresh, func(x belay.Signal) bool { return x.Seq <= s.seen }) // another branch has read it
	s.add(fresh)
	for _, w := range slices.Clone(r.waits.list) {
		if w.wants != nil && slices.ContainsFunc(fresh, func(x belay.Signal) bool { return w.wants(&x) }) {
			r.wakeLocked(w)
		}
	}
	if s.announced == announced && len(fresh) == 0 {
		s.announced = s.seen // the announced signals that are not there were consumed by this run
	}
	r.pokeLocked()
	return len(fresh) > 0, nil
}

// pokeLocked wakes one branch that waits for signals if signals were announced and not read. That
// branch reads them and wakes the others.
func (r *Run) pokeLocked() {
	if r.signals.announced <= r.signals.seen || r.signals.reading {
		return
	}
	for _, w := range r.waits.list {
		if w.wants != nil {
			r.wakeLocked(w)
			return
		}
	}
}

// await blocks until a signal that w wants has arrived, and takes it, or until the wait times out:
// then ok is false. A wait for time alone wants no signals.
func (r *Run) await(ctx context.Context, w *wait) (x belay.Signal, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.pokeLocked() // if this branch was woken to read and leaves, another must read
	s := &r.signals
	looked := false
	for {
		if err := r.stopLocked(); err != nil {
			return x, false, err
		}
		if err := context.Cause(ctx); err != nil {
			return x, false, err
		}
		if w.wants != nil {
			if x, ok = s.takeLocked(w.wants); ok {
				return x, true, nil
			}
		}
		over := !w.until.IsZero() && !time.Now().Before(w.until)
		switch {
		case over && (w.wants == nil || looked):
			return x, false, nil
		case over || w.wants != nil && s.announced > s.seen && !s.reading:
			// Read also when the time is over: a signal that was accepted before counts, even if no
			// heartbeat has announced it.
			some, err := r.readLocked()
			if err != nil {
				return x, false, err
			}
			looked = over && !some
		default:
			r.blockLocked(ctx, w)
		}
	}
}

package run

import (
	"context"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// signals has the signals that were delivered to the execution and are not consumed yet.
type signals struct {
	list []belay.Signal // the signals that were read, in the order of seq
	// seen is the seq of the newest signal that was read. announced is the seq of the newest signal
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

// add appends signals. They must be newer than all signals that were read before.
func (s *signals) add(more []belay.Signal) {
	if len(more) > 0 {
		s.list = append(slices.Clip(s.list), more...)
		s.seen = max(s.seen, more[len(more)-1].Seq)
	}
}

// SignalsUpTo records that signals up to seq were delivered. A branch that waits for a signal then
// reads these signals.
func (r *Run) SignalsUpTo(seq int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signals.announced = max(r.signals.announced, seq)
	r.wakeReaderLocked()
}

// takeLocked removes and returns the oldest signal for which want returns true.
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

// takeNow removes and returns the oldest signal that was already read and for which want returns
// true. It does not wait and does not read from the store.
func (r *Run) takeNow(want func(*belay.Signal) bool) (belay.Signal, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.signals.takeLocked(want)
}

// has reports whether a signal for which want returns true was already read.
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

// putBack puts a signal back into the list, because the checkpoint that consumes it could not be
// saved.
func (r *Run) putBack(x belay.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.signals
	i, _ := slices.BinarySearchFunc(s.list, x, func(a, b belay.Signal) int { return int(a.Seq - b.Seq) })
	s.list = slices.Insert(slices.Clone(s.list), i, x)
}

// readLocked reads the next signals from the store and wakes the waits that want one of them. It
// reports whether it has read any signal; if so, the store may have more.
func (r *Run) readLocked() (some bool, err error) {
	s := &r.signals
	after, announced := s.seen, s.announced
	s.reading = true
	r.mu.Unlock()
	fresh, err := r.readSignals(after)
	r.mu.Lock()
	s.reading = false
	if err != nil {
		r.wakeReaderLocked() // another branch may try to read
		return false, err
	}
	// Another branch may have read some of these signals while mu was unlocked.
	fresh = slices.DeleteFunc(fresh, func(x belay.Signal) bool { return x.Seq <= s.seen })
	s.add(fresh)
	for _, w := range slices.Clone(r.waits.list) {
		if w.wants != nil && slices.ContainsFunc(fresh, func(x belay.Signal) bool { return w.wants(&x) }) {
			r.wakeLocked(w)
		}
	}
	if s.announced == announced && len(fresh) == 0 {
		s.announced = s.seen // the announced signals are not in the store any more, so this run has consumed them
	}
	r.wakeReaderLocked()
	return len(fresh) > 0, nil
}

// wakeReaderLocked wakes one branch that waits for a signal, if announced signals were not read
// yet. That branch reads the signals and wakes the other branches that want a signal.
func (r *Run) wakeReaderLocked() {
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

// await blocks until a signal that w wants has arrived, and takes the signal. If the wait times out
// before, ok is false. A wait that only waits for a time wants no signals.
func (r *Run) await(ctx context.Context, w *wait) (x belay.Signal, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.wakeReaderLocked() // if this branch was woken to read signals and returns first, another branch reads
	defer func() { r.endWaitLocked(w, err) }()
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
			// This branch also reads when the time is over, because a signal that the store
			// accepted before the timeout counts even if no heartbeat has announced it.
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

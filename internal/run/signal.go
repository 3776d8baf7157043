package run

import (
	"context"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// signals are those delivered to the execution and not consumed.
type signals struct {
	list []belay.Signal // by seq
	// seen is the newest that list covers; told the newest there is, as far
	// as a heartbeat said.
	seen, told int64
	reading    bool
}

func (s *signals) start(a belay.Assignment) {
	s.list, s.seen, s.told = a.Signals, a.SignalSeq, a.SignalSeq
	if n := len(a.Signals); n > 0 {
		s.seen = max(s.seen, a.Signals[n-1].Seq)
	}
}

// add takes in signals that are newer than those in the list.
func (s *signals) add(more []belay.Signal) {
	if len(more) > 0 {
		s.list = append(slices.Clip(s.list), more...)
		s.seen = max(s.seen, more[len(more)-1].Seq)
	}
}

// Told notes that there are signals up to seq. Whoever waits for one reads them.
func (r *Run) Told(seq int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signals.told = max(r.signals.told, seq)
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

// takeNow takes a signal that is there already.
func (r *Run) takeNow(want func(*belay.Signal) bool) (belay.Signal, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.signals.takeLocked(want)
}

// has reports whether a signal is there.
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

// untake puts back a signal whose wait could not be saved.
func (r *Run) untake(x belay.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.signals
	i, _ := slices.BinarySearchFunc(s.list, x, func(a, b belay.Signal) int { return int(a.Seq - b.Seq) })
	s.list = slices.Insert(slices.Clone(s.list), i, x)
}

// readLocked reads the first signals that are newer than those known, and wakes who
// wants them. It reports whether it found any: then there may be others.
func (r *Run) readLocked() (some bool, err error) {
	s := &r.signals
	after, told := s.seen, s.told
	s.reading = true
	r.mu.Unlock()
	fresh, err := r.readSignals(after)
	r.mu.Lock()
	s.reading = false
	if err != nil {
		r.pokeLocked() // another one may have more luck
		return false, err
	}
	fresh = slices.DeleteFunc(fresh, func(x belay.Signal) bool { return x.Seq <= s.seen }) // another branch has read it
	s.add(fresh)
	for _, w := range slices.Clone(r.waits.list) {
		if w.wants != nil && slices.ContainsFunc(fresh, func(x belay.Signal) bool { return w.wants(&x) }) {
			r.wakeLocked(w)
		}
	}
	if s.told == told && len(fresh) == 0 {
		s.told = s.seen // what was told and not read was consumed by us
	}
	r.pokeLocked()
	return len(fresh) > 0, nil
}

// pokeLocked has one of those who wait for signals read what came meanwhile, if
// anything did; it wakes the others.
func (r *Run) pokeLocked() {
	if r.signals.told <= r.signals.seen || r.signals.reading {
		return
	}
	for _, w := range r.waits.list {
		if w.wants != nil {
			r.wakeLocked(w)
			return
		}
	}
}

// await blocks until a signal that w wants is there, and takes it, or until the
// wait is over: then ok is false. A wait for time alone wants none.
func (r *Run) await(ctx context.Context, w *wait) (x belay.Signal, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.pokeLocked() // whoever was woken to read and leaves passes that on
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
		case over || w.wants != nil && s.told > s.seen && !s.reading:
			// Also at the end of the time: a signal accepted before it counts,
			// though no heartbeat has told of it.
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

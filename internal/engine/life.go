package engine

import (
	"log/slog"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// life knows for how long the engine has not done what it lives for: to look for what
// is due, to leave marks of life, to commit. It also tells the log what the store says
// of itself.
type life struct {
	mu      sync.Mutex
	sweepBy time.Time         // when the sweep that is due or under way was due
	marked  time.Time         // when the last mark of life was left
	beat    time.Duration     // how often one must be; 0 while no session lives
	beating time.Time         // since when one must be
	flights map[int]time.Time // when the transactions began that have not ended
	flown   int
	failing time.Time    // when the store refused the first write of those after the last that it took
	tables  store.Tables // that somebody else has locked
	locked  time.Time    // since when there are any

	epoch belay.Token   // that was last seen
	ahead time.Duration // that the log was told of
	leapt time.Duration
}

func newLife() *life { return &life{flights: make(map[int]time.Time)} }

// sweeping notes that a sweep begins, which may be one that nobody had planned.
func (l *life) sweeping() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.sweepBy.IsZero() || l.sweepBy.After(now) {
		l.sweepBy = now
	}
}

// swept notes the end of a sweep that could do all it found, the shortest time between
// two marks of life, and how long the next sweep may wait.
func (l *life) swept(rest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweepBy = time.Now().Add(rest)
}

// beats notes how often a mark of life is due.
func (l *life) beats(every time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.beat == 0 {
		l.beating = time.Now()
	}
	l.beat = every
}

// flight notes that a transaction begins. What it gives notes its end.
func (l *life) flight() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flown++
	n := l.flown
	l.flights[n] = time.Now()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.flights, n)
	}
}

// refused notes a write that the store did not take, and reports whether it is the
// first since it took one.
func (l *life) refused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.failing.IsZero() {
		return false
	}
	l.failing = time.Now()
	return true
}

// isFailing reports whether the store took the newest write.
func (l *life) isFailing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.failing.IsZero()
}

// wrote notes a write that the store took, with a mark of life or without.
func (l *life) wrote(mark bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failing = time.Time{}
	if mark {
		l.marked = time.Now()
	}
}

// shut notes which tables somebody else has locked.
func (l *life) shut(t store.Tables) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tables = t
	switch {
	case t == 0:
		l.locked = time.Time{}
	case l.locked.IsZero():
		l.locked = time.Now()
	}
}

// still fills in for how long nothing has happened.
func (l *life) still(v *Vitals) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	since := func(t time.Time) time.Duration {
		if t.IsZero() {
			return 0
		}
		return max(0, now.Sub(t))
	}
	v.Sweep = since(l.sweepBy)
	if last := l.marked; l.beat > 0 {
		if l.beating.After(last) {
			last = l.beating
		}
		v.Mark = since(last.Add(l.beat))
	}
	v.Commit = since(l.failing)
	for _, began := range l.flights {
		v.Commit = max(v.Commit, since(began))
	}
	v.Locked, v.LockedFor = l.tables, since(l.locked)
}

// noticed is the least difference of two clocks that the log is told of.
const noticed = time.Second

// tell tells the log what is new of the store: an epoch that began, and a clock that
// was set.
func (l *life) tell(log *slog.Logger, r *machine.Rows, v store.Vitals) {
	l.mu.Lock()
	epoch := r.Epoch > l.epoch && (l.epoch != 0 || v.Begun)
	l.epoch = max(l.epoch, r.Epoch)
	leapt := v.Leapt - l.leapt
	l.leapt = v.Leapt
	ahead := (r.Ahead - l.ahead).Abs() >= noticed
	if ahead {
		l.ahead = r.Ahead
	}
	l.mu.Unlock()
	if epoch {
		log.Warn("an epoch has begun, as after a failover or a restore: writes that were acknowledged before it "+
			"may be gone",
			"epoch", r.Epoch)
	}
	if leapt > 0 {
		log.Warn("the clock was set forwards; time follows it, and what runs is not charged for it",
			"by", leapt.Round(time.Millisecond))
	}
	switch {
	case !ahead:
	case r.Ahead.Abs() < noticed:
		log.Info("the clock shows the store's time again")
	default:
		log.Warn("the clock was set back, or had run ahead; the store's time goes on at its normal pace",
			"ahead", r.Ahead.Round(time.Millisecond))
	}
}

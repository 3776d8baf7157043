package engine

import (
	"log/slog"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// health measures for how long the engine has not done each of its tasks: searching for due work,
// writing marks of life (times that the engine stores at short intervals to show that it can
// write), and committing. It also logs changes of the store's epoch and clock.
type health struct {
	mu           sync.Mutex
	sweepBy      time.Time         // planned time of the next sweep, or of the sweep in progress
	marked       time.Time         // when the last mark of life was written
	beat         time.Duration     // the interval of the marks of life; 0 while no session lives
	beating      time.Time         // the time since which marks of life are needed
	transactions map[int]time.Time // start times of the transactions that have not ended
	number       int
	failing      time.Time    // when the store refused the first write after the last write that succeeded
	tables       store.Tables // tables that another transaction has locked
	locked       time.Time    // the time since which another transaction has locked tables

	epoch belay.Token   // newest epoch seen: the number above which all new tokens are
	ahead time.Duration // how far the store's clock was ahead of the wall clock when the log last reported it
	leapt time.Duration
}

func newHealth() *health { return &health{transactions: make(map[int]time.Time)} }

// sweeping notes that a sweep begins. It may begin before its planned time.
func (l *health) sweeping() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.sweepBy.IsZero() || l.sweepBy.After(now) {
		l.sweepBy = now
	}
}

// swept notes the end of a sweep that has done all work that it found. rest is how long the next
// sweep may wait.
func (l *health) swept(rest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweepBy = time.Now().Add(rest)
}

// beats notes the interval at which the engine must write marks of life (times that show that it
// runs).
func (l *health) beats(every time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.beat == 0 {
		l.beating = time.Now()
	}
	l.beat = every
}

// transaction notes that a transaction begins. The function that it returns notes the end.
func (l *health) transaction() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	n := l.number
	l.transactions[n] = time.Now()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.transactions, n)
	}
}

// refused notes a write that the store refused, and reports whether it is the first refused write
// after one that succeeded.
func (l *health) refused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.failing.IsZero() {
		return false
	}
	l.failing = time.Now()
	return true
}

// isFailing reports whether the store refused the newest write.
func (l *health) isFailing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.failing.IsZero()
}

// wrote notes a write that succeeded. mark says whether it contained a mark of life.
func (l *health) wrote(mark bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failing = time.Time{}
	if mark {
		l.marked = time.Now()
	}
}

// setLocked notes which tables another transaction has locked.
func (l *health) setLocked(t store.Tables) {
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

// fillStalls sets in v for how long the engine has failed to sweep, to write marks of life and to
// commit, and for how long tables have been locked.
func (l *health) fillStalls(v *Vitals) {
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
	for _, began := range l.transactions {
		v.Commit = max(v.Commit, since(began))
	}
	v.Locked, v.LockedFor = l.tables, since(l.locked)
}

// minReportedSkew is the smallest clock difference that is logged.
const minReportedSkew = time.Second

// logChanges logs a new epoch (a jump of the tokens, as after a restore) and a clock that was set.
func (l *health) logChanges(log *slog.Logger, r *machine.Rows, v store.Vitals) {
	l.mu.Lock()
	epoch := r.Epoch > l.epoch && (l.epoch != 0 || v.Begun)
	l.epoch = max(l.epoch, r.Epoch)
	leapt := v.Leapt - l.leapt
	l.leapt = v.Leapt
	ahead := (r.Ahead - l.ahead).Abs() >= minReportedSkew
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
	case r.Ahead.Abs() < minReportedSkew:
		log.Info("the clock shows the store's time again")
	default:
		log.Warn("the clock was set back, or had run ahead; the store's time goes on at its normal pace",
			"ahead", r.Ahead.Round(time.Millisecond))
	}
}

package postgres

import (
	"math"
	"sync"
	"time"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// front has, for each index of due work, the position (a time) before which no entry is expected; a
// search for due work normally begins there. While a transaction keeps an old snapshot, dead entries
// stay at the beginning of the indexes: one for each heartbeat, each deadline and each claim. A full
// search, which begins at the beginning of the indexes and reads all dead entries, then takes long.
// After a slow full search the store waits before it makes another full search. Until then each
// search begins at the front: at the first entry that the search before it has found.
//
// A front may be wrong: an entry that is committed late may lie before it. The commits of this
// server and the hints of other servers (messages about their commits) move the front back, and
// every full search finds the entries that searches from the front have missed.
type front struct {
	mu       sync.Mutex
	again    time.Time // when to make the next full search; zero while full searches are fast
	moved    uint64    // how often the front was moved back
	starts   starts
	children bool // whether the next search must also look for children to cancel
}

// starts are the positions (times) in the indexes at which searches begin; 0 is the beginning of
// the index.
type starts struct {
	expires machine.Time // for sessions, by the time at which they expire
	checks  machine.Time
	ended   machine.Time // for ended sessions, by the time of their end
}

// dueLook is one search for due work.
type dueLook struct {
	starts
	whole    bool // a full search, which does not begin at the front
	children bool
	moved    uint64
	began    time.Time
	now      machine.Time

	firstEnd, firstCheck machine.Time // times of the first entries found; 0 for none
	firstLeft            machine.Time // end of the first session found that has left executions
}

// begin decides at which positions in the indexes the next search for due work begins.
func (f *front) begin(now machine.Time) *dueLook {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &dueLook{began: time.Now(), now: now, moved: f.moved, firstLeft: math.MaxInt64}
	if p.whole = !p.began.Before(f.again); p.whole {
		p.children = true
		return p
	}
	p.starts, p.children = f.starts, f.children
	return p
}

// seen sets the positions in the indexes at which the next searches for due work begin, from the
// search p and its results due. If p was a full search (from the beginning of the indexes) and took
// longer than the duration long, the store waits before the next full search. There is one
// exception: if executions of ended sessions may lie before the new positions, for example because
// p found as many as limit allows, the next search is a full search.
func (f *front) seen(p *dueLook, due *store.Due, limit int, long time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if took := time.Since(p.began); p.whole {
		f.again = time.Time{}
		if took > long {
			f.again = time.Now().Add(min(max(belowInterval, belowShare*took), longestPause))
		}
	}
	if p.firstLeft == 0 || limit > 0 && len(due.Lost) >= limit {
		f.again = time.Time{} // executions of ended sessions may lie before the front
	}
	recent := p.now.Add(-floorAge) // most transactions that commit later write times after this one
	next := starts{expires: recent, checks: math.MaxInt64, ended: min(recent, p.firstLeft)}
	if p.firstEnd != 0 {
		next.expires = min(next.expires, p.firstEnd)
	}
	if p.firstCheck != 0 {
		next.checks = p.firstCheck
	}
	children := len(due.Children)+len(due.Parted) > 0
	if f.moved != p.moved { // the front was moved back since the search began, so the results may be out of date
		f.starts = starts{
			min(f.starts.expires, next.expires), min(f.starts.checks, next.checks), min(f.starts.ended, next.ended),
		}
		f.children = f.children || children
		return
	}
	f.starts, f.children = next, children
}

// note makes the next search for due work begin earlier in the indexes if a commit of this server
// contains earlier times.
func (f *front) note(c *machine.Changes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range c.Executions {
		if e.CheckAt != 0 {
			f.backLocked(&f.starts.checks, e.CheckAt)
		}
		if e.Parting() != 0 {
			f.children = true
			f.moved++
		}
	}
	for _, x := range c.Workers {
		if x.State.Ended() {
			f.backLocked(&f.starts.ended, x.EndedAt)
		} else {
			f.backLocked(&f.starts.expires, x.ExpiresAt)
		}
	}
}

func (f *front) backLocked(to *machine.Time, at machine.Time) {
	if at < *to {
		*to = at
		f.moved++
	}
}

// onHint makes the next search for due work begin no later than the time that another server has
// sent. If such messages (hints) were lost, the next search reads the indexes from their beginning.
func (f *front) onHint(h store.Hint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.Look != 0 {
		f.backLocked(&f.starts.checks, h.Look)
	}
	if h.Lost {
		f.again = time.Time{}
		f.moved++
	}
}

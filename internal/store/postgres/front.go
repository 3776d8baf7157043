package postgres

import (
	"math"
	"sync"
	"time"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// front is before which moments a look for what is due finds nothing. While somebody
// holds on to an old snapshot, all that was ever due lies at the front of the indexes: an
// entry for each heartbeat, each time limit and each claim since. A look that reads all of
// them takes long. It is made seldom then, and the looks in between begin where it found
// the first that counts.
//
// A front is a guess, as a floor is: what commits late may lie before it. This server's
// commits and the hints of others bring it back, and every look at everything finds what
// was missed.
type front struct {
	mu       sync.Mutex
	again    time.Time // when to look at everything; zero while that is quick
	moved    uint64    // how often it was brought back
	moments  moments
	children bool // some parent may have to part from its children
}

// moments are where to begin to look: 0 for the beginning.
type moments struct {
	expires machine.Time // of sessions, when their time is over
	checks  machine.Time
	ended   machine.Time // of sessions, for what they have left
}

// dueLook is a look for what is due under way.
type dueLook struct {
	moments
	whole    bool // it looks at everything
	children bool
	moved    uint64
	began    time.Time
	now      machine.Time

	firstEnd, firstCheck machine.Time // that it has found; 0 for none
	firstLeft            machine.Time // end of a session that has left something
}

// begin decides what the next look must look at.
func (f *front) begin(now machine.Time) *dueLook {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &dueLook{began: time.Now(), now: now, moved: f.moved, firstLeft: math.MaxInt64}
	if p.whole = !p.began.Before(f.again); p.whole {
		p.children = true
		return p
	}
	p.moments, p.children = f.moments, f.children
	return p
}

// seen notes what a look has found, which is all there is if it found less than limit. One
// that took longer than long is not made again for some time.
func (f *front) seen(p *dueLook, due *store.Due, limit int, long time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if took := time.Since(p.began); p.whole {
		f.again = time.Time{}
		if took > long {
			f.again = time.Now().Add(min(max(below, belowShare*took), longLooked))
		}
	}
	if p.firstLeft == 0 || limit > 0 && len(due.Lost) >= limit {
		f.again = time.Time{} // what is left may lie before the front
	}
	recent := p.now.Add(-behind) // what commits from now on is of later
	next := moments{expires: recent, checks: math.MaxInt64, ended: min(recent, p.firstLeft)}
	if p.firstEnd != 0 {
		next.expires = min(next.expires, p.firstEnd)
	}
	if p.firstCheck != 0 {
		next.checks = p.firstCheck
	}
	children := len(due.Children)+len(due.Parted) > 0
	if f.moved != p.moved { // since it looked, which says nothing of what is there now
		f.moments = moments{
			min(f.moments.expires, next.expires), min(f.moments.checks, next.checks), min(f.moments.ended, next.ended),
		}
		f.children = f.children || children
		return
	}
	f.moments, f.children = next, children
}

// note brings the front back to what this server has committed.
func (f *front) note(c *machine.Changes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range c.Executions {
		if e.CheckAt != 0 {
			f.backLocked(&f.moments.checks, e.CheckAt)
		}
		if e.Parting() != 0 {
			f.children = true
			f.moved++
		}
	}
	for _, x := range c.Workers {
		if x.State.Ended() {
			f.backLocked(&f.moments.ended, x.EndedAt)
		} else {
			f.backLocked(&f.moments.expires, x.ExpiresAt)
		}
	}
}

func (f *front) backLocked(to *machine.Time, at machine.Time) {
	if at < *to {
		*to = at
		f.moved++
	}
}

// heed brings the front back to what another server has committed. Where something may
// not have been told, the next look is at everything.
func (f *front) heed(h store.Hint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.Look != 0 {
		f.backLocked(&f.moments.checks, h.Look)
	}
	if h.Lost {
		f.again = time.Time{}
		f.moved++
	}
}

package postgres

import (
	"sync"
	"time"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// floors say for each lane before which moment nothing is ready in it. What was
// claimed leaves dead entries at the front of the ready index. They are read once
// and then known to be dead, but not while somebody holds on to an old snapshot,
// as a backup does: then every claim would read all of them again.
//
// A floor is a guess: what commits late, or becomes ready again as of long ago, may
// lie below it. This server's commits and the hints of others lower it. It is never
// newer than most transactions take to commit, and now and then a claim looks below
// it.
type floors struct {
	mu  sync.Mutex
	all map[machine.LaneID]*floor
}

type floor struct {
	at      machine.Time
	full    time.Time // when to look below it again
	lowered uint64    // how often it was brought down
}

const (
	// behind is how old a floor is at least: longer than most transactions
	// take.
	behind = 250 * time.Millisecond
	// below is how often at most one looks below it, and belowShare how many
	// times longer than the last such look took one waits at least.
	below      = time.Second
	belowShare = 20
)

// from is where to begin to look in a lane, 0 to look below the floor too, and how
// often that floor was lowered before.
func (f *floors) from(lane machine.LaneID) (at machine.Time, lowered uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.all[lane]
	switch {
	case l == nil:
		return 0, 0
	case time.Now().Before(l.full):
		return max(0, l.at), l.lowered
	}
	return 0, l.lowered
}

// looked notes what the searches of a transaction have found, which took so
// long.
func (f *floors) looked(t *tx, took time.Duration) {
	if len(t.looks) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range t.looks {
		at := t.cutoff.Add(-behind) // what commits from now on became ready after it
		if due := t.rows.Ready[k.n].Due; len(due) > 0 {
			at = min(at, t.executions[due[0]].Ready())
		}
		l, full := f.all[k.Lane], k.from == 0
		switch {
		case l == nil:
			if f.all == nil {
				f.all = make(map[machine.LaneID]*floor)
			}
			l = &floor{at: at}
			f.all[k.Lane] = l
		case l.lowered != k.lowered: // since it looked, which says nothing of what is there now
			l.at = min(l.at, at)
		case full:
			l.at = at
		default:
			l.at = max(l.at, at)
		}
		if full {
			l.full = time.Now().Add(max(below, belowShare*took))
		}
	}
}

// lower brings floors down to what this server has made ready.
func (f *floors) lower(executions []*machine.Execution) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range executions {
		if at := e.Ready(); at != 0 {
			f.lowerLocked(e.Lane, at)
		}
	}
}

func (f *floors) lowerLocked(lane machine.LaneID, at machine.Time) {
	if l := f.all[lane]; l != nil && at < l.at {
		l.at = at
		l.lowered++
	}
}

// heed brings floors down to what another server has made ready. Where it may have
// made ready what is not told, the next look begins below all floors.
func (f *floors) heed(h store.Hint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range h.Lanes {
		f.lowerLocked(x.Lane, x.At)
	}
	if h.Lost || h.AnyLane != 0 {
		for lane, l := range f.all {
			l.full = time.Time{}
			f.lowerLocked(lane, h.AnyLane)
		}
	}
}

package postgres

import (
	"sync"
	"time"

	"github.com/belaydev/belay/internal/machine"
)

// floors say for each lane before which moment nothing is ready in it. What was
// claimed leaves dead entries at the front of the ready index. They are read once
// and then known to be dead, but not while somebody holds on to an old snapshot,
// as a backup does: then every claim would read all of them again.
//
// A floor is a guess: what commits late, or becomes ready again on another
// server as of long ago, may lie below it. It is never newer than most
// transactions take to commit, and now and then a claim looks below it.
type floors struct {
	mu  sync.Mutex
	all map[machine.LaneID]*floor
}

type floor struct {
	at   machine.Time
	full time.Time // when to look below it again
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

// from is where to begin to look in a lane; 0 to look below the floor too.
func (f *floors) from(lane machine.LaneID) machine.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.all[lane]; l != nil && time.Now().Before(l.full) {
		return max(0, l.at)
	}
	return 0
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
			if l := f.all[e.Lane]; l != nil && at < l.at {
				l.at = at
			}
		}
	}
}

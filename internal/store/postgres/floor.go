package postgres

import (
	"sync"
	"time"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// floors have, for each lane (the executions with equal queue, workflow, version, priority and
// labels), a time before which no execution of the lane is expected to be ready. A claim leaves a
// dead entry at the beginning of the lane's part of the ready index. Usually the first query that
// reads the entry marks it as dead, and later queries skip it. But while a transaction keeps an old
// snapshot, as a backup does, every claim would read all dead entries again.
//
// A floor may be wrong: an execution that is committed late, or that becomes ready again, may have
// a ready time below the floor. The commits of this server and the hints of other servers (messages
// about their commits) lower the floor. A floor is always older than most transactions last, and
// from time to time a claim also searches below it.
type floors struct {
	mu  sync.Mutex
	all map[machine.LaneID]*floor
}

type floor struct {
	at      machine.Time
	full    time.Time // when to search below the floor again
	lowered uint64    // how often the floor was lowered
}

const (
	// floorAge is the least distance between a floor (a time before which no execution of a lane is
	// expected to be ready) and the present time. It is longer than most transactions take.
	floorAge = 250 * time.Millisecond
	// belowInterval is the shortest time between two queries for executions of a lane that are due
	// before its floor (the time before which none is expected). After each query the store also
	// waits for belowShare times the duration of the query before it makes the next query.
	belowInterval = time.Second
	belowShare    = 20
)

// from returns the time at which a search in a lane begins (0 to search below the floor too), and
// how often the lane's floor has been lowered until now.
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

// looked updates the floors of the lanes (the times before which no execution is ready) from the
// results of a transaction's searches, which took the given time.
func (f *floors) looked(t *tx, took time.Duration) {
	if len(t.looks) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range t.looks {
		at := t.cutoff.Add(-floorAge) // executions that later commits make ready are normally ready after this time
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
		case l.lowered != k.lowered: // the floor was lowered since the search began, so the search may be out of date
			l.at = min(l.at, at)
		case full:
			l.at = at
		default:
			l.at = max(l.at, at)
		}
		if full {
			l.full = time.Now().Add(max(belowInterval, belowShare*took))
		}
	}
}

// lower lowers the floors of lanes to the times at which this server's commit has made executions
// ready.
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

// onHint lowers the floors of lanes to the times that another server has sent. If such messages
// (hints) were lost, the next search in each lane ignores its floor.
func (f *floors) onHint(h store.Hint) {
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

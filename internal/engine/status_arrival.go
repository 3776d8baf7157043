package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// arrival is a change that is not in the window yet.
type arrival struct {
	belay.Status
	at    time.Time
	local bool         // this engine has committed the change
	facts *statusFacts // known for an execution that this engine has accepted, and later for all
}

// late reports whether a change is so old that a follower may have a snapshot that is newer, and does
// not know that any more. A new execution of a long transaction (see Join) is younger than its time.
func (a *arrival) late(now, clock time.Time) bool {
	if a.local {
		return now.Sub(a.at) > statusLate
	}
	return clock.Sub(a.At) > statusLate && (a.Previous != 0 || a.facts.seq != 0)
}

// ripe returns the changes that have waited for the time hold, together with all changes that were
// committed before one of them, and with the earlier changes of the same executions; and it returns the
// other changes.
func ripe(inbox []arrival, now time.Time, hold time.Duration) (all, rest []arrival) {
	var until time.Time
	for i := range inbox {
		if a := &inbox[i]; now.Sub(a.at) >= hold && a.At.After(until) {
			until = a.At
		}
	}
	for i := range inbox {
		if inbox[i].At.After(until) {
			rest = append(rest, inbox[i])
		} else {
			all = append(all, inbox[i])
		}
	}
	if len(rest) == 0 {
		return all, nil
	}
	newest := make(map[belay.ExecutionID]int64, len(all))
	for i := range all {
		newest[all[i].Execution] = max(newest[all[i].Execution], all[i].Seq)
	}
	later := rest[:0]
	for _, a := range rest {
		if a.Seq < newest[a.Execution] { // the clocks of the servers differ
			all = append(all, a)
		} else {
			later = append(later, a)
		}
	}
	return all, later
}

// sortArrivals sorts changes by the times of their commits, and those of one execution by seq: the
// clocks of servers may differ.
func sortArrivals(all []arrival) {
	slices.SortStableFunc(all, func(a, b arrival) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Seq, b.Seq))
	})
	places := make(map[belay.ExecutionID][]int, len(all))
	for i := range all {
		places[all[i].Execution] = append(places[all[i].Execution], i)
	}
	for _, at := range places {
		inOrder := func(i, j int) int { return cmp.Compare(all[i].Seq, all[j].Seq) }
		if slices.IsSortedFunc(at, inOrder) {
			continue
		}
		bySeq := make([]arrival, len(at))
		for n, i := range at {
			bySeq[n] = all[i]
		}
		slices.SortStableFunc(bySeq, func(a, b arrival) int { return cmp.Compare(a.Seq, b.Seq) })
		for n, i := range at {
			all[i] = bySeq[n]
		}
	}
}

// statusLosses are the moments of the first and of the newest loss for which the followers must still get a
// snapshot; zero if there is none.
type statusLosses struct{ first, last time.Time }

func (l *statusLosses) note(now time.Time) {
	if l.last = now; l.first.IsZero() {
		l.first = now
	}
}

// due is when the window begins a new epoch: when all changes have arrived that were under way at the
// last loss. If losses go on, there is an epoch now and then nevertheless.
func (l *statusLosses) due(hold time.Duration) time.Time {
	due := l.last.Add(hold)
	if most := l.first.Add(4 * hold); most.Before(due) {
		return most
	}
	return due
}

// cleared notes a new epoch. A loss a moment ago needs yet another one.
func (l *statusLosses) cleared(now time.Time, hold time.Duration) {
	if l.last.Add(hold).After(now) {
		l.first = now
	} else {
		*l = statusLosses{}
	}
}

package engine

import (
	"container/heap"

	"github.com/belaydev/belay/internal/machine"
)

// timers wake the dispatcher at the times in the hints of lanes (groups of executions that the same
// workers may claim): at these times an execution in the lane may become due. While the time in a
// hint is in the future, the timer of the lane fires no later than that time.
type timers []timer

type timer struct {
	at   machine.Time
	lane *lane
}

func (t *timers) Len() int           { return len(*t) }
func (t *timers) Less(i, j int) bool { return (*t)[i].at < (*t)[j].at }
func (t *timers) Swap(i, j int)      { (*t)[i], (*t)[j] = (*t)[j], (*t)[i] }

// Push is for package heap.
func (t *timers) Push(x any) { *t = append(*t, x.(timer)) } //nolint:errcheck,forcetypeassert // only set pushes

// Pop is for package heap.
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// set ensures that a timer of the lane fires at the given time or earlier, and reports whether this
// timer is now the first of all.
func (t *timers) set(l *lane, at machine.Time) bool {
	if l.timer != 0 && l.timer <= at {
		return false
	}
	l.timer = at
	heap.Push(t, timer{at, l})
	return (*t)[0].at == at
}

// next returns the time at which the first timer fires; false if there is no timer.
func (t *timers) next() (machine.Time, bool) {
	for len(*t) > 0 && (*t)[0].at != (*t)[0].lane.timer {
		heap.Pop(t) // the lane has got another timer since, so this timer does not count
	}
	if len(*t) == 0 {
		return 0, false
	}
	return (*t)[0].at, true
}

// expired removes the timers that have fired and returns their lanes. If the time in a lane's hint
// has become later since its timer was set, expired sets another timer for the lane instead.
func (t *timers) expired(now machine.Time) (all []*lane) {
	for at, some := t.next(); some && at <= now; at, some = t.next() {
		l := (*t)[0].lane
		heap.Pop(t)
		l.timer = 0
		switch {
		case l.hint > now:
			t.set(l, l.hint)
		case l.hint != 0:
			all = append(all, l)
		}
	}
	return all
}

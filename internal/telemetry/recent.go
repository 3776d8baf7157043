package telemetry

import (
	"math"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
)

// Minutes is for how many minutes a Recent keeps what the server did, with the present minute.
const Minutes = 60

// Minute is what a server did in one minute. The times are at most a tenth too long.
type Minute struct {
	At                           time.Time // when the minute began
	Succeeded, Failed, Cancelled int       // executions that ended
	// Starts are the runs that began. StartHalf is how long half of their executions had been due at most, and
	// StartMost how long 95 in 100 of them.
	Starts               int
	StartHalf, StartMost time.Duration
	// Takeovers are the sessions of workers that were lost. TakeoverHalf is how long after the end of the lease the
	// executions of half of them were taken back at most, and TakeoverMost that of the last one.
	Takeovers                  int
	TakeoverHalf, TakeoverMost time.Duration
}

// Recent counts what a server does in each minute, for the plots of the overview. Its memory is bounded. It begins with
// the process: what the server did before is in the store and the metrics only.
type Recent struct {
	now   func() time.Time
	since time.Time

	mu   sync.Mutex
	ring [Minutes]tallied // by the number of the minute
}

// NewRecent begins to count. now is the clock.
func NewRecent(now func() time.Time) *Recent { return &Recent{now: now, since: now()} }

// tallied is one minute. number is the number of minutes since 1970.
type tallied struct {
	number            int64
	ended             [belay.Cancelled + 1]int
	starts, takeovers spread
}

// spreadSize is how many buckets a spread has: the last one is for an hour and more.
const spreadSize = 160

// spread counts times in buckets. The first one is for less than a millisecond, and each further one ends a tenth later
// than the one before.
type spread struct {
	n      int
	most   time.Duration
	counts [spreadSize]uint32
}

const spreadStep = 1.1

func (s *spread) add(d time.Duration) {
	i := 0
	if d >= time.Millisecond {
		i = min(spreadSize-1, 1+int(math.Log(float64(d)/float64(time.Millisecond))/math.Log(spreadStep)))
	}
	s.counts[i]++
	s.n++
	s.most = max(s.most, d)
}

// below returns a time that at least the given part of the times do not exceed.
func (s *spread) below(part float64) time.Duration {
	rest := int(math.Ceil(part * float64(s.n)))
	for i, n := range s.counts {
		if rest -= int(n); rest <= 0 && s.n > 0 {
			return min(s.most, time.Duration(float64(time.Millisecond)*math.Pow(spreadStep, float64(i))))
		}
	}
	return s.most
}

// Observe counts one batch of the engine.
func (r *Recent) Observe(o *engine.Observation) {
	if len(o.Finished)+len(o.Started)+len(o.Late) == 0 {
		return
	}
	number := r.now().Unix() / 60
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &r.ring[number%Minutes]
	if m.number != number {
		*m = tallied{number: number}
	}
	for i := range o.Finished {
		m.ended[o.Finished[i].State]++
	}
	for i := range o.Started {
		m.starts.add(o.Started[i].Wait)
	}
	for _, d := range o.Late {
		m.takeovers.add(d)
	}
}

// Minutes returns the last minutes, the oldest first, and since when the server has counted. The last one is the
// present minute, which is not over.
func (r *Recent) Minutes() (all []Minute, since time.Time) {
	now := r.now().Unix() / 60
	r.mu.Lock()
	defer r.mu.Unlock()
	for number := now - Minutes + 1; number <= now; number++ {
		out := Minute{At: time.Unix(number*60, 0).UTC()}
		if m := &r.ring[number%Minutes]; m.number == number {
			out.Succeeded, out.Failed, out.Cancelled = m.ended[belay.Succeeded], m.ended[belay.Failed],
				m.ended[belay.Cancelled]
			out.Starts, out.StartHalf, out.StartMost = m.starts.n, m.starts.below(.5), m.starts.below(.95)
			out.Takeovers, out.TakeoverHalf, out.TakeoverMost = m.takeovers.n, m.takeovers.below(.5), m.takeovers.most
		}
		all = append(all, out)
	}
	return all, r.since
}

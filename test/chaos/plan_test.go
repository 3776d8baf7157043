package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// fault is one thing that goes wrong.
type fault struct {
	At   time.Duration // after the first moment
	Who  string        // whom it befalls
	Kind string
	For  time.Duration // how long it lasts
}

// plan is all that goes wrong, in order of time. Who carries out what befalls
// one victim is busy while it lasts, so that a fault may come later than planned,
// and none is left out.
type plan []fault

// How long the database is away when it is killed: longer than the fence of the
// commands' worker lets it go on, and than the TTL of the far ones.
const longOutage = 8500 * time.Millisecond

// newPlan draws what goes wrong in a time from a seed. The rates are those of 30
// kills of servers and 60 of workers in three minutes, and a few more.
func newPlan(seed uint64, length time.Duration) plan {
	r := dice(seed, "plan")
	var p plan
	p = append(p,
		fault{length * 3 / 10, "database", "restart", 0},
		fault{length * 13 / 20, "database", "kill", longOutage})
	each := func(rate time.Duration, who func() string, kind func() string, least, most time.Duration) {
		n := max(1, int((length+rate-1)/rate))
		for i := range n {
			at := length/time.Duration(n)*time.Duration(i) + between(r, 0, length/time.Duration(n))
			p = append(p, fault{at, who(), kind(), between(r, least, most)})
		}
	}
	turn := func(name string, of []int) func() string {
		n := r.IntN(len(of))
		return func() string { n++; return fmt.Sprint(name, of[n%len(of)]) }
	}
	one := func(of ...string) func() string { return func() string { return of[r.IntN(len(of))] } }
	all, far := []int{0, 1, 2, 3, 4, 5}, []int{1, 3, 5}
	each(5500*time.Millisecond, turn("server", all[:servers]), one("kill"), 100*time.Millisecond, 2*time.Second)
	each(2700*time.Millisecond, turn("worker", all), one("kill"), 50*time.Millisecond, 1500*time.Millisecond)
	each(20*time.Second, turn("server", all[:servers]), one("stop"), 500*time.Millisecond, 6*time.Second)
	each(15*time.Second, turn("worker", far), one("stop"), farTTL-time.Second, 2*farTTL)
	each(18*time.Second, turn("worker", all), one("end"), 50*time.Millisecond, time.Second)
	each(5*time.Second, turn("way", far), one("cut", "half open", "hold", "hold requests", "hold replies", "slow", "lossy", "refuse"), 300*time.Millisecond, 5*time.Second)
	each(12*time.Second, one("line"), one("cut", "hold", "slow"), 200*time.Millisecond, 4*time.Second)
	each(12*time.Second, one("backends"), one("terminate"), 0, 0)
	slices.SortStableFunc(p, func(a, b fault) int { return cmp.Compare(a.At, b.At) })
	return p
}

// of is the part of the plan that befalls one victim.
func (p plan) of(who string) plan {
	return slices.DeleteFunc(slices.Clone(p), func(f fault) bool { return f.Who != who })
}

// count is how often something is to befall victims whose name begins so.
func (p plan) count(who, kind string) (n int) {
	for _, f := range p {
		if len(f.Who) >= len(who) && f.Who[:len(who)] == who && f.Kind == kind {
			n++
		}
	}
	return n
}

// The same seed plans the same faults, and three minutes of any seed have what
// the promise is to be tried with.
func TestThePlanKeepsItsRates(t *testing.T) {
	for seed := range uint64(100) {
		p := newPlan(seed, 3*time.Minute)
		if !slices.Equal(p, newPlan(seed, 3*time.Minute)) {
			t.Fatalf("seed %d gave two plans", seed)
		}
		for _, least := range []struct {
			who, kind string
			n         int
		}{{"server", "kill", 30}, {"worker", "kill", 60}, {"database", "kill", 1}, {"database", "restart", 1}, {"backends", "terminate", 10}} {
			if n := p.count(least.who, least.kind); n < least.n {
				t.Errorf("seed %d: %d times %s of %s, want %d", seed, n, least.kind, least.who, least.n)
			}
		}
		if p[0].At < 0 || p[len(p)-1].At > 3*time.Minute {
			t.Errorf("seed %d plans from %s to %s", seed, p[0].At, p[len(p)-1].At)
		}
	}
}

// chance is one in so many.
func chance(r *rand.Rand, in int) bool { return r.IntN(in) == 0 }

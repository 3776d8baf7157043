package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// fault is one planned fault.
type fault struct {
	At   time.Duration // from the beginning of the run to the fault
	Who  string        // the victim
	Kind string
	For  time.Duration // how long the fault lasts
}

// plan is all faults in the order of time. For each victim, a goroutine carries out its faults one
// after the other. If a fault takes long, the next fault of the victim comes later than planned,
// but no fault is left out.
type plan []fault

// longOutage is how long a killed database stays down: longer than the TTL of the far workers, and
// so long that the commands' worker must freeze its commands.
const longOutage = 8500 * time.Millisecond

// newPlan draws from a seed a plan for a run of the given length. Its rates give at least 30 kills
// of servers and 60 kills of workers in three minutes.
func newPlan(store string, seed uint64, length time.Duration) plan {
	d := &draft{r: dice(seed, "plan"), length: length}
	if store == onSQLite {
		d.onSQLite()
	} else {
		d.onPostgres()
	}
	slices.SortStableFunc(d.plan, func(a, b fault) int { return cmp.Compare(a.At, b.At) })
	return d.plan
}

// draft is a plan that is being drawn.
type draft struct {
	plan
	r      *rand.Rand
	length time.Duration
}

// each divides the run into intervals of at most the given length, and adds one fault at a random
// moment in each of them. The functions who and kind choose its victim and its kind; it lasts
// between least and most.
func (d *draft) each(interval time.Duration, who, kind func() string, least, most time.Duration) {
	n := max(1, int((d.length+interval-1)/interval))
	for i := range n {
		at := d.length/time.Duration(n)*time.Duration(i) + between(d.r, 0, d.length/time.Duration(n))
		d.plan = append(d.plan, fault{at, who(), kind(), between(d.r, least, most)})
	}
}

// turn, one and deal each return a function that chooses names. The function of turn takes the
// names in turn; the function of one takes a random name each time; the function of deal takes each
// name once, in random order, before it repeats a name.
func (d *draft) turn(name string, of []int) func() string {
	n := d.r.IntN(len(of))
	return func() string { n++; return fmt.Sprint(name, of[n%len(of)]) }
}

func (d *draft) one(of ...string) func() string {
	return func() string { return of[d.r.IntN(len(of))] }
}

func (d *draft) deal(of ...string) func() string {
	n := 0
	return func() string {
		if n%len(of) == 0 {
			d.r.Shuffle(len(of), func(i, k int) { of[i], of[k] = of[k], of[i] })
		}
		n++
		return of[(n-1)%len(of)]
	}
}

func (d *draft) onPostgres() {
	d.plan = append(d.plan,
		fault{d.length * 3 / 10, "database", "restart", 0},
		fault{d.length * 13 / 20, "database", "kill", longOutage})
	d.each(5500*time.Millisecond, d.turn("server", all[:servers]), d.one("kill"), 100*time.Millisecond, 2*time.Second)
	d.each(20*time.Second, d.turn("server", all[:servers]), d.one("stop"), 500*time.Millisecond, 6*time.Second)
	d.ofWorkers()
	d.each(12*time.Second, d.one("line"), d.one("cut", "hold", "slow"), 200*time.Millisecond, 4*time.Second)
	d.each(12*time.Second, d.one("backends"), d.one("terminate"), 0, 0)
	d.each(25*time.Second, d.one("servers"), d.deal("kill two", "kill all"), 100*time.Millisecond, time.Second)
	d.each(12*time.Second, d.one("tables"), d.deal("workers", "executions", "runs", "checkpoints", "idempotency"),
		500*time.Millisecond, 4*time.Second)
	d.each(30*time.Second, d.one("writes"), d.one("refuse"), 1500*time.Millisecond, 4*time.Second)
	d.each(45*time.Second, d.one("snapshot"), d.one("hold"), 5*time.Second, 15*time.Second)
	d.each(20*time.Second, d.one("pooler"), d.one("kill"), 0, time.Second)
	d.each(30*time.Second, d.one("disk"), d.one("fill"), time.Second, 4*time.Second)
	d.each(12*time.Second, d.one("keys"), d.deal("commit", "roll back"), 500*time.Millisecond, 3*time.Second)
}

// onSQLite draws the plan for one server on SQLite, with faults of the clients' connection instead
// of faults of the database's connection.
func (d *draft) onSQLite() {
	d.plan = append(d.plan, fault{d.length * 13 / 20, "server0", "kill", longOutage})
	d.each(6*time.Second, d.one("server0"), d.one("kill"), 100*time.Millisecond, 2*time.Second)
	d.each(20*time.Second, d.one("server0"), d.one("stop"), 500*time.Millisecond, 6*time.Second)
	d.ofWorkers()
	d.each(3*time.Second, d.one("line"), d.deal("cut", "half open", "hold", "hold replies", "slow", "lossy"),
		200*time.Millisecond, 2*time.Second)
}

// ofWorkers adds the faults of workers, and of the connections between far workers and their
// servers.
func (d *draft) ofWorkers() {
	d.each(2700*time.Millisecond, d.turn("worker", all), d.one("kill"), 50*time.Millisecond, 1500*time.Millisecond)
	d.each(15*time.Second, d.turn("worker", far), d.one("stop"), farTTL-time.Second, 2*farTTL)
	d.each(18*time.Second, d.turn("worker", all), d.one("end"), 50*time.Millisecond, time.Second)
	d.each(5*time.Second, d.turn("way", far), d.one("cut", "half open", "hold", "hold requests", "hold replies", "slow",
		"lossy", "refuse"),
		300*time.Millisecond, 5*time.Second)
}

// The numbers of all workers, and the numbers of the far workers.
var all, far = []int{0, 1, 2, 3, 4, 5}, []int{1, 3, 5}

// faultsOf returns the faults of one victim.
func (p plan) faultsOf(who string) plan {
	return slices.DeleteFunc(slices.Clone(p), func(f fault) bool { return f.Who != who })
}

// count returns the number of faults of a kind whose victims' names begin with who.
func (p plan) count(who, kind string) (n int) {
	for _, f := range p {
		if len(f.Who) >= len(who) && f.Who[:len(who)] == who && f.Kind == kind {
			n++
		}
	}
	return n
}

// Rule: a seed always gives the same plan, and the plan for three minutes of any seed has at least
// the number of kills and restarts that a test of the guarantees requires.
func TestThePlanKeepsItsRates(t *testing.T) {
	for seed := range uint64(100) {
		p := newPlan(onPostgres, seed, 3*time.Minute)
		if !slices.Equal(p, newPlan(onPostgres, seed, 3*time.Minute)) {
			t.Fatalf("seed %d gave two plans", seed)
		}
		for _, least := range []struct {
			who, kind string
			n         int
		}{{"server", "kill", 30}, {"worker", "kill", 60}, {"database", "kill", 1}, {"database", "restart", 1},
			{"backends", "terminate", 10}} {
			if n := p.count(least.who, least.kind); n < least.n {
				t.Errorf("seed %d: %d times %s of %s, want %d", seed, n, least.kind, least.who, least.n)
			}
		}
		if p[0].At < 0 || p[len(p)-1].At > 3*time.Minute {
			t.Errorf("seed %d plans from %s to %s", seed, p[0].At, p[len(p)-1].At)
		}
	}
}

// chance returns true once in the given number of calls on average.
func chance(r *rand.Rand, in int) bool { return r.IntN(in) == 0 }

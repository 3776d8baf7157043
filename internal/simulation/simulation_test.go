package simulation

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

var (
	seedsFlag = flag.Int("seeds", 0, "simulate this number of seeds instead of about ten seconds of them")
	forFlag   = flag.Duration("for", 0, "simulate for this duration")
	fromFlag  = flag.Uint64("from", 0, "the first seed; 0 means 1, or with -for one of the time")
	seedFlag  = flag.Uint64("seed", 0, "simulate this seed alone and print what happened")
)

// fewSeeds is the number of seeds of make test and make quick. If a run has at most fewSeeds seeds,
// the test tries each race with one fault; if it has more, with two faults, which takes minutes.
// The first fewSeeds seeds together contain each event in the list that the variable sometimes has.
const fewSeeds = 200

// budget is the time that the default run may take on all processors.
const budget = 8 * time.Second

// Every promise holds in every simulation, and with at least fewSeeds seeds each event in the list
// of the variable sometimes has happened.
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		replay(t, *seedFlag)
		return
	}
	first, many, limit := max(*fromFlag, 1), uint64(1<<62), budget
	switch {
	case *seedsFlag > 0:
		many, limit = uint64(*seedsFlag), 1<<62
	case *forFlag > 0:
		limit = *forFlag
		if *fromFlag == 0 {
			first = uint64(time.Now().Unix())
		}
	}
	v := simulateAll(t, first, many, limit)
	v.sample = v.seeds < fewSeeds
	fmt.Fprintf(os.Stdout, "\n%s\n", v)
	slices.SortFunc(v.failed, func(a, b *result) int { return int(a.seed) - int(b.seed) })
	for i, r := range v.failed {
		if i >= 3 {
			t.Errorf("and seed %d: %s", r.seed, r.violated[0])
			continue
		}
		explain(t, r)
	}
	if v.word() == "INCONCLUSIVE" {
		t.Errorf("never happened: %s", strings.Join(v.missing(), ", "))
	}
}

// twiceEvery is the distance between seeds that the test runs twice, to check that both runs give
// the same trace.
const twiceEvery = 20

// simulateAll simulates seeds on all processors, until it has simulated the given number of seeds
// or the time limit is over.
func simulateAll(t *testing.T, first, many uint64, limit time.Duration) *verdict {
	// Each simulation lasts only milliseconds and its memory becomes garbage at its end, so the tests
	// are faster if the garbage collector runs rarely.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	v, began := newVerdict(), time.Now()
	var mu sync.Mutex
	var next atomic.Uint64
	t.Run("seeds", func(t *testing.T) {
		for lane := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
				t.Parallel()
				for time.Since(began) < limit {
					n := next.Add(1) - 1
					if n >= many {
						return
					}
					r := simulate(t, first+n, nil, false)
					if n%twiceEvery == 0 {
						r.checkAgain(simulate(t, first+n, nil, false))
					}
					mu.Lock()
					v.add(r)
					mu.Unlock()
				}
			})
		}
	})
	v.took = time.Since(began)
	return v
}

// replay runs one seed and prints its whole trace.
func replay(t *testing.T, seed uint64) {
	r := simulate(t, seed, nil, true)
	v := newVerdict()
	v.sample = true
	v.add(r)
	for _, l := range r.lines {
		fmt.Fprintln(os.Stdout, l)
	}
	fmt.Fprintf(os.Stdout, "\n%s\n", v)
	for _, s := range r.violated {
		t.Error(s)
	}
}

// explain prints the violations of a failed seed, and the trace around them.
func explain(t *testing.T, r *result) {
	t.Errorf("seed %d broke %d promises; replay it with\n\tmake simulate SEED=%d", r.seed, len(r.violated), r.seed)
	for i, s := range r.violated {
		if i == 5 {
			t.Logf("… and %d more", len(r.violated)-i)
			break
		}
		t.Log(s)
	}
	lines := simulate(t, r.seed, nil, true).lines
	if words := strings.Fields(r.violated[0]); len(words) > 1 && strings.HasPrefix(words[1], "e") {
		who := strings.TrimSuffix(words[1], ":")
		lines = slices.DeleteFunc(lines, func(l string) bool {
			return !strings.Contains(l, who) && !strings.Contains(l, "fault")
		})
	}
	t.Logf("the end of its trace:\n%s", strings.Join(lines[max(0, len(lines)-60):], "\n"))
}

// The same seed gives the same simulation, down to the last decision; otherwise a failure could not
// be replayed.
func TestTheSameSeedGivesTheSameTrace(t *testing.T) {
	// Each of these seeds once gave two different traces, because two events happened at one
	// instant and a select statement took either event.
	seeds := []uint64{1795418219, 1795421359, 1795422159, 1795426379, 1795432499}
	for seed := uint64(1); seed <= 40; seed++ {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		a, b := simulate(t, seed, nil, true), simulate(t, seed, nil, true)
		if a.checkAgain(b); a.differed > 0 {
			t.Errorf("seed %d gave two traces:\n%s", seed, firstDifference(a.lines, b.lines))
		}
		for name, n := range a.twins {
			t.Errorf("seed %d: %d times two calls waited as %q: which goes first is not decided by the seed", seed,
				n, name)
		}
	}
}

// The checker of a promise catches every planted bug that breaks this promise.
func TestEveryMutantIsCaught(t *testing.T) {
	var mu sync.Mutex
	caught := make(map[string]string)
	t.Run("mutants", func(t *testing.T) {
		for _, m := range mutants {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				for seed := uint64(1); seed <= 80; seed++ {
					for _, s := range simulate(t, seed, m, false).violated {
						if strings.HasPrefix(s, m.meant+":") && strings.Contains(s, m.says) {
							mu.Lock()
							caught[m.name] = fmt.Sprintf("%-4s seed %-3d %-50s %.110s", m.meant, seed, m.name, s)
							mu.Unlock()
							return
						}
					}
				}
				t.Errorf("%s was not caught by %s in 80 seeds", m.name, m.meant)
			})
		}
	})
	for _, m := range mutants {
		fmt.Fprintln(os.Stdout, caught[m.name])
	}
	fmt.Fprintf(os.Stdout, "MUTANTS   %d of %d caught\n", len(caught), len(mutants))
}

// No checker catches a mutant that changes nothing, so the checkers catch the other mutants because
// of their bugs.
func TestAMutantThatDoesNothingIsNotCaught(t *testing.T) {
	nothing := &mutant{
		name: "nothing", before: func(*world, *mutantState, *machine.Need, *machine.Rows) {},
		after: func(*world, *mutantState, *machine.Rows, *machine.Changes) bool { return false },
		due:   func(*world, *mutantState, *store.Due) {}, read: func(store.Read, *machine.Record) {},
		ready: func(all []store.LaneHint) []store.LaneHint {
			return all
		}, request: func(*world, any) {}, reply: func(*mutantState, any) {},
	}
	for seed := uint64(1); seed <= 12; seed++ {
		for _, s := range simulate(t, seed, nothing, false).violated {
			t.Errorf("seed %d: %s", seed, s)
		}
	}
}

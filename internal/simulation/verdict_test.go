package simulation

import (
	"fmt"
	"strings"
	"time"

	"github.com/belaydev/belay/internal/testkit/promise"
)

// result is the outcome of the simulation of one seed.
type result struct {
	seed      uint64
	hash      uint64
	decided   int
	virtual   time.Duration
	commits   int
	calls     int
	ended     map[string]int // the number of executions by state
	violated  []string
	looked    map[string]int // the number of checks by promise
	faults    map[string]int
	sometimes map[string]int
	detected  []time.Duration
	twins     map[string]int
	lines     []string
	// repeated is how often the seed was run again, and differed is how often such a run gave
	// another trace.
	repeated, differed int
}

// checkAgain compares the seed's trace with the trace of another run.
func (r *result) checkAgain(other *result) {
	r.repeated++
	if r.hash != other.hash || r.decided != other.decided {
		r.differed++
		r.violated = append(r.violated, fmt.Sprintf(
			"replay: the same seed gave trace %x of %d decisions, then %x of %d", r.hash, r.decided, other.hash,
			other.decided))
	}
}

// judgeAll runs every checker on the history.
func (w *world) judgeAll(open []string) *result {
	b := w.newBook()
	r := &result{
		seed: w.seed, hash: w.trace.hash.Sum64(), decided: w.decided, virtual: w.gate.now(), commits: len(b.commits),
		calls: len(b.calls),
		ended: make(map[string]int), looked: make(map[string]int), faults: b.faults, sometimes: b.sometimes,
		twins: w.gate.twins, lines: w.trace.lines,
	}
	for _, f := range b.inspect() {
		r.looked[f.Promise] = f.Looked
		r.violated = append(r.violated, f.Violated...)
	}
	for _, o := range open {
		r.violated = append(r.violated, "G5: "+o)
	}
	for _, e := range b.errors {
		r.violated = append(r.violated, "G11: "+e)
	}
	for _, s := range b.stories {
		r.ended[s.last().State.String()]++
	}
	b.tally()
	r.detected = b.detected
	return r
}

// verdict is the outcome of the simulations of many seeds.
type verdict struct {
	first, last uint64
	seeds       int
	took        time.Duration
	virtual     time.Duration
	decided     int
	commits     int
	calls       int
	ended       map[string]int
	looked      map[string]int
	faults      map[string]int
	sometimes   map[string]int
	detected    []time.Duration
	failed      []*result
	repeated    int
	differed    int
	// sample says that there are too few seeds to expect every event.
	sample bool
}

func newVerdict() *verdict {
	return &verdict{
		ended: make(map[string]int), looked: make(map[string]int), faults: make(map[string]int),
		sometimes: make(map[string]int),
	}
}

func (v *verdict) add(r *result) {
	if v.seeds == 0 || r.seed < v.first {
		v.first = r.seed
	}
	v.last = max(v.last, r.seed)
	v.seeds++
	v.virtual += r.virtual
	v.decided += r.decided
	v.commits += r.commits
	v.calls += r.calls
	for into, from := range map[*map[string]int]map[string]int{
		&v.ended: r.ended, &v.looked: r.looked, &v.faults: r.faults, &v.sometimes: r.sometimes,
	} {
		for k, n := range from {
			(*into)[k] += n
		}
	}
	v.detected = append(v.detected, r.detected...)
	v.repeated += r.repeated
	v.differed += r.differed
	if len(r.violated) > 0 {
		v.failed = append(v.failed, r)
	}
}

// missing lists the events that must happen at least once and have not happened.
func (v *verdict) missing() []string { return promise.Missing(sometimes, v.sometimes) }

// word returns the verdict in one word.
func (v *verdict) word() string {
	switch {
	case len(v.failed) > 0:
		return "FAIL"
	case len(v.missing()) > 0 && !v.sample:
		return "INCONCLUSIVE"
	}
	return "PASS"
}

// String formats the verdict for people.
func (v *verdict) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s%s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "VERDICT   %s  seeds %d to %d\n", v.word(), v.first, v.last)
	line("load", "%d simulations of %s in %s: %d decisions, %d commits, %d calls; executions: %s",
		v.seeds, (v.virtual / time.Duration(max(v.seeds, 1))).Round(time.Second), v.took.Round(100*time.Millisecond),
		v.decided, v.commits, v.calls, promise.List(v.ended))
	line("faults", "%d of %d kinds: %s", promise.Sum(v.faults), len(v.faults), promise.List(v.faults))
	for _, c := range checks {
		n, bad := v.looked[c.promise], 0
		for _, r := range v.failed {
			for _, s := range r.violated {
				if strings.HasPrefix(s, c.promise+":") {
					bad++
				}
			}
		}
		if bad > 0 {
			line(c.promise, "BROKEN %d times; %d %s", bad, n, c.what)
		} else {
			line(c.promise, "ok %d %s", n, c.what)
		}
	}
	line("detect", "undisturbed: TTL + %s  (bound TTL + %s)", promise.Quantiles(v.detected), promptly)
	line("sometimes", "%d of %d: %s", len(sometimes)-len(v.missing()), len(sometimes), promise.List(v.sometimes,
		sometimes...))
	if missing := v.missing(); len(missing) > 0 && !v.sample {
		line("never", "%s", strings.Join(missing, ", "))
	}
	line("replay", "make simulate SEED=%d  (%d seeds were run twice, %d gave another trace)", v.replay(), v.repeated,
		v.differed)
	return b.String()
}

func (v *verdict) replay() uint64 {
	if len(v.failed) > 0 {
		return v.failed[0].seed
	}
	return v.first
}

package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay/internal/testkit/promise"
)

// The verdict in one word.
const (
	passed       = "PASS"
	failed       = "FAIL"
	inconclusive = "INCONCLUSIVE"
)

// sometimes lists the events that must happen at least once in a run. If no event of a run could
// have broken a promise, the run proves nothing about that promise.
var sometimes = []string{
	"cancel raced with the end", "cancelled while running", "child's end told", "command frozen and thawed",
	"dead letter", "death proven", "execution found waiting at the limit", "grace written",
	"key with another body refused", "large checkpoint kept", "loss seen by a watcher", "picked up by an idle worker",
	"picked up by the only worker that can", "released", "repeated write answered", "resumed from checkpoints",
	"poison failed", "retried", "run again", "run lost",
	"run under the limit", "session expired", "stale write refused",
	"submission over more than 100 lanes", "submission replayed",
	"unknown, and it had happened", "unknown, and it had not",
	"watch broken off and resumed", "worker ended in order",
	"cost reported again", "cost of a refused write", "cost of a write without an answer",
	"cost of a child charged to its parent", "budget found spent", "root resumed by a raise",
	"child resumed after a raise",
	"run in a mode", "swap of a mode", "run yielded its resource", "change of the mode run again",
	"execution found waiting for a mode", "resource found while its mode changed",
}

// sometimesOn lists further such events that can happen on one store only.
var sometimesOn = map[string][]string{
	onPostgres: {"submission committed in a transaction", "submission rolled back in a transaction",
		"waited for a locked table"},
}

func (r *record) sometimesHere() []string { return slices.Concat(sometimes, sometimesOn[r.Store]) }

// verdict is the result of a run.
type verdict struct {
	*book
	findings []*finding
	violated []string
	planted  planted
}

// judge runs the checkers on the history, and on copies of a part of it with planted bugs. It also
// notes which events happened; verdict.missing returns the required events that did not happen.
func judge(r *record) *verdict {
	v := &verdict{book: newBook(r), planted: plant(r)}
	maps.Copy(v.sometimes, r.Times)
	v.findings = v.inspect(checks...)
	for _, f := range v.findings {
		v.violated = append(v.violated, f.Violated...)
	}
	v.violated = append(v.violated, v.planted.escaped...)
	return v
}

// missing returns the events that must happen at least once and did not happen.
func (v *verdict) missing() []string {
	never := promise.Missing(v.sometimesHere(), v.sometimes)
	never = append(never, v.unmet()...)
	for _, name := range v.planted.without {
		never = append(never, "a place for the planted bug "+name)
	}
	return never
}

func (v *verdict) word() string {
	switch {
	case len(v.violated) > 0:
		return failed
	case len(v.missing()) > 0:
		return inconclusive
	}
	return passed
}

// String formats the verdict as text.
func (v *verdict) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "VERDICT   %s  %s, seed %d, %s\n", v.word(), v.Store, v.Seed, v.For)
	line("replay", "make chaos STORE=%s SEED=%d FOR=%s", v.Store, v.Seed, v.For)
	line("load", "%s", v.loadText())
	line("faults", "%d of %d kinds: %s", promise.Sum(v.Faults), len(v.Faults), promise.List(v.Faults))
	if len(v.Cannot) > 0 {
		line("", "not here: %s", strings.Join(v.Cannot, ", "))
	}
	line("healed", "all settled %s after the last fault", v.Settled.Sub(v.Healed).Round(10*time.Millisecond))
	line("bad", "%d inputs, answered with: %s", promise.Sum(v.Bad), promise.List(v.Bad))
	for i, f := range v.findings {
		if n := len(f.Violated); n > 0 {
			line(f.Promise, "BROKEN %d times; %d %s", n, f.Looked, checks[i].what)
		} else {
			line(f.Promise, "ok %d %s", f.Looked, checks[i].what)
		}
	}
	line("detect", "TTL + %s (bound TTL + %s); where the store could not: TTL + %s", promise.Quantiles(v.expired),
		promptly, promise.Quantiles(v.hindered))
	line("", "undisturbed: deaths proven after %s; losses seen by watchers after %s (bound %s)",
		promise.Quantiles(v.proven), promise.Quantiles(v.noticed), promptly)
	line("pick-up", "undisturbed, with an idle worker: after %s (bound %s)", promise.Quantiles(v.picked), pickedUpBy)
	if x := v.Retired; x != nil {
		line("retired", "%d executions deleted in %s under kills", x.Ended-x.Left+len(x.Waiting),
			x.Took.Round(10*time.Millisecond))
	}
	line("frozen", "commands, for at most: %s", strings.Join(v.longestFreeze(), ", "))
	line("sometimes", "%s", promise.List(v.sometimes, v.sometimesHere()...))
	if missing := v.missing(); len(missing) > 0 {
		line("never", "%s", strings.Join(missing, ", "))
	}
	line("mutants", "%d of %d planted bugs caught", v.planted.caught, len(mutantsOn(v.Store)))
	return b.String()
}

// loadText describes the amount of work and its results.
func (v *verdict) loadText() string {
	roots, under, events := 0, 0, 0
	ended := make(map[string]int)
	for _, s := range v.stories {
		events += len(s.Events)
		ended[s.Execution.State.String()]++
		if x := &s.Execution; s.IsRoot() && x.Workflow == "play" && x.CreatedAt.After(v.Began) {
			roots++
			if x.State.Terminal() && x.FinishedAt.Before(v.Healed) {
				under++
			}
		}
	}
	took := v.Healed.Sub(v.Began).Seconds()
	return fmt.Sprintf("%.0f executions/s measured, %.0f/s asked, %.0f/s submitted and %.0f/s ended under faults; "+
		"in all %d executions (%s), %d events, %d calls",
		v.Load.Measured, v.Load.Asked, float64(roots)/took, float64(under)/took, len(v.stories), promise.List(ended),
		events, len(v.Told))
}

package chaos

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// check is the checker of one promise.
type check struct {
	promise string
	what    string // the things that the checker counts, in words for the verdict
	// shared is the checker in package promise, which knows executions, sessions and calls. own
	// checks the data that only package chaos has, such as faults and bounds of time. Either may be
	// nil.
	shared func(*promise.Finding)
	own    func(*finding)
}

// checks are all checkers, in the order of the promises.
var checks = []check{
	{"G1", "claims, one writer each", promise.G1, nil},
	{"G2", "effects by owners, none stale", promise.G2, g2},
	{"G3", "acknowledged writes, none lost", promise.G3, g3},
	{"G4", "transitions, each whole", promise.G4, nil},
	{"G5", "executions looked at, none in limbo", nil, g5},
	{"G6", "sessions declared lost in time", nil, g6},
	{"G7", "ends, each final", promise.G7, nil},
	{"G8", "retries and sleeps on their terms", promise.G8, nil},
	{"G9", "answers by idempotency key", promise.G9, nil},
	{"G10", "roots, dead letters in balance", promise.G10, g10},
	{"G11", "orderly ends of workers", promise.G11, nil},
	{"G13", "uses of a resource, all in its mode", promise.G13, g13},
	{"G15", "events, seen without a gap", promise.G15, nil},
	{"G16", "runs and looks at gates, none beyond their limits", promise.G16, g16},
	{"G17", "costs and looks at budgets, each counted once", promise.G17, g17},
	{"poison", "losses, none held against a neighbour", nil, poison},
	{"pickup", "first claims, prompt where a worker was idle", nil, pickup},
	{"retention", "executions, deleted whole", nil, retention},
	{"agents", "processes of commands, undisturbed", nil, agents},
	{"inputs", "bad inputs, refused", nil, inputs},
}

// finding is the result that one checker has for one book (the record of a run).
type finding struct {
	*book
	*promise.Finding
}

// inspect runs the given checkers on a book (the record of a run).
func (b *book) inspect(by ...check) []*finding {
	out, public := make([]*finding, len(by)), b.public()
	for i, c := range by {
		out[i] = &finding{b, &promise.Finding{History: public, Promise: c.promise}}
		if c.shared != nil {
			c.shared(out[i].Finding)
		}
		if c.own != nil {
			c.own(out[i])
		}
	}
	return out
}

// told passes to the function each every recorded call that has the given kind and ended in the
// given way.
func (b *book) told(kind string, end promise.Ending, each func(*entry)) {
	for i := range b.Told {
		if e := &b.Told[i]; e.Kind == kind && e.End == end {
			each(e)
		}
	}
}

// clock is the format of times in violations.
const clock = "15:04:05.000000"

func succeeded(x *belay.Execution) bool { return x.State == belay.Succeeded }

package simulation

import (
	"fmt"

	"github.com/belaydev/belay/internal/testkit/promise"
)

// check is the checker of one promise.
type check struct {
	promise string
	// what names the things that the checker counts, for the text of the verdict.
	what string
	// shared checks the public history, with code of package promise; own checks commits and rows.
	// A checker may have only one of the two functions, and the other one is nil.
	shared func(*promise.Finding)
	own    func(*finding)
}

// checks lists all checkers in the order of the promises.
var checks = []check{
	{"G1", "claims, with one writer each", promise.G1, nil},
	{"G2", "effects by owners, none of them stale", promise.G2, g2},
	{"G3", "acknowledged writes, none of them lost", promise.G3, g3},
	{"G4", "transitions, each of them atomic", promise.G4, g4},
	{"G5", "moments, without an execution in limbo", nil, g5},
	{"G6", "sessions ended in time", nil, g6},
	{"G7", "ends, each of them final", promise.G7, g7},
	{"G8", "retries on their terms", promise.G8, g8},
	{"G9", "answers by idempotency key and content", promise.G9, g9},
	{"G10", "roots, with their dead letters", promise.G10, g10},
	{"G11", "orderly ends of workers", promise.G11, g11},
	{"G12", "claims, in order", nil, g12},
	{"G13", "runs that use a resource in its mode", promise.G13, g13},
	{"G15", "events, without a gap", promise.G15, nil},
	{"G16", "places, claims and rows of gates", promise.G16, g16},
	{"G17", "costs, charged once, and moments of budgets", promise.G17, g17},
	{"G18", "slots of schedules, started once, and changes of schedules", nil, g18},
	{"G19", "ends of executions with notifications, each reported once", nil, g19},
	{"retention", "ends, deleted when their retention was over", nil, retention},
}

// finding is the result of one checker for one book, the history of a simulation.
type finding struct {
	*book
	*promise.Finding
}

// violation notes a broken promise, and the commit that broke it.
func (f *finding) violation(s *story, c *commit, format string, args ...any) {
	text, told := fmt.Sprintf(format, args...), (*promise.Story)(nil)
	if c != nil {
		text += fmt.Sprintf(" (commit %d at %s by %s)", c.n, c.real, c.node)
	}
	if s != nil {
		told = s.Story
	}
	f.Violation(told, "%s", text)
}

// inspect runs every checker on a book, the history of a simulation.
func (b *book) inspect() []*finding {
	out, public := make([]*finding, len(checks)), b.public()
	for i, c := range checks {
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

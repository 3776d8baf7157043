package simulation

import (
	"fmt"
)

// check is the checker of one promise.
type check struct {
	promise string
	// what is counted, for the verdict.
	what string
	find func(*finding)
}

// checks are all there are, in the order of the promises.
var checks = []check{
	{"G1", "claims, one writer each", g1},
	{"G2", "effects by owners, none stale", g2},
	{"G3", "acknowledged writes, none lost", g3},
	{"G4", "transitions, each whole", g4},
	{"G5", "moments, none in limbo", g5},
	{"G6", "sessions given up in time", g6},
	{"G7", "ends, each final", g7},
	{"G8", "retries on their terms", g8},
	{"G9", "answers by idempotency key", g9},
	{"G10", "roots, dead letters in balance", g10},
	{"G11", "orderly ends of workers", g11},
	{"G12", "claims in order", g12},
	{"G15", "events, seen without a gap", g15},
}

// finding is what one checker found in one book.
type finding struct {
	*book
	promise  string
	looked   int
	violated []string
}

// ok counts what was looked at and found in order.
func (f *finding) ok() { f.looked++ }

// violation notes a broken promise.
func (f *finding) violation(s *story, c *commit, format string, args ...any) {
	text := f.promise + ": "
	if s != nil {
		text += short(s.id) + ": "
	}
	text += fmt.Sprintf(format, args...)
	if c != nil {
		text += fmt.Sprintf(" (commit %d at %s by %s)", c.n, c.real, c.node)
	}
	f.violated = append(f.violated, text)
}

// inspect runs every checker on a book.
func (b *book) inspect() []*finding {
	out := make([]*finding, len(checks))
	for i, c := range checks {
		out[i] = &finding{book: b, promise: c.promise}
		c.find(out[i])
	}
	return out
}

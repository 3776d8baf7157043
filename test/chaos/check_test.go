package chaos

import (
	"fmt"

	"github.com/belaydev/belay"
)

// check is the checker of one promise.
type check struct {
	promise string
	what    string // is counted, for the verdict
	find    func(*finding)
}

// checks are all there are, in the order of the promises.
var checks = []check{
	{"G1", "claims, one writer each", g1},
	{"G2", "effects by owners, none stale", g2},
	{"G3", "acknowledged writes, none lost", g3},
	{"G4", "transitions, each whole", g4},
	{"G5", "executions looked at, none in limbo", g5},
	{"G6", "sessions given up in time", g6},
	{"G7", "ends, each final", g7},
	{"G8", "retries and sleeps on their terms", g8},
	{"G9", "answers by idempotency key", g9},
	{"G10", "roots, dead letters in balance", g10},
	{"G11", "orderly ends of workers", g11},
	{"G15", "events, seen without a gap", g15},
	{"poison", "losses, none held against a neighbour", poison},
	{"pickup", "first claims, prompt where a worker was idle", pickup},
	{"retention", "executions, deleted whole", retention},
	{"agents", "processes of commands, undisturbed", agents},
	{"inputs", "bad inputs, refused", inputs},
}

// finding is what one checker found in one book.
type finding struct {
	*book
	promise  string
	looked   int
	violated []string
	answered map[belay.OpID]bool // what somebody was told the end of, see g3
}

// ok counts what was looked at and found in order.
func (f *finding) ok() { f.looked++ }

// count counts something that must happen at least sometimes.
func (f *finding) count(what string) { f.sometimes[what]++ }

// violation notes a broken promise.
func (f *finding) violation(s *story, format string, args ...any) {
	text := f.promise + ": "
	if s != nil {
		text += s.id.String() + ": "
	}
	f.violated = append(f.violated, text+fmt.Sprintf(format, args...))
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

// told are the calls of a kind that ended in a way.
func (f *finding) told(kind string, end ending, each func(*entry)) {
	for i := range f.Told {
		if e := &f.Told[i]; e.Kind == kind && e.End == end {
			each(e)
		}
	}
}

// storyOf is the story that an entry is about; one that is not there is a broken
// promise if the entry was acknowledged.
func (f *finding) storyOf(e *entry) *story {
	s := f.byID[e.Execution]
	if s == nil && e.End == ok {
		f.violation(nil, "%s was told %s of %s at %s, which is not there", e.Who, e.Kind, e.Execution, e.To.Format(clock))
	}
	return s
}

// clock is how moments are shown.
const clock = "15:04:05.000000"

func succeeded(x *belay.Execution) bool { return x.State == belay.Succeeded }

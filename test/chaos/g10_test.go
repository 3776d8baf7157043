package chaos

import (
	"github.com/belaydev/belay"
)

// g10: dead letters are conserved. A root that failed has exactly one of that
// generation, written in the failing commit, and resolved if it was reopened;
// nothing else has one. The books balance: what was accepted is in one state, and
// the store counts the same.
func g10(f *finding) {
	type key struct {
		id         belay.ExecutionID
		generation int
	}
	letters := make(map[key]*letter)
	for i := range f.Letters {
		l := &f.Letters[i]
		if letters[key{l.Execution, l.Generation}] != nil {
			f.violation(f.byID[l.Execution], "generation %d has two dead letters", l.Generation)
		}
		letters[key{l.Execution, l.Generation}] = l
		f.count("dead letter")
	}
	states := make(map[string]int)
	for _, s := range f.stories {
		states[s.Execution.State.String()]++
		if s.isRoot() {
			f.ok()
		}
		for _, g := range generations(s) {
			l := letters[key{s.id, g.n}]
			delete(letters, key{s.id, g.n})
			wanted := g.failed != nil && s.isRoot() && (s.Execution.Policy == nil || !s.Execution.Policy.NoDeadLetters)
			switch {
			case wanted != (l != nil):
				f.violation(s, "generation %d failed: %t; it has a dead letter: %t", g.n, wanted, l != nil)
			case l != nil && (l.Seq != g.failed.Seq || !l.At.Equal(g.failed.At)):
				f.violation(s, "generation %d failed at seq %d and its dead letter was written at seq %d", g.n, g.failed.Seq, l.Seq)
			case l != nil && (l.Resolution != "") != g.reopened:
				f.violation(s, "generation %d was reopened: %t; its dead letter is resolved as %q", g.n, g.reopened, l.Resolution)
			}
		}
	}
	for k := range letters {
		f.violation(f.byID[k.id], "there is a dead letter of generation %d, which is not there", k.generation)
	}
	for state, n := range f.States {
		if states[state] != n {
			f.violation(nil, "%d executions are %s in the store; %d are listed", n, state, states[state])
		}
		delete(states, state)
	}
	for state, n := range states {
		f.violation(nil, "%d executions are listed as %s that the store does not count", n, state)
	}
}

// generation is one life of an execution.
type generation struct {
	n        int
	failed   *belay.Event // nil unless it ended as failed
	reopened bool
}

func generations(s *story) []generation {
	all := []generation{{n: 1}}
	cancelled := false
	for i := range s.Events {
		ev, now := &s.Events[i], &all[len(all)-1]
		switch {
		case ev.Kind == "retry" || ev.Kind == "requeue":
			now.reopened, cancelled = true, false
			all = append(all, generation{n: now.n + 1})
		case ev.Kind == string(belay.ActionCancel):
			cancelled = true
		case ev.Final && !cancelled && ev.Kind != belay.OutcomeSucceeded.String() && ev.Kind != belay.OutcomeCancelled.String():
			now.failed = ev
		}
	}
	return all
}

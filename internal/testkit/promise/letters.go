package promise

import "github.com/belaydev/belay"

// G10 checks that dead letters are conserved. A root execution that failed has exactly one dead
// letter for the failed generation. The commit of the failure wrote the letter, unless the
// execution's policy switches dead letters off, and the letter is resolved if the execution was
// reopened. No other execution has a dead letter.
func G10(f *Finding) {
	for _, s := range f.History.Stories {
		if s.IsRoot() {
			f.OK()
		}
		if !f.History.NoLetters {
			f.letters(s)
		}
	}
}

func (f *Finding) letters(s *Story) {
	letters := make(map[int]*Letter)
	for i := range s.Letters {
		l := &s.Letters[i]
		if letters[l.Generation] != nil {
			f.Violation(s, "generation %d has two dead letters", l.Generation)
		}
		if l.Generation < 1 || l.Generation > len(s.lives) {
			f.Violation(s, "there is a dead letter of generation %d, which does not exist", l.Generation)
		}
		letters[l.Generation] = l
		f.Count("dead letter")
	}
	for i, g := range s.lives {
		l, failed := letters[i+1], g.end != nil && g.state == belay.Failed
		if (failed && s.wantsLetters()) != (l != nil) {
			f.Violation(s, "generation %d failed: %t; it has a dead letter: %t", i+1, failed, l != nil)
			continue
		}
		if l == nil {
			continue
		}
		token := belay.Token(0)
		if r := s.Run(g.end.Token); r != nil && r.Started != nil {
			token = r.Token
		}
		if l.Seq != g.end.Seq || l.Token != token || !l.At.Equal(g.end.At) {
			f.Violation(s, "generation %d failed at seq %d at %s, and its dead letter of seq %d was written at "+
				"%s; the tokens are %d and %d",
				i+1, g.end.Seq, g.end.At.Format(clock), l.Seq, l.At.Format(clock), token, l.Token)
		}
		reopened := l.Resolution != "" && !l.byHand()
		if g.reopened && l.Resolution == "" || reopened && !g.reopened {
			f.Violation(s, "generation %d was reopened: %t; its dead letter is resolved as %q", i+1, g.reopened,
				l.Resolution)
		}
	}
}

// byHand reports whether a person resolved the dead letter without reopening the execution.
func (l *Letter) byHand() bool {
	return l.Resolution == belay.ResolvedFixed || l.Resolution == belay.ResolvedDiscarded
}

// openLetter reports whether the dead letter of the story's newest failure is not resolved.
func (s *Story) openLetter() bool {
	for i := range s.Letters {
		if l := &s.Letters[i]; l.Generation == len(s.lives) && l.byHand() {
			return false
		}
	}
	return s.Execution.State == belay.Failed && s.wantsLetters()
}

// Books compares two counts of the store (states, the number of executions in each state, and open,
// the number of open dead letters) with the executions of the history. Deleted executions do not
// count.
func (f *Finding) Books(states map[belay.State]int64, open int64) {
	have, letters := make(map[belay.State]int64), int64(0)
	for _, s := range f.History.Stories {
		if s.Deleted {
			continue
		}
		have[s.Execution.State]++
		if s.openLetter() {
			letters++
		}
	}
	for state := belay.Pending; state <= belay.Cancelled; state++ {
		if states[state] != have[state] {
			f.Violation(nil, "the store counts %d executions that are %s; %d exist", states[state], state,
				have[state])
		}
	}
	if open != letters {
		f.Violation(nil, "the store counts %d open dead letters; there should be %d", open, letters)
	}
}

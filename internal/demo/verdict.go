package demo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// facts are what a demo has seen, told by the store and counted outside of
// it.
type facts struct {
	Execution belay.ExecutionID
	State     belay.State
	Error     *belay.Failure
	Events    []belay.Event
	Ledger    []ledgerLine

	Killed    time.Time // when, by this machine's clock
	Victim    string    // whom
	OldToken  belay.Token
	Lost      time.Time // when the store gave the victim up
	TakenOver time.Time
	Successor string
	NewToken  belay.Token
	// Late is what a write with the old token came to, once another had it.
	Late error
}

// breaches are the promises that did not hold.
func (f *facts) breaches() []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if f.State != belay.Succeeded {
		why := ""
		if f.Error != nil {
			why = ": " + f.Error.Message
		}
		add("the execution ended %s%s", f.State, why)
	}
	for _, s := range scripts {
		f.checkStep(s.name, add)
	}
	f.checkTokens(add)
	if f.Killed.IsZero() {
		add("no worker was killed")
		return out
	}
	if f.Lost.IsZero() {
		add("the store never gave %s up", f.Victim)
	}
	if f.NewToken <= f.OldToken {
		add("the token was %d before the kill and %d after it", f.OldToken, f.NewToken)
	}
	if !errors.Is(f.Late, belay.ErrLeaseLost) {
		add("the late write with token %d was not refused as one of a lost lease: %v", f.OldToken, f.Late)
	}
	return out
}

// checkStep: a step's result is saved once, and what was saved is not run again.
func (f *facts) checkStep(name string, add func(string, ...any)) {
	saved := f.saved(name)
	if len(saved) != 1 {
		add("the result of step %s was saved %d times", name, len(saved))
		return
	}
	by := saved[0].Token
	if name == victim && by <= f.OldToken {
		add("step %s was saved with token %d, which its dead worker had", name, by)
	}
	ended := 0
	for _, l := range f.Ledger {
		if l.Step != name {
			continue
		}
		if l.Token > by {
			add("step %s was run with token %d after its result was saved with token %d", name, l.Token, by)
		}
		if l.What == "end" && l.Token == by {
			ended++
		}
	}
	if ended != 1 {
		add("step %s ran to its end %d times under the token that saved it", name, ended)
	}
}

// checkTokens: each claim has a newer token, and only the newest one writes.
func (f *facts) checkTokens(add func(string, ...any)) {
	var newest belay.Token
	for _, ev := range f.Events {
		switch {
		case ev.Kind == "started" && ev.Token <= newest:
			add("token %d was given after token %d", ev.Token, newest)
		case ev.Kind == "started":
			newest = ev.Token
		case ev.Kind == "step" && ev.Token != newest:
			add("%s was written with token %d while %d was the newest", ev.Name, ev.Token, newest)
		}
	}
}

// saved are the events in which a step's result was saved.
func (f *facts) saved(name string) []belay.Event {
	var out []belay.Event
	for _, ev := range f.Events {
		if ev.Kind == "step" && ev.Name == stepKey(name) {
			out = append(out, ev)
		}
	}
	return out
}

// stepOf is what became of one step.
type stepOf struct {
	Name string `json:"name"`
	// Begun are the workers that began it, each with its token, as the step
	// noted itself outside of the store.
	Begun   []ledgerLine `json:"begun"`
	SavedBy string       `json:"saved_by,omitempty"`
	Token   belay.Token  `json:"token,omitempty"`
}

// steps say who did what.
func (f *facts) steps() []stepOf {
	out := make([]stepOf, len(scripts))
	for i, s := range scripts {
		out[i].Name = s.name
		for _, ev := range f.saved(s.name) {
			out[i].Token = ev.Token
		}
		for _, l := range f.Ledger {
			if l.Step != s.name {
				continue
			}
			if l.What == "begin" {
				out[i].Begun = append(out[i].Begun, l)
			}
			if l.What == "end" && l.Token == out[i].Token {
				out[i].SavedBy = l.Worker
			}
		}
		slices.SortStableFunc(out[i].Begun, func(a, b ledgerLine) int { return cmp.Compare(a.Token, b.Token) })
	}
	return out
}

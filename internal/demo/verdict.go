package demo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// facts are all observations that a demo has made, in the store's history and in the ledger outside
// the store.
type facts struct {
	Execution belay.ExecutionID
	State     belay.State
	Error     *belay.Failure
	Events    []belay.Event
	Ledger    []ledgerLine

	Killed    time.Time // when a worker was killed, by this machine's clock
	Victim    string    // the name of the killed worker
	OldToken  belay.Token
	Lost      time.Time // when the store declared the killed worker lost
	TakenOver time.Time
	Successor string
	NewToken  belay.Token
	// Late is the error of the write with the old token after the takeover.
	Late error
}

// breaches describes the promises that Belay has broken.
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
		add("the store never declared %s lost", f.Victim)
	}
	if f.NewToken <= f.OldToken {
		add("the token was %d before the kill and %d after it", f.OldToken, f.NewToken)
	}
	if !errors.Is(f.Late, belay.ErrLeaseLost) {
		add("the late write with token %d was not refused as one of a lost lease: %v", f.OldToken, f.Late)
	}
	return out
}

// checkStep checks that the result of a step was saved exactly once, and that the step did not run
// again afterwards.
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

// checkTokens checks that each claim has a newer token than the claims before, and that only the
// owner with the newest token writes.
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

// saved returns the events in which a step's result was saved.
func (f *facts) saved(name string) []belay.Event {
	var out []belay.Event
	for _, ev := range f.Events {
		if ev.Kind == "step" && ev.Name == stepKey(name) {
			out = append(out, ev)
		}
	}
	return out
}

// stepOf is the result of one step.
type stepOf struct {
	Name string `json:"name"`
	// Begun are the ledger's lines about each beginning of the step, with worker and token.
	Begun   []ledgerLine `json:"begun"`
	SavedBy string       `json:"saved_by,omitempty"`
	Token   belay.Token  `json:"token,omitempty"`
}

// steps returns which worker began and saved each step.
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

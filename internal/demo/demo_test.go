package demo

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// good makes the facts of a demo in which Belay kept every promise.
func good() *facts {
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	f := &facts{
		State: belay.Succeeded, Killed: began.Add(2 * time.Second), Victim: "anna", OldToken: 1,
		Lost:      began.Add(3 * time.Second),
		TakenOver: began.Add(3100 * time.Millisecond), Successor: "bert", NewToken: 2,
		Late: &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseReassigned, Message: "the lease is lost"},
	}
	put := func(kind, name string, token belay.Token) {
		f.Events = append(f.Events, belay.Event{Seq: int64(len(f.Events) + 1), Kind: kind, Name: name, Token: token})
	}
	note := func(what, step string, token belay.Token, who string) {
		f.Ledger = append(f.Ledger, ledgerLine{what, step, token, who})
	}
	put("submitted", "command", 0)
	put("started", "", 1)
	put("step", "checkout", 1)
	for i, s := range scripts {
		token, who := belay.Token(1), "anna"
		if i >= 2 {
			token, who = 2, "bert"
		}
		if s.name == victim {
			note("begin", s.name, 1, "anna")
			put("lost", "", 1)
			put("started", "", 2)
		}
		note("begin", s.name, token, who)
		note("end", s.name, token, who)
		put("step", stepKey(s.name), token)
	}
	put("succeeded", "", 2)
	return f
}

// Rule: the demo finds no breach in good facts, and says which worker ran which step.
func TestTheDemoFindsNoBreachInGoodFacts(t *testing.T) {
	f := good()
	if b := f.breaches(); len(b) > 0 {
		t.Errorf("breaches in good facts: %v", b)
	}
	var who []string
	for _, s := range f.steps() {
		who = append(who, fmt.Sprintf("%d %s %d", len(s.Begun), s.SavedBy, s.Token))
	}
	if want := []string{"1 anna 1", "1 anna 1", "2 bert 2", "1 bert 2", "1 bert 2"}; !slices.Equal(who, want) {
		t.Errorf("the workers of the steps are %v, want %v", who, want)
	}
}

// Rule: the demo finds a breach of each promise that it shows.
func TestTheDemoFindsEachBreach(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*facts)
		says   string
	}{
		"a finished step runs again": {
			func(f *facts) { f.Ledger = append(f.Ledger, ledgerLine{"begin", "survey", 2, "bert"}) },
			"step survey was run with token 2 after its result was saved with token 1",
		},
		"a result is saved twice": {
			func(f *facts) {
				f.Events = append(f.Events, belay.Event{Kind: "step", Name: stepKey("report"), Token: 2})
			},
			"the result of step report was saved 2 times",
		},
		"a result is missing": {
			func(f *facts) {
				f.Events = slices.DeleteFunc(f.Events, func(ev belay.Event) bool { return ev.Name == stepKey("check") })
			},
			"the result of step check was saved 0 times",
		},
		"the dead worker's result counts": {
			func(f *facts) {
				for i := range f.Events {
					if f.Events[i].Name == stepKey("review") {
						f.Events[i].Token = 1
					}
				}
			},
			"step review was saved with token 1, which its dead worker had",
		},
		"a step ran twice to its end": {
			func(f *facts) { f.Ledger = append(f.Ledger, ledgerLine{"end", "check", 2, "bert"}) },
			"step check ran to its end 2 times",
		},
		"the same token twice": {
			func(f *facts) {
				for i := range f.Events {
					if f.Events[i].Kind == "started" {
						f.Events[i].Token = 1
					}
				}
			},
			"token 1 was given after token 1",
		},
		"no newer token": {func(f *facts) { f.NewToken = 1 }, "the token was 1 before the kill and 1 after it"},
		"a late write is accepted": {
			func(f *facts) { f.Late = errAccepted },
			"was not refused as one of a lost lease: it was accepted",
		},
		"a late write is refused for another reason": {
			func(f *facts) { f.Late = &belay.Error{Code: belay.CodeUnavailable, Message: "try again"} },
			"was not refused as one of a lost lease",
		},
		"no kill": {func(f *facts) { f.Killed = time.Time{} }, "no worker was killed"},
		"no loss": {func(f *facts) { f.Lost = time.Time{} }, "the store never declared anna lost"},
		"the execution fails": {func(f *facts) {
			f.State, f.Error = belay.Failed, &belay.Failure{Message: "no disk"}
		}, "ended failed: no disk"},
	} {
		f := good()
		c.damage(f)
		if got := strings.Join(f.breaches(), "\n"); !strings.Contains(got, c.says) {
			t.Errorf("%s: the demo says %q, want %q", name, got, c.says)
		}
	}
}

// Rule: the exit code is 0 if Belay kept every promise and 70 if Belay broke a promise, with output
// as text and as JSON.
func TestTheExitCodeOfTheDemo(t *testing.T) {
	for _, output := range []string{"text", "json"} {
		var out bytes.Buffer
		o := Options{Out: &out, Terminal: &out, JSON: output == "json"}
		d := &demo{opt: o, tell: newTeller(o), facts: *good()}
		if err := d.judge(); err != nil {
			t.Errorf("-o %s: a demo without a breach: %v", output, err)
		}
		if s := out.String(); !strings.Contains(s, "bert") || strings.Contains(s, "\x1b") {
			t.Errorf("-o %s writes %q", output, s)
		}
		d.facts.Late = errAccepted
		if code := belay.CodeOf(d.judge()).Exit(); code != 70 {
			t.Errorf("-o %s: a demo that broke a promise ends with %d, want 70", output, code)
		}
	}
}

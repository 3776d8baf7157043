package postgres

import (
	"slices"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// parseStates reads the messages that servers send, and reads or refuses every other text without a panic.
func FuzzParseStates(f *testing.F) {
	all := make([]store.StateHint, 3*statesAtATime/2)
	for i := range all {
		all[i] = store.StateHint{
			Execution: belay.ExecutionID{15: byte(i)}, From: belay.Pending, State: belay.Running, Seq: int64(i + 1),
			Generation: 1, At: 1 << 55,
		}
	}
	var back []store.StateHint
	for _, text := range stateTexts([16]byte{9}, all) {
		server, kind, some, err := parseStates(text)
		if err != nil || server != ([16]byte{9}) || kind != stateChanges || len(text) >= 8000 {
			f.Fatalf("%d bytes: kind %d of %x, %v", len(text), kind, server, err)
		}
		back = append(back, some...)
		f.Add(text)
	}
	if !slices.Equal(back, all) {
		f.Error("the changes differ after they were read")
	}
	f.Add(stateText([16]byte{1}, stateBegin))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		_, kind, some, err := parseStates(text)
		for _, s := range some {
			if err != nil || kind != stateChanges || s.State < belay.Pending || s.State > belay.Cancelled || s.Seq < 1 {
				t.Errorf("%+v, kind %d, %v", s, kind, err)
			}
		}
	})
}

// A server sends changes from the first request on until the requests stop, says when it begins and ends, and
// says that changes are missing if too many wait.
func TestStatesAreSentWhileTheyAreWanted(t *testing.T) {
	var x stateOutbox
	rows := &machine.Rows{Now: 7}
	e := &machine.Execution{State: belay.Running, Seq: 2}
	change := &machine.Changes{States: []machine.StateChange{{Execution: e}}}
	kinds := func() (all []byte) {
		for _, text := range x.take([16]byte{1}) {
			_, kind, _, err := parseStates(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, kind)
		}
		return all
	}
	want := func(what string, want ...byte) {
		t.Helper()
		if got := kinds(); !slices.Equal(got, want) {
			t.Errorf("%s: sent %v, want %v", what, got, want)
		}
	}
	x.add(rows, change)
	want("no server wants changes")
	if !x.asked(stateWant, time.Now()) || x.asked(stateWant, time.Now()) || !x.asked(stateAsk, time.Now()) {
		t.Error("only a first or a new request needs an answer")
	}
	x.add(rows, change)
	want("changes are wanted", stateBegin, stateBegin, stateChanges)
	for range mostStates + 1 {
		x.add(rows, change)
	}
	want("too many wait", stateLost)
	x.failed()
	want("messages were lost", stateBegin, stateLost)
	x.until = time.Now().Add(-time.Second)
	x.add(rows, change)
	want("the requests have stopped", stateEnd)
	x.add(rows, change)
	want("no server wants changes any more")
}

// If messages about states are not sent, because no server seemed to listen, the next messages say that changes
// are missing to a server that listens nevertheless.
func TestUnsentStatesAreNoticed(t *testing.T) {
	n := &outbox{on: true, wake: make(chan struct{}, 1)}
	kinds := func() (all []byte) {
		_, texts := n.take([16]byte{1})
		for _, text := range texts {
			_, kind, _, err := parseStates(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, kind)
		}
		return all
	}
	n.states.asked(stateAsk, time.Now())
	kinds()
	n.add(&machine.Rows{Now: 7}, &machine.Changes{States: []machine.StateChange{{
		Execution: &machine.Execution{State: belay.Running, Seq: 2},
	}}})
	for range 3 { // for some time no server listens
		kinds()
		n.unsent(true)
	}
	n.states.asked(stateWant, time.Now())
	if got := kinds(); !slices.Equal(got, []byte{stateEnd, stateBegin}) {
		t.Errorf("sent %v", got)
	}
	heard := n.hasHeard()
	if n.saw(false, heard); n.hasOthers() {
		t.Error("no other server was heard")
	}
	n.hear() // while a query runs
	if n.saw(false, heard); !n.hasOthers() {
		t.Error("a query that is older than a message says that no other server listens")
	}
}

// A hint about a commit of a server that sends no changes of states says that changes are missing, and so does
// the first message of a server that begins to send them.
func TestMissingStatesAreNoticed(t *testing.T) {
	x := newSenders(&outbox{})
	changed := store.Hint{Changed: store.Executions{Hashes: map[uint32]struct{}{1: {}}}}
	one, old := [16]byte{1}, [16]byte{2}
	if !x.missing(one, changed) || x.missing(one, store.Hint{Objects: true}) || x.missing(joined, changed) {
		t.Error("before the server sends changes")
	}
	if h := x.receive(one, stateChanges, make([]store.StateHint, 1)); !h.StatesLost {
		t.Error("changes without a beginning")
	}
	if h := x.receive(one, stateBegin, nil); !h.StatesLost {
		t.Error("the beginning")
	}
	if h := x.receive(one, stateBegin, nil); h.StatesLost || x.missing(one, changed) || !x.missing(old, changed) {
		t.Error("after the beginning")
	}
	if h := x.receive(one, stateLost, nil); !h.StatesLost {
		t.Error("lost changes")
	}
	if x.receive(one, stateEnd, nil); !x.missing(one, changed) {
		t.Error("after the end")
	}
}
